from smolagents import ActionStep, FinalAnswerStep, ToolCallingAgent

from suffice.hosts import QuestionRun

LIMIT = 10
agent = ToolCallingAgent(tools=tools, model=model)


def ask(question):
    run, reason = QuestionRun("policy.json", question), "exhausted"
    for step in agent.run(question, stream=True, max_steps=LIMIT):
        if isinstance(step, FinalAnswerStep):
            run.observe(str(step.output))
        elif isinstance(step, ActionStep) and not step.is_final_answer:
            run.observe(step.model_output or "")
            if step.step_number == LIMIT:  # before one more call for a final answer
                reason = "cancelled"
                break
        if run.decision:
            break
    run.end(reason)
    return run.text, run.metadata()
