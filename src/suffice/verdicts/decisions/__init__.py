"""From logs to one verdict: keep the loop, lower its cap, or stop by a rule."""

from suffice.verdicts.decisions.advice import Advice, AdviceKind
from suffice.verdicts.decisions.losses import SAVABLE
from suffice.verdicts.decisions.protocol import decide
from suffice.verdicts.decisions.trial import Trial
from suffice.verdicts.decisions.wealth import Wealth

__all__ = ["SAVABLE", "Advice", "AdviceKind", "Trial", "Wealth", "decide"]
