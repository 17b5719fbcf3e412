"""Watch a deployed policy: from a production log to one verdict."""

from suffice.verdicts.watches.looks import read_log
from suffice.verdicts.watches.metrics import WatchCollector, export_metrics, prometheus_text
from suffice.verdicts.watches.requests import Requests
from suffice.verdicts.watches.result import STATUSES, WatchResult
from suffice.verdicts.watches.user_signals import UserSignal, by_request, seconds_of
from suffice.verdicts.watches.verdict import GOLD_DEADLINE, audited_recording, full_width, watch

__all__ = [
    "GOLD_DEADLINE",
    "STATUSES",
    "Requests",
    "UserSignal",
    "WatchCollector",
    "WatchResult",
    "audited_recording",
    "by_request",
    "export_metrics",
    "full_width",
    "prometheus_text",
    "read_log",
    "seconds_of",
    "watch",
]
