"""Models: any OpenAI-compatible endpoint, local transformers, the embedded span reader, and a scripted model for tests."""

from suffice.loops.models._wire import Completion
from suffice.loops.models.chat import ChatModel
from suffice.loops.models.doctor import EndpointReport, probe
from suffice.loops.models.embeddings import EndpointEmbedder
from suffice.loops.models.judge import ENTAILMENT, EntailmentJudge, JudgePrompt
from suffice.loops.models.limits import EvenPace, Pace, RequestLimits
from suffice.loops.models.prompts import DRAFTING, PROMPTS, DraftingPrompt, Prompt
from suffice.loops.models.protocols import Answerer, Gate, Verdict
from suffice.loops.models.scripted import ScriptedModel
from suffice.loops.models.sentence_transformers import SentenceTransformersEmbedder

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
