"""Suffice: whether to retrieve, when to stop, and which round's answer to return.

``import suffice`` costs numpy only; what needs more is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from suffice._version import __version__
from suffice.calibration import Calibrator
from suffice.errors import SufficeError
from suffice.rounds import Cost, Decision, Passage, Reply, Round, Rounds, Token
from suffice.rules import (
    NAMED_RULES,
    SELECTORS,
    FirstOf,
    KOf,
    Never,
    Patience,
    Rule,
    Selector,
    answer_stable,
    fixed_k,
    margin,
    parse_rule,
    parse_selector,
    register_rule,
    register_selector,
    round_aware,
    signal,
    tasr,
)
from suffice.session import Policy, Session
from suffice.signals import SIGNALS, AnswerPosition, Signal

if TYPE_CHECKING:
    from suffice.llm import ChatModel, ScriptedModel, SpanReaderModel
    from suffice.loop import DraftingLoop, RetrievalLoop, record, record_async
    from suffice.replays import calibrate
    from suffice.retrieval import load_questions
    from suffice.store import read_recording

_LAZY = {
    "ChatModel": "suffice.llm",
    "DraftingLoop": "suffice.loop",
    "RetrievalLoop": "suffice.loop",
    "ScriptedModel": "suffice.llm",
    "SpanReaderModel": "suffice.llm",
    "calibrate": "suffice.replays",
    "load_questions": "suffice.retrieval",
    "read_recording": "suffice.store",
    "record": "suffice.loop",
    "record_async": "suffice.loop",
}

__all__ = [
    "NAMED_RULES",
    "SELECTORS",
    "SIGNALS",
    "AnswerPosition",
    "Calibrator",
    "ChatModel",
    "Cost",
    "Decision",
    "DraftingLoop",
    "FirstOf",
    "KOf",
    "Never",
    "Passage",
    "Patience",
    "Policy",
    "Reply",
    "RetrievalLoop",
    "Round",
    "Rounds",
    "Rule",
    "ScriptedModel",
    "Selector",
    "Session",
    "Signal",
    "SpanReaderModel",
    "SufficeError",
    "Token",
    "__version__",
    "answer_stable",
    "calibrate",
    "fixed_k",
    "load_questions",
    "margin",
    "parse_rule",
    "parse_selector",
    "read_recording",
    "record",
    "record_async",
    "register_rule",
    "register_selector",
    "round_aware",
    "signal",
    "tasr",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
