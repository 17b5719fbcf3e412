"""From logs to one verdict: keep the loop, lower its cap, or stop by a rule."""

from suffice.decisions.advice import Advice, AdviceKind
from suffice.decisions.losses import SAVABLE
from suffice.decisions.protocol import decide
from suffice.decisions.trial import Trial
from suffice.decisions.wealth import Wealth

__all__ = ["SAVABLE", "Advice", "AdviceKind", "Trial", "Wealth", "decide"]
