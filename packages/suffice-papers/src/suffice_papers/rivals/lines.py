"""Lines of the table of rivals: accuracy and cost of each method, next to fixed numbers of passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.evaluation.replay.baselines import run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.statistics import Clusters, Resampling
from suffice.policy.rounds import Floats
from suffice.policy.session import Policy
from suffice.recordings import Recording

FIXED = "fixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RivalLine:
    """The results of one way to ask for evidence; arrays have shape ``(n_questions,)``.

    Attributes:
        name: Name in the table.
        kind: The kind of the method in the table: `fixed`, `method`, `gate`, or any other word.
        questions: The ids of the questions, in order.
        clusters: The cluster of each question; None if each question is its own cluster.
        right: EM of the answers, in [0, 1].
        calls: Requests to language models.
        tokens: Input and output tokens.
        retrievals: Requests to the retriever.
        why: Reason why the method was not run, in which case the arrays are empty; "" if it was run.
    """

    name: str
    kind: str
    questions: tuple[str, ...] = ()
    clusters: Clusters = None
    right: Floats
    calls: Floats
    tokens: Floats
    retrievals: Floats
    why: str = ""

    @classmethod
    def not_run(cls, name: str, kind: str, why: str) -> RivalLine:
        """Return the line of a method that cannot run here, with the reason."""
        nothing = np.zeros(0)
        return cls(name=name, kind=kind, right=nothing, calls=nothing, tokens=nothing, retrievals=nothing, why=why)

    def to_dict(self) -> dict[str, Any]:
        """Return the means as JSON-ready values."""
        if self.why:
            return {"name": self.name, "kind": self.kind, "why": self.why}
        means = {name: float(getattr(self, name).mean()) for name in ("right", "calls", "tokens", "retrievals")}
        return {"name": self.name, "kind": self.kind, "n": len(self.right), **means}


def line_of(name: str, kind: str, recording: Recording, policy: Policy) -> RivalLine:
    """Measure a policy on a recording by replay.

    Args:
        name: Name in the table.
        kind: `method`, `gate` or another kind.
        recording: Recorded rounds of the method, or of a loop with the gate in front.
        policy: The policy that stops the method; with `Policy()`, the method ends by itself.

    Raises:
        DataError: Questions failed while recording.
    """
    prepared = PreparedRecording.of(recording, ["em"])
    if prepared.n_failed:
        raise DataError(f"{name}: {prepared.n_failed} questions failed while recording; run the command again")
    run = run_policy(prepared, policy)[0]
    return RivalLine(
        name=name,
        kind=kind,
        questions=tuple(recording.question_ids),
        clusters=recording.clusters,
        right=run.values["em"],
        calls=run.ledger.calls,
        tokens=run.ledger.total("tokens"),
        retrievals=run.ledger.total("retrievals"),
    )


def fixed_lines(recording: Recording) -> list[RivalLine]:
    """Return one line for each number of passages; the passages are read in a single call of the plain loop.

    A question with fewer passages is read with all of its passages.

    Args:
        recording: Rounds 0 to R of `RetrievalLoop`; round k reads k passages and does not depend on the rounds before.
    """
    # Position of round k, or of the question's last round if it has fewer.
    last = np.minimum(np.arange(recording.seen.shape[1]), recording.seen.sum(axis=1, keepdims=True) - 1)
    right = np.take_along_axis(recording.column("em"), last, axis=1)
    columns = {kind: recording.column(f"cost.generator.{kind}") for kind in ("calls", *_TOKEN_COSTS)}
    costs = {kind: np.take_along_axis(values, last, axis=1) for kind, values in columns.items()}
    lines = []
    for place, k in enumerate(recording.index.tolist()):
        lines.append(
            RivalLine(
                name="never retrieve" if k == 0 else f"{k} passage{'s' * (k > 1)}, ranked once",
                kind=FIXED,
                questions=tuple(recording.question_ids),
                clusters=recording.clusters,
                right=right[:, place],
                calls=costs["calls"][:, place],
                tokens=np.sum([costs[kind][:, place] for kind in _TOKEN_COSTS], axis=0),
                retrievals=np.full(len(right), float(k > 0)),
            )
        )
    return lines


_TOKEN_COSTS = ("uncached_tokens", "cached_tokens", "output_tokens")


def rivals_table(title: str, lines: Sequence[RivalLine], resampling: Resampling) -> Table:
    """Tabulate the lines, each beside the best fixed number of passages that needs no more calls and no more tokens.

    Args:
        title: Title of the table.
        lines: Fixed lines and others, on the same questions in the same order.
        resampling: Settings of the intervals of the paired differences.

    Raises:
        DataError: Two lines have different questions, or the questions in a different order.
    """
    run = [line for line in lines if not line.why]
    if len({line.questions for line in run}) > 1:
        raise DataError(
            "the lines are about different questions, or in a different order: measure all on the same ones"
        )
    fixed = [line for line in run if line.kind == FIXED]
    draws = resampling.draws(run[0].questions if run[0].clusters is None else run[0].clusters)
    rows = [_rival_row(line, fixed, draws) for line in lines]
    columns = (
        Column("method"),
        Column("kind"),
        Column("right, %", ".1f", scale=100),
        Column("calls", ".2f"),
        Column("tokens", ".0f"),
        Column("retrievals", ".2f"),
        Column("fixed for no more"),
        Column("right, %", ".1f", scale=100),
        Column(f"difference, points [{100 * resampling.level:g} %]", "+.1f", scale=100, interval=True),
        Column("verdict"),
    )
    return Table(title=title, columns=columns, rows=tuple(rows))


def _rival_row(line: RivalLine, fixed: Sequence[RivalLine], draws: Any) -> tuple[Any, ...]:
    if line.why:
        return (line.name, line.kind, None, None, None, None, "", None, "", f"not run: {line.why}")
    means = (line.right.mean(), line.calls.mean(), line.tokens.mean(), line.retrievals.mean())
    best = _cheaper(line, fixed)
    if best is None or best is line:
        verdict = "" if line.kind == FIXED else "nothing fixed is as cheap"
        return (line.name, line.kind, *means, "", None, "", verdict)
    delta = draws.paired(line.right - best.right)
    verdict = "better" if delta.low > 0 else "dominated" if delta.delta <= 0 else "not shown to be better"
    return (line.name, line.kind, *means, best.name, best.right.mean(), delta.triple, verdict)


def _cheaper(line: RivalLine, fixed: Sequence[RivalLine]) -> RivalLine | None:
    """Return the most accurate fixed line that needs no more calls and no more tokens than `line`; among ties, the cheapest.

    Return None if every fixed line needs more.
    """
    allowed = [
        other
        for other in fixed
        if other is not line and other.calls.mean() <= line.calls.mean() and other.tokens.mean() <= line.tokens.mean()
    ]
    return max(allowed, key=lambda other: (other.right.mean(), -other.tokens.mean()), default=None)
