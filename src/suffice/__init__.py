"""Suffice decides whether to retrieve, when to stop, and which round's answer to return.

``import suffice`` only loads numpy; other dependencies are imported on first use.
"""

from typing import TYPE_CHECKING, Any

from suffice._version import __version__
from suffice.common.lazy import lazy_face
from suffice.errors import SufficeError
from suffice.policy.metrics import METRICS, register_metric
from suffice.policy.rounds import (
    Cost,
    Decision,
    Passage,
    Reply,
    Round,
    Rounds,
    Token,
    read_responses_by as _read_responses_by,
)
from suffice.policy.rules import (
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
from suffice.policy.session import Policy
from suffice.policy.signals import SIGNALS, AnswerPosition, Signal, register_signal

if TYPE_CHECKING:
    from suffice.evaluation.replay import calibrate, replay
    from suffice.evaluation.search import search
    from suffice.evaluation.statistics import Resampling
    from suffice.importers import import_recording, register_importer
    from suffice.loops import (
        DraftingLoop,
        EscalationLoop,
        Recorder,
        RetrievalLoop,
        SamplingLoop,
        ThinkingLoop,
        record,
        record_async,
    )
    from suffice.loops.models import ChatModel, ScriptedModel
    from suffice.loops.retrieval import PoolBM25, Question, load_questions
    from suffice.policy.calibration import Calibrator
    from suffice.policy.session import Audit, Session
    from suffice.presentation import report
    from suffice.recordings import Recording, read_recording, write_recording
    from suffice.verdicts.certificates import Claim, Family, certify
    from suffice.verdicts.decisions import Advice, decide
    from suffice.verdicts.diagnostics import diagnose
    from suffice.verdicts.watches import watch

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
    "EscalationLoop",
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
    "SufficeError",
    "ThinkingLoop",
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


_PROVIDED = {"SpanReaderModel": "reader.SpanReaderModel"}
"""Components of other distributions that users know by a name of this one: there if the distribution is installed."""


_lazy, __dir__, _ = lazy_face(__name__)
_read_responses_by("suffice.loops.models.replies:reply_of_response")


def __getattr__(name: str) -> Any:
    if name in _PROVIDED:
        from suffice.common.provided import provided

        return provided(_PROVIDED[name])
    return _lazy(name)
