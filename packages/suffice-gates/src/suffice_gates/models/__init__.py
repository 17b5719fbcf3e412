"""Local models, and measurements of their passes: hidden states, attention, reflection tokens."""

from suffice_gates.models.chain_states import ChainStates
from suffice_gates.models.embedding_states import EncoderStates, EndpointStates
from suffice_gates.models.monitor import ConfidenceMonitor, fit_directions
from suffice_gates.models.reflection import CritiqueWeights, ReflectionGate, SelfCritique
from suffice_gates.models.reply_states import ReplyStates
from suffice_gates.models.sampled import gram_uncertainty, same_answer, semantic_entropy
from suffice_gates.models.spread import SampleSpread
from suffice_gates.models.state_files import StateWriter, StoredStates, read_states
from suffice_gates.models.states import State, StateSource
from suffice_gates.models.transformers_model import LoadedModel, TransformersModel, load_model

__all__ = [
    "ChainStates",
    "ConfidenceMonitor",
    "CritiqueWeights",
    "EncoderStates",
    "EndpointStates",
    "LoadedModel",
    "ReflectionGate",
    "ReplyStates",
    "SampleSpread",
    "SelfCritique",
    "State",
    "StateSource",
    "StateWriter",
    "StoredStates",
    "TransformersModel",
    "fit_directions",
    "gram_uncertainty",
    "load_model",
    "read_states",
    "same_answer",
    "semantic_entropy",
]
