"""Models: any OpenAI-compatible endpoint, local transformers, the embedded span reader, and a scripted double."""

from suffice.llm.base import Answerer, Completer, Gate, Verdict
from suffice.llm.chat import ChatModel, Completion
from suffice.llm.doctor import EndpointReport, probe
from suffice.llm.embedding_states import EncoderStates, EndpointStates
from suffice.llm.embeddings import EndpointEmbedder
from suffice.llm.judge import ENTAILMENT, EntailmentJudge, JudgePrompt
from suffice.llm.limits import EvenPace, Pace, RequestLimits
from suffice.llm.monitor import ConfidenceMonitor, fit_directions
from suffice.llm.prompts import CHAIN_OF_THOUGHT, DRAFTING, PROMPTS, SELF_ASK, ChainPrompt, DraftingPrompt, Prompt
from suffice.llm.reader import SpanReaderModel
from suffice.llm.reflection import CritiqueWeights, ReflectionGate, SelfCritique
from suffice.llm.reply_states import ReplyStates
from suffice.llm.scripted import ScriptedModel
from suffice.llm.span_reader import SpanReader
from suffice.llm.spread import SampleSpread
from suffice.llm.states import State, StateSource
from suffice.llm.transformers_model import LoadedModel, TransformersModel, load_model

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
    "ConfidenceMonitor",
    "CritiqueWeights",
    "DraftingPrompt",
    "EncoderStates",
    "EndpointEmbedder",
    "EndpointReport",
    "EndpointStates",
    "EntailmentJudge",
    "EvenPace",
    "Gate",
    "JudgePrompt",
    "LoadedModel",
    "Pace",
    "Prompt",
    "ReflectionGate",
    "ReplyStates",
    "RequestLimits",
    "SampleSpread",
    "ScriptedModel",
    "SelfCritique",
    "SpanReader",
    "SpanReaderModel",
    "State",
    "StateSource",
    "TransformersModel",
    "Verdict",
    "fit_directions",
    "load_model",
    "probe",
]
