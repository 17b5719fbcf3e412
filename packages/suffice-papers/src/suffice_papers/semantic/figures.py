"""The published figures of Semantic Early-Stopping, with spreads, tests and verdicts that follow from these figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from suffice.errors import DataError
from suffice.evaluation.statistics import holm
from suffice_papers.published import Flag, flagged, read_published

BASELINE = "fixed_k6"
"""The policy that every published difference refers to."""

MARGINS = (0.01, 0.02, 0.05)
"""Margins of the information score in the paper's protocol; its files contain verdicts at 0.02 only."""

_LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureDifference:
    """A published paired difference to `BASELINE`, with the spread that follows from the published figures.

    The standard error is exactly ``mean / (d_z * sqrt(n))``, since d_z is the mean divided by the standard deviation of
    the pairs.  If all pairs are equal, the standard error is zero, and the published d_z of 0.0 means that d_z is
    undefined.

    Attributes:
        mean: Mean difference.
        low: Lower end of the published interval (95 %, bootstrap).
        high: Upper end.
        d_z: Cohen's d_z; 0 also means undefined.
        t_p: Two-sided p-value of the paired t-test; NaN if not published.
        wilcoxon_p: Two-sided p-value of Wilcoxon's signed-rank test; NaN if not published.
        n: Number of questions.
    """

    mean: float
    low: float
    high: float
    d_z: float
    t_p: float
    wilcoxon_p: float
    n: int

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        if self.d_z == 0:
            return 0.0 if self.low == self.high == self.mean else math.nan
        return self.mean / self.d_z / math.sqrt(self.n)

    def recomputed_p(self) -> float:
        """Return the two-sided p-value of the paired t-test; NaN where the pairs do not vary."""
        from scipy.special import stdtr

        error = self.error
        return math.nan if not error > 0 else 2 * float(stdtr(self.n - 1, -abs(self.mean) / error))

    def bounds(self) -> tuple[float, float]:
        """Return the lower and upper one-sided 95 % bounds of the paired t method; together they are a 90 % interval."""
        from scipy.special import stdtrit

        reach = float(stdtrit(self.n - 1, _LEVEL)) * self.error
        return self.mean - reach, self.mean + reach

    def p_loss(self, margin: float) -> float:
        """Return the p-value of the hypothesis "the loss is at least `margin`"; 0 or 1 without a spread.

        Non-inferiority means that this hypothesis is rejected.
        """
        return self._p(-(self.mean + margin))

    def p_gain(self, margin: float) -> float:
        """Return the p-value of the hypothesis "the gain is at least `margin`", the second side of TOST."""
        return self._p(self.mean - margin)

    def _p(self, distance: float) -> float:
        from scipy.special import stdtr

        if self.error == 0:
            return 0.0 if distance < 0 else 1.0
        return float(stdtr(self.n - 1, distance / self.error))

    def non_inferior(self, margin: float) -> bool:
        """Return True if a loss of `margin` is excluded, one-sided at 5 %."""
        return self.p_loss(margin) < 1 - _LEVEL

    def equivalent(self, margin: float) -> bool:
        """Return True if a loss and a gain of `margin` are excluded, each side at 5 % (TOST)."""
        return max(self.p_loss(margin), self.p_gain(margin)) < 1 - _LEVEL


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """One policy on one split.

    Attributes:
        name: The paper's name of the policy.
        rounds: Mean rounds.
        tokens: Mean operational tokens, as the paper counts them.
        score: Mean information score of the returned draft, in [0, 1].
        differences: Differences to `BASELINE` of `rounds`, `tokens` and `score`; empty for the baseline itself.
        p_lower: Published p-value of the policy's test of non-inferiority at 0.02; NaN if not published.
        verdict: The published verdict under TOST; None for the baseline.
    """

    name: str
    rounds: float
    tokens: float
    score: float
    differences: Mapping[str, FigureDifference]
    p_lower: float
    verdict: bool | None

    @property
    def means(self) -> tuple[float, float, float]:
        """Mean rounds, tokens and score; they are equal for two policies that are the same run under two names."""
        return self.rounds, self.tokens, self.score


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSplit:
    """The published figures of one split.

    Attributes:
        name: `test` or `dev`.
        questions: Number of questions.
        commit: Commit of the author's repository at the run.
        runs: Results of policies by name, including the cells of the ablation (`abl_...`).
        conjecture: Published figures on the distances: share of monotone trajectories, slope with interval, step,
            statistic, p.
    """

    name: str
    questions: int
    commit: str
    runs: Mapping[str, PublishedRun]
    conjecture: Mapping[str, Any]

    def saved(self, name: str) -> float:
        """Return the share of the baseline's tokens that a policy saves; negative if it costs more."""
        return 1 - self.runs[name].tokens / self.runs[BASELINE].tokens

    def different(self) -> list[PublishedRun]:
        """Return the runs of all policies except the baseline; a run with several names is returned once, under the first name."""
        first: dict[tuple[float, float, float], PublishedRun] = {}
        for run in self.runs.values():
            first.setdefault(run.means, run)
        return [run for run in first.values() if run.name != BASELINE]

    def holm(self, p: Callable[[FigureDifference], float]) -> dict[str, float]:
        """Apply `p` to each distinct policy's difference of the score, and adjust these p-values by Holm."""
        runs = self.different()
        adjusted = holm([p(run.differences["score"]) for run in runs])
        return dict(zip((run.name for run in runs), adjusted.tolist(), strict=True))

    def copies(self, name: str) -> list[str]:
        """Return the names of other policies with equal means, since these are the same run."""
        means = self.runs[name].means
        return [run.name for run in self.runs.values() if run.name != name and run.means == means]

    def dominating(self, name: str) -> list[str]:
        """Return the fixed and random policies that dominate a policy.

        They have no lower score and no more tokens, and are better in one of the two.
        """
        run = self.runs[name]
        rivals = [r for r in self.runs.values() if r.name.startswith(("fixed_k", "random_s")) and r.name != name]
        return [
            r.name
            for r in rivals
            if r.score >= run.score and r.tokens <= run.tokens and (r.score, r.tokens) != (run.score, run.tokens)
        ]

    def loop_tokens(self, rounds: float) -> float:
        """Estimate the tokens of writer and critic for a number of rounds, by linear interpolation between budgets.

        The fixed budgets are those of 1, 3 and 6 rounds.

        Raises:
            DataError: `rounds` is below 1 or above 6.
        """
        known = [(run.rounds, run.tokens) for run in map(self.runs.__getitem__, ("fixed_k1", "fixed_k3", "fixed_k6"))]
        for (left, low), (right, high) in pairwise(known):
            if left <= rounds <= right:
                return low + (high - low) * (rounds - left) / (right - left)
        raise DataError(f"rounds are 1 to 6, not {rounds!r}")

    def judge_tokens(self, name: str) -> float:
        """Estimate the judge's tokens per round, assuming that the policy pays the judge in each of its rounds."""
        run = self.runs[name]
        return (run.tokens - self.loop_tokens(run.rounds)) / run.rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSemantic:
    """The figures of the paper.

    Attributes:
        paper: Title, number, repository, judge and settings.
        text: Figures in the abstract and the text.
        splits: The splits by name, `test` first.
        flags: The inconsistencies of the published figures.
    """

    paper: Mapping[str, Any]
    text: Mapping[str, Any]
    splits: Mapping[str, FigureSplit]
    flags: tuple[Flag, ...]

    def flagged(self, split: str, name: str) -> tuple[Flag, ...]:
        """Return the flags of a row."""
        return flagged(self.flags, f"{split}.{name}")


@cache
def published_semantic() -> PublishedSemantic:
    """Return the figures of Semantic Early-Stopping (arXiv 2606.27009).

    >>> test = published_semantic().splits["test"]
    >>> round(test.saved("entropy_only"), 2), test.dominating("entropy_only")
    (0.38, ['fixed_k3', 'fixed_k1', 'random_s0', 'random_s1'])
    """
    data, flags = read_published("semantic")
    splits = {name: _split(name, part) for name, part in data["splits"].items()}
    return PublishedSemantic(paper=data["paper"], text=data["text"], splits=splits, flags=flags)


def _split(name: str, part: Mapping[str, Any]) -> FigureSplit:
    n = part["questions"]
    runs = {
        policy: PublishedRun(
            name=policy,
            rounds=row["rounds"],
            tokens=row["tokens"],
            score=row["score"],
            differences={
                key.removeprefix("d_"): FigureDifference(**row[key], n=n) for key in row if key.startswith("d_")
            },
            p_lower=row.get("p_lower", math.nan),
            verdict=row.get("non_inferior"),
        )
        for policy, row in part["policies"].items()
    }
    return FigureSplit(name=name, questions=n, commit=part["commit"], runs=runs, conjecture=part["conjecture"])
