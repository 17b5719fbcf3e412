"""Models: any OpenAI-compatible endpoint, local transformers, the embedded span reader, and a scripted double."""

from suffice.loops.models.base import Answerer, Completer, Gate, Verdict
from suffice.loops.models.chat import ChatModel, Completion
from suffice.loops.models.doctor import EndpointReport, probe
from suffice.loops.models.embeddings import EndpointEmbedder
from suffice.loops.models.judge import ENTAILMENT, EntailmentJudge, JudgePrompt
from suffice.loops.models.limits import EvenPace, Pace, RequestLimits
from suffice.loops.models.prompts import (
    CHAIN_OF_THOUGHT,
    DRAFTING,
    PROMPTS,
    SELF_ASK,
    ChainPrompt,
    DraftingPrompt,
    Prompt,
)
from suffice.loops.models.scripted import ScriptedModel
from suffice.loops.models.sentence_transformers import SentenceTransformersEmbedder

__all__ = [
    "CHAIN_OF_THOUGHT",
    "DRAFTING",
    "ENTAILMENT",
    "PROMPTS",
    "SELF_ASK",
    "Answerer",
    "ChainPrompt",
    "ChatModel",
    "Completer",
    "Completion",
    "DraftingPrompt",
    "EndpointEmbedder",
    "EndpointReport",
    "EntailmentJudge",
    "EvenPace",
    "Gate",
    "JudgePrompt",
    "Pace",
    "Prompt",
    "RequestLimits",
    "ScriptedModel",
    "SentenceTransformersEmbedder",
    "Verdict",
    "probe",
]
