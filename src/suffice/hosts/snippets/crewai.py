from crewai import Agent, Crew, Task

from suffice.hosts.crewai import StopTask

stop = StopTask("policy.json", retries=9)
writer = Agent(role="Writer", goal="Answer questions", backstory="You know plays.", llm=model)
task = Task(description="{question}", expected_output="The title", agent=writer, **stop.arguments)
crew = Crew(agents=[writer], tasks=[task])


def ask(question):
    return stop.kickoff(crew, question)
