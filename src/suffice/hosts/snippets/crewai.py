from contextvars import ContextVar

from crewai import Agent, Crew, Task

from suffice.hosts import QuestionRun

RETRIES = 9
current = ContextVar("run")


def decide(output):
    run = current.get()
    run.observe(output.raw)
    if len(run.session.rounds) > RETRIES:
        run.end("cancelled")
    return (True, run.text) if run.decision else (False, "Improve your answer.")


writer = Agent(role="Writer", goal="Answer questions", backstory="You know plays.", llm=model)
task = Task(
    description="{question}",
    expected_output="The title",
    agent=writer,
    guardrail=decide,
    guardrail_max_retries=RETRIES,
)
crew = Crew(agents=[writer], tasks=[task])


def ask(question):
    run = QuestionRun("policy.json", question)
    current.set(run)
    return crew.kickoff(inputs={"question": question}).raw, run.metadata()
