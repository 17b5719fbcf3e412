"""The judge-efficient protocol: full trajectories once, every policy on identical drafts, each draft judged once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from suffice._version import __version__
from suffice.errors import ConfigMismatchError, DataError
from suffice.papers.semantic.chance import Chance, against_chance
from suffice.papers.semantic.comparisons import PolicyComparison, compare
from suffice.papers.semantic.convergence import Convergence, converge
from suffice.papers.semantic.data import Drafts, check_apart, embedder_of, metric_of, read_drafts
from suffice.papers.semantic.policies import MAIN, MEMBERS, Replayed, replay_all
from suffice.papers.semantic.protocol_tables import (
    ablations_table,
    chance_table,
    conjecture_table,
    margins_table,
    policies_table,
    rounds_table,
    saved,
    tests_table,
)
from suffice.papers.semantic.theory import Checked, check_theory, theory_table
from suffice.papers.semantic.tuning import Tuned
from suffice.replays import ReplayResult, Row, replay
from suffice.results import jsonable
from suffice.statistics import Resampling
from suffice.store.recording import Recording
from suffice.tables import Column, Table, figure

__all__ = ["MARGINS", "SemanticProtocol", "semantic_protocol"]

MARGINS = (0.01, 0.02, 0.05)
"""The published margins of quality."""

_IN_NAME = 0.95
"""Share of stops at one round from which a policy is no more than a fixed number of rounds."""

_POINTS = Column("", ".2f", scale=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticProtocol:
    """Everything that the protocol says about one recording.

    Attributes:
        drafts: The questions.
        tuned: When drafts count as converged, and where that comes from.
        replayed: Every policy on the same drafts.
        compared: Differences to the full width.
        chance: The main policies against their own stops dealt out at random.
        result: The replay, for the verdicts: who dominates whom.
        convergence: The conjecture.
        checked: The claims of the theory on this recording.
        command: How it was made; empty if not by the command line.
        notes: What a reader must know.
    """

    drafts: Drafts
    tuned: Tuned
    replayed: Replayed
    compared: PolicyComparison
    chance: Mapping[str, Chance]
    result: ReplayResult
    convergence: Convergence
    checked: tuple[Checked, ...]
    command: str
    notes: tuple[str, ...]

    def headline(self, label: str) -> str:
        """Return one sentence about a policy: quality, difference, rounds, tokens, and who does as well for less."""
        row, metric = self.result.row(label), self.drafts.metric
        found = self.compared.differences[label]
        delta, rounds = found[metric], float(self.replayed.rounds[label].mean())
        parts = [
            (
                f"{label} ({row.rule}) on {self.drafts.n} questions: {metric} {_POINTS.text(row.metrics[metric])} against "
                f"{_POINTS.text(self.result.row(self.compared.baseline).metrics[metric])} for {self.compared.baseline}, "
                f"a difference of {figure((delta.delta, delta.low, delta.high), '+.2f', 100)} points"
            ),
            f"{figure(rounds, '.2f')} rounds instead of {figure(self.replayed.rounds[self.compared.baseline].mean(), '.2f')}",
        ]
        share = saved(self.replayed, self.compared, label)
        if share is not None:
            parts.append(
                f"{figure(abs(share[0]), '.0f', 100)} % {'fewer' if share[0] >= 0 else 'more'} {self.replayed.tokens_name}"
            )
        return "; ".join(parts) + f". {self._verdict(row)}{self._in_name(label)}"

    def _in_name(self, label: str) -> str:
        """Say so where a policy is a fixed number of rounds in all but its name."""
        rounds, counts = np.unique(self.replayed.rounds[label], return_counts=True)
        most = int(np.argmax(counts))
        k = int(rounds[most])
        if counts[most] < _IN_NAME * self.drafts.n or label in self._silent():
            return ""
        return (
            f" It is fixed_k({k}) in all but its name: it stops there on {counts[most]} of {self.drafts.n} questions."
        )

    def _silent(self) -> list[str]:
        return [
            label
            for label in self.replayed.policies
            if self.compared.baseline in self.replayed.equal_by_construction(label)
        ]

    def _verdict(self, row: Row) -> str:
        name = row.cheapest_match
        if name is None:
            return f"Not dominated: no fixed number of rounds and no random stopping reaches as much {self.drafts.metric} here."
        other = self.result.row(name)
        reached = f"{name} reaches {_POINTS.text(other.metrics[self.drafts.metric])} with {self._spent(other)}"
        if row.dominated_by is not None:
            return f"DOMINATED: {reached}, this policy pays {self._spent(row)}."
        return f"Not dominated: the cheapest of at least this quality is {name}; {reached}, this policy pays {self._spent(row)}."

    def _spent(self, row: Row) -> str:
        spent = row.calls.mean if self.result.cost == "calls" else row.costs[self.result.cost]
        if self.result.cost == self.replayed.tokens and row.label in self.replayed.runs:
            spent = float(
                self.replayed.spent(row.label).mean()
            )  # as in Table 1, to the last bit: one mean, one rounding
        return f"{spent:,.{2 if self.result.cost == 'calls' else 0}f} {self.result.cost}"

    def headlines(self) -> list[str]:
        """Return a sentence for each main policy."""
        return [self.headline(label) for label in MAIN if label in self.replayed.policies]

    def tables(self) -> list[Table]:
        """Return all tables: Table 1 with the whole fixed_k frontier first, Table 2, tests, margins, distances, dev, Table 3."""
        dev = self.tuned.table()
        return [
            policies_table(self.drafts, self.replayed, self.compared, self.result, self.tuned),
            chance_table(self.chance, self.tuned, self.drafts.metric),
            ablations_table(self.drafts, self.replayed, self.tuned),
            tests_table(self.replayed, self.compared, self.tuned),
            margins_table(self.replayed, self.compared, self.tuned, self.drafts.metric),
            rounds_table(self.convergence, self.tuned.eps),
            conjecture_table(self.convergence),
            *([] if dev is None else [dev]),
            theory_table(self.checked),
            self.provenance(),
        ]

    def provenance(self) -> Table:
        """Return where the figures come from."""
        embedder, how = embedder_of(self.drafts.prepared.recording), self.compared.resampling
        rows = [
            ("suffice", __version__),
            ("command", self.command or "made in Python"),
            ("test data", f"{self.drafts.n} questions, hash {self.result.data_hash}"),
            ("convergence", self.tuned.sentence()),
            (
                "embedder",
                "not named by the recording"
                if embedder is None
                else ", ".join(f"{k} {v}" for k, v in embedder.items()),
            ),
            (
                "draws",
                f"{how.n_resamples:,}, seed {how.seed}, over {self.compared.n_clusters} questions",
            ),
            ("ledger", self.result.ledger),
        ]
        return Table(
            title="How this was made", columns=(Column("what"), Column("value")), rows=tuple(rows), notes=self.notes
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN becomes None."""
        data = jsonable(
            {
                "suffice": __version__,
                "command": self.command,
                "metric": self.drafts.metric,
                "n": self.drafts.n,
                "n_clusters": self.compared.n_clusters,
                "baseline": self.compared.baseline,
                "data_hash": self.result.data_hash,
                "ledger": self.result.ledger,
                "headlines": self.headlines(),
                "dominated": {label: self.result.row(label).dominated_by for label in self.replayed.policies},
                "convergence_rule": {
                    "eps": self.tuned.eps,
                    "patience": self.tuned.patience,
                    "how": self.tuned.how,
                    "criterion": self.tuned.criterion,
                    "grid": self.tuned.grid,
                    "n_dev": self.tuned.n,
                    "dev_data_hash": self.tuned.data_hash,
                    "dev_full_width": self.tuned.full,
                    "dev_curve": [asdict(point) for point in self.tuned.curve],
                },
                "family": list(self.compared.family),
                "against_chance": {label: asdict(chance) for label, chance in self.chance.items()},
                "conjecture": {**asdict(self.convergence), "verdict": self.convergence.verdict},
                "claims": [asdict(item) for item in self.checked],
                "notes": list(self.notes),
            }
        )
        assert isinstance(data, dict)
        return {**data, "tables": [table.to_dict() for table in self.tables()]}


