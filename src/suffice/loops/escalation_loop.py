"""The escalation loop, which asks one model after the other, the cheapest first, until an answer is accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from suffice.errors import DataError
from suffice.loops.sampling_loop import SamplingLoop
from suffice.policy.rounds import Reply
from suffice.policy.session import Policy
from suffice.recordings.runs import ATTEMPTS

_ACCEPTS = Policy(rule="answer_stable_guarded")


@dataclass(frozen=True, kw_only=True)
class EscalationLoop(SamplingLoop):
    """Asks models, the cheapest first, until the policy accepts an answer by stopping.

    Round i is the attempt of the i-th model, which sees only the question, without earlier answers or marks.  The cost of a
    question is the cost of all attempts up to the accepted one and of the enrichers that judge these attempts.  After the
    last model the loop ends.  A model that is listed twice is asked twice, so that a rule can read whether its answers agree.
    List each reasoning effort of a model under its own name.  If a model's call fails in a live run, the attempt has no
    answer, a warning is logged, and the next model is asked.  An endpoint that refuses the credentials ends the loop.

    A recording (`suffice.record`) has every model's answer to every question, so that rules can be compared with each model alone
    and with mixtures of models.

    Attributes:
        model: The models, the cheapest first; at least two.
        policy: Decides when to accept; its `max_rounds` is at most the number of models.  The default accepts an answer that
            equals the previous answer.  It does not accept answers such as "I do not know".
        temperature: Sampling temperature of every model; None = the models' own.
        wave: Must be 1.  In a larger wave, several models would be asked at once, and all of them would have to be paid.
    """

    policy: Policy = field(default_factory=lambda: _ACCEPTS)
    temperature: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.policy is _ACCEPTS:
            object.__setattr__(self, "policy", replace(_ACCEPTS, max_rounds=len(self.models)))

    def without_reply(self, r: int) -> Reply | None:
        """Return an empty reply, so that the next model is asked; None for the last attempt."""
        return Reply() if r < self.policy.max_rounds else None

    @property
    def depends(self) -> Mapping[str, Any]:
        """The configuration that fitted state depends on: models, prompts, temperature, and the model of each attempt."""
        return {**super().depends, ATTEMPTS: [model.name for model in self.models]}

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Metadata for a recording: the normalizer of the answers."""
        return {"normalizer": self.policy.normalizer}

    def verify(self) -> None:
        """Check that there are at least two models, one for each attempt, and that one is asked at a time.

        Raises:
            DataError: There is only one model, several prompts take turns, several models are asked at once, or a check of `SamplingLoop.verify` failed.
        """
        n, most = len(self.models), self.policy.max_rounds
        if n < 2 or self.prompts:  # noqa: PLR2004
            raise DataError(
                f"an escalation goes through two models or more, each with its own prompt, not {n} with {self.prompts!r}"
            )
        if self.wave != 1:
            raise DataError(
                f"wave={self.wave} asks several models at once, and all of them are paid: an escalation asks one (wave=1)"
            )
        if most > n:
            raise DataError(
                f"the policy allows {most} attempts, and there are {n} models: set max_rounds={n}, or list a model twice"
            )
        super().verify()
