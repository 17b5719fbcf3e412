import dspy

from suffice.hosts import QuestionRun


class BestDraft(dspy.Module):
    def __init__(self, policy, limit):
        super().__init__()
        self.policy, self.limit = policy, limit
        self.draft = dspy.Predict("question, previous_answer -> answer")

    def forward(self, question):
        run, answer = QuestionRun(self.policy, question), ""
        while run.decision is None and len(run.session.rounds) < self.limit:
            answer = self.draft(question=question, previous_answer=answer).answer
            run.observe(answer)
        run.end("cancelled")
        return dspy.Prediction(answer=run.text, decision=run.metadata())


program = BestDraft("policy.json", limit=10)


def ask(question):
    prediction = program(question=question)
    return prediction.answer, prediction.decision
