"""A chat model of LangChain that answers from a script."""

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from tests.frameworks.acceptance import Script, tokens_of


class FakeChat(BaseChatModel):
    """Each answer also calls a tool, `tool`, so that an agent would go on; None for plain answers."""

    script: Script
    tool: str | None = None

    @property
    def _llm_type(self):
        return "fake"

    def bind_tools(self, tools, **kwargs):
        return self.bind(tools=tools)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.script.log.append(list(messages))
        tool = self.tool if kwargs.get("tools") else None
        self.script.offered.append(tool is not None)
        details = {"cache_read": 4}
        usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12, "input_token_details": details}
        answer = self.script.next()
        calls = [] if tool is None else [{"name": tool, "args": {}, "id": f"call_{self.script.calls}"}]
        metadata = {"finish_reason": "stop", "logprobs": {"content": tokens_of(answer)}}
        message = AIMessage(answer, usage_metadata=usage, tool_calls=calls, response_metadata=metadata)
        return ChatResult(generations=[ChatGeneration(message=message)])
