"""Suffice: whether to retrieve, when to stop, and which round's answer to return.

``import suffice`` costs numpy only; what needs more is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from suffice._version import __version__
from suffice.calibration import Calibrator
from suffice.errors import SufficeError
from suffice.metrics import METRICS, register_metric
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
    fixed_k,
    parse_rule,
    parse_selector,
    register_rule,
    register_selector,
    signal,
    tasr,
)
from suffice.session import Audit, Policy, Session
from suffice.signals import SIGNALS, AnswerPosition, Signal, register_signal

if TYPE_CHECKING:
    from suffice.adapters import import_recording, register_importer
    from suffice.certificates import Claim, Family, certify
    from suffice.decisions import Advice, decide
    from suffice.diagnostics import diagnose
    from suffice.llm import ChatModel, ScriptedModel, SpanReaderModel
    from suffice.loop import DraftingLoop, Recorder, RetrievalLoop, SamplingLoop, record, record_async
    from suffice.replays import calibrate, replay
    from suffice.reports import report
    from suffice.retrieval import PoolBM25, Question, load_questions
    from suffice.searches import search
    from suffice.statistics import Resampling
    from suffice.store import Recording, read_recording, write_recording
    from suffice.watches import watch

_LAZY = {
    "Advice": "suffice.decisions",
    "ChatModel": "suffice.llm",
    "Claim": "suffice.certificates",
    "DraftingLoop": "suffice.loop",
    "Family": "suffice.certificates",
    "PoolBM25": "suffice.retrieval",
    "Question": "suffice.retrieval",
    "Recorder": "suffice.loop",
    "Recording": "suffice.store",
    "Resampling": "suffice.statistics",
    "RetrievalLoop": "suffice.loop",
    "SamplingLoop": "suffice.loop",
    "ScriptedModel": "suffice.llm",
    "SpanReaderModel": "suffice.llm",
    "calibrate": "suffice.replays",
    "certify": "suffice.certificates",
    "decide": "suffice.decisions",
    "diagnose": "suffice.diagnostics",
    "import_recording": "suffice.adapters",
    "load_questions": "suffice.retrieval",
    "read_recording": "suffice.store",
    "record": "suffice.loop",
    "record_async": "suffice.loop",
    "replay": "suffice.replays",
    "register_importer": "suffice.adapters",
    "report": "suffice.reports",
    "search": "suffice.searches",
    "watch": "suffice.watches",
    "write_recording": "suffice.store",
}

__all__ = [
    "METRICS",
    "NAMED_RULES",
    "SELECTORS",
    "SIGNALS",
    "Advice",
    "AnswerPosition",
    "Audit",
    "Calibrator",
    "ChatModel",
    "Claim",
    "Cost",
    "Decision",
    "DraftingLoop",
    "Family",
    "FirstOf",
    "KOf",
    "Never",
    "Passage",
    "Patience",
    "Policy",
    "PoolBM25",
    "Question",
    "Recorder",
    "Recording",
    "Reply",
    "Resampling",
    "RetrievalLoop",
    "Round",
    "Rounds",
    "Rule",
    "SamplingLoop",
    "ScriptedModel",
    "Selector",
    "Session",
    "Signal",
    "SpanReaderModel",
    "SufficeError",
    "Token",
    "__version__",
    "calibrate",
    "certify",
    "decide",
    "diagnose",
    "fixed_k",
    "import_recording",
    "load_questions",
    "parse_rule",
    "parse_selector",
    "read_recording",
    "record",
    "record_async",
    "register_importer",
    "register_metric",
    "register_rule",
    "register_selector",
    "register_signal",
    "replay",
    "report",
    "search",
    "signal",
    "tasr",
    "watch",
    "write_recording",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
