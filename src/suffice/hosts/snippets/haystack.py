from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage

from suffice.hosts.haystack import stop_hooks

agent = Agent(chat_generator=model, tools=tools, max_agent_steps=10, hooks=stop_hooks("policy.json"))


def ask(question):
    final = agent.run(messages=[ChatMessage.from_user(question)])["last_message"]
    return final.text, final.meta["suffice"]
