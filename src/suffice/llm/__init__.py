"""Models: any OpenAI-compatible endpoint, the embedded span reader, and a scripted double."""

from suffice.llm.base import Answerer, Gate, Verdict
from suffice.llm.chat import ChatModel, Completion
from suffice.llm.doctor import EndpointReport, probe
from suffice.llm.embeddings import EndpointEmbedder
from suffice.llm.judge import ENTAILMENT, EntailmentJudge, JudgePrompt
from suffice.llm.prompts import DRAFTING, PROMPTS, DraftingPrompt, Prompt
from suffice.llm.reader import SpanReaderModel
from suffice.llm.scripted import ScriptedModel
from suffice.llm.span_reader import SpanReader

__all__ = [
    "DRAFTING",
    "ENTAILMENT",
    "PROMPTS",
    "Answerer",
    "ChatModel",
    "Completion",
    "DraftingPrompt",
    "EndpointEmbedder",
    "EndpointReport",
    "EntailmentJudge",
    "Gate",
    "JudgePrompt",
    "Prompt",
    "ScriptedModel",
    "SpanReader",
    "SpanReaderModel",
    "Verdict",
    "probe",
]
