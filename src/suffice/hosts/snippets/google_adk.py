from google.adk.agents import LlmAgent

from suffice.hosts.google_adk import stop_callbacks

agent = LlmAgent(name="writer", model=model, tools=tools, **stop_callbacks("policy.json"))