def semantic_protocol(
    recording: Recording,
    tuned: Tuned,
    *,
    metric: str | None = None,
    margins: Sequence[float] = MARGINS,
    resampling: Resampling = Resampling(),
    ledger: str = "live",
    command: str = "",
) -> SemanticProtocol:
    """Replay every policy of Semantic Early-Stopping on the identical drafts of one recording, and compare them.

    Args:
        recording: Test questions: a recording at full width, with `semantic_distance`.
        tuned: When drafts count as converged: from `tune` on other questions, `published` or `given`.
        metric: What quality means, a column in [0, 1] or `agreement`; None = `information_score`.
        margins: Of quality, for non-inferiority and equivalence.
        resampling: How intervals are made; its level is also the one-sided confidence of the margins' bounds.
        ledger: `live`, or `published` as the paper charges judges; see `suffice.replays.replay`.
        command: What was run, for the provenance.

    Raises:
        DataError: See `read_drafts`; or no margin.
        ConfigMismatchError: Dev and test share questions, or were embedded differently.
    """
    if not margins:
        raise DataError("the protocol tests margins of quality: give at least one, as 0.02")
    check_apart(recording, tuned.seen)
    _check_embedder(recording, tuned)
    drafts = read_drafts(recording, metric_of(recording, metric), ledger=ledger)
    replayed = replay_all(drafts, tuned)
    compared = compare(drafts, replayed, margins=margins, resampling=resampling)
    known = replayed.tokens == "tokens" and not any(np.isnan(replayed.spent(label)).any() for label in replayed.runs)
    result = replay(
        drafts.prepared.recording,
        list(replayed.policies.values()),
        metrics=(drafts.metric,),
        baseline=compared.baseline,
        resampling=resampling,
        margins=(),
        cost="tokens" if known else "calls",
        ledger=ledger,
    )
    notes = [*drafts.notes, *_notes(drafts, replayed, result, recording, known=known)]
    return SemanticProtocol(
        drafts=drafts,
        tuned=tuned,
        replayed=replayed,
        compared=compared,
        chance=against_chance(
            drafts,
            {label: replayed.policies[label] for label in MAIN if label in replayed.policies},
            resampling=resampling,
        ),
        result=result,
        convergence=converge(drafts, tuned.eps, resampling=resampling),
        checked=check_theory(drafts, replayed),
        command=command,
        notes=tuple(dict.fromkeys(notes)),
    )


