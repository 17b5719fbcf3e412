"""Methods that decide when to retrieve, and write the queries: Self-Ask, IRCoT, FLARE and DRAGIN."""

from suffice_retrieval.methods.chains import CHAIN_METHODS, ChainMethod, Dragin, Flare, IRCoT, SelfAsk, parse_method
from suffice_retrieval.methods.prompts import CHAIN_OF_THOUGHT, SELF_ASK, ChainPrompt, read_chain_prompt
from suffice_retrieval.methods.querying import Completer, QueryLoop

__all__ = [
    "CHAIN_METHODS",
    "CHAIN_OF_THOUGHT",
    "SELF_ASK",
    "ChainMethod",
    "ChainPrompt",
    "Completer",
    "Dragin",
    "Flare",
    "IRCoT",
    "QueryLoop",
    "SelfAsk",
    "parse_method",
    "read_chain_prompt",
]