def _check_embedder(recording: Recording, tuned: Tuned) -> None:
    here = embedder_of(recording)
    if tuned.embedder is not None and here is not None and dict(tuned.embedder) != dict(here):
        raise ConfigMismatchError(
            f"eps was chosen on drafts embedded with {dict(tuned.embedder)!r}, the test drafts were embedded with "
            f"{dict(here)!r}: distances have another scale there. Embed both with the same embedder"
        )


def _notes(drafts: Drafts, replayed: Replayed, result: ReplayResult, recording: Recording, *, known: bool) -> list[str]:
    notes = list(result.notes)
    if not known:
        notes.append("tokens are not known in every round: policies are judged by calls")
    if replayed.tokens == "output_tokens":
        notes.append("only output tokens are known: what prompts cost is not in the token columns")
    if embedder_of(recording) is None:
        notes.append("the recording does not name its embedder: eps belongs to whatever made these distances")
    if replayed.gold:
        notes.append(
            f"{', '.join(MEMBERS[name] for name in replayed.gold)} reads the gold answer: a policy with it is an oracle, which "
            "no live run can be"
        )
        return notes
    components = drafts.prepared.recording.signal_components
    judge = components.get("information_gain", "judge:information_score")
    if "gain" not in replayed.missing and judge not in drafts.prepared.costs.components:
        notes.append(f"the calls of {judge} were not recorded: policies that ask the judge look cheaper than they are")
    return notes
