"""The protocol with few judge calls: full-width drafts are recorded and judged once, and every policy is replayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from suffice._version import __version__
from suffice.common.results import jsonable
from suffice.common.tables import Table, figure
from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay import ReplayResult, Row, replay
from suffice.evaluation.results import Evaluation
from suffice.evaluation.statistics import Resampling
from suffice.recordings.recording import Recording
from suffice_papers.paper import origin_table
from suffice_papers.semantic.chance import Chance, against_chance
from suffice_papers.semantic.comparisons import PolicyComparison, compare
from suffice_papers.semantic.convergence import Convergence, converge
from suffice_papers.semantic.data import Drafts, check_apart, embedder_of, metric_of, read_drafts
from suffice_papers.semantic.figures import MARGINS
from suffice_papers.semantic.policies import MAIN, MEMBERS, Replayed, replay_all
from suffice_papers.semantic.protocol_tables import (
    ablations_table,
    chance_table,
    conjecture_table,
    distances_table,
    policies_table,
    policy_margins_table,
    summary_table,
    tests_table,
)
from suffice_papers.semantic.theory import Checked, check_theory, theory_table
from suffice_papers.semantic.tuning import Tuned

_IN_NAME = 0.95
"""A policy with at least this share of its stops at one round is reported as a fixed number of rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticProtocol(Evaluation):
    """The outcome of the protocol on one recording.

    Attributes:
        compared: Every policy on the same drafts, and its differences to the full width.
        chance: The main policies, compared with their own stops permuted over the questions.
        result: The replay from which the verdicts on domination are taken.
        convergence: The test of the conjecture that drafts converge.
        checked: The claims of the theory, checked on this recording.
        command: The command that was run; empty if the protocol was called in Python.
    """

    compared: PolicyComparison
    chance: Mapping[str, Chance]
    result: ReplayResult
    convergence: Convergence
    checked: tuple[Checked, ...]
    command: str

    @property
    def replayed(self) -> Replayed:
        """The replays of every policy on the same drafts."""
        return self.compared.replayed

    @property
    def drafts(self) -> Drafts:
        """The questions of the protocol."""
        return self.replayed.drafts

    @property
    def tuned(self) -> Tuned:
        """The parameters of convergence, and their origin."""
        return self.replayed.tuned

    def points(self, label: str) -> str:
        """Format the quality of a policy."""
        return figure(self.result.row(label).metrics[self.drafts.metric], ".2f", 100)

    def headline(self, label: str) -> str:
        """Summarise a policy: quality, difference, rounds, tokens, and the policy that dominates it, if any."""
        row, baseline, rounds = self.result.row(label), self.compared.baseline, self.replayed.rounds
        delta = self.compared.differences[label][self.drafts.metric]
        parts = [
            (
                f"{label} ({row.rule}) on {self.n} questions: {self.drafts.metric} {self.points(label)} against "
                f"{self.points(baseline)} for {baseline}, "
                f"a difference of {figure((delta.delta, delta.low, delta.high), '+.2f', 100)} points"
            ),
            f"{figure(rounds[label].mean(), '.2f')} rounds instead of {figure(rounds[baseline].mean(), '.2f')}",
        ]
        share = self.compared.saved(label)
        if share is not None:
            direction = "fewer" if share[0] >= 0 else "more"
            parts.append(f"{figure(abs(share[0]), '.0f', 100)} % {direction} {self.replayed.tokens_name}")
        return "; ".join(parts) + f". {self._verdict(row)}{self._in_name(label)}"

    def _in_name(self, label: str) -> str:
        """Return a remark if a policy almost always stops at the same round, like a fixed budget; else ""."""
        rounds, counts = np.unique(self.replayed.rounds[label], return_counts=True)
        n, k = int(counts.max()), int(rounds[np.argmax(counts)])
        never_stops = self.compared.baseline in self.replayed.equal_by_construction(label)
        if n < _IN_NAME * self.n or never_stops:
            return ""
        return f" It is fixed_k({k}) in all but its name: it stops there on {n} of {self.n} questions."

    def _verdict(self, row: Row) -> str:
        name = row.cheapest_match
        if (mixture := row.dominating_mixture) is not None:
            reached = figure(mixture.quality, ".2f", 100)
            return f"DOMINATED: {row.dominated_by} reaches {reached} for the {self._spent(row)} that this policy pays."
        if name is None:
            return f"Not dominated: no fixed number of rounds and no random stopping reaches as much {self.drafts.metric} here."
        reached = f"{name} reaches {self.points(name)} with {self._spent(self.result.row(name))}"
        if row.dominated_by is not None:
            return f"DOMINATED: {reached}, this policy pays {self._spent(row)}."
        return f"Not dominated: the cheapest of at least this quality is {name}; {reached}, this policy pays {self._spent(row)}."

    def _spent(self, row: Row) -> str:
        spent = row.calls.mean if self.result.cost == "calls" else row.costs[self.result.cost]
        if self.result.cost == self.replayed.tokens and row.label in self.replayed.runs:
            spent = float(
                self.replayed.spent(row.label).mean()
            )  # computed as in Table 1, so that both print the same number
        return f"{spent:,.{2 if self.result.cost == 'calls' else 0}f} {self.result.cost}"

    def headlines(self) -> list[str]:
        """Return a sentence for each main policy."""
        return [self.headline(label) for label in MAIN if label in self.replayed.policies]

    def summary(self) -> Table:
        """Return the table of policies without tests, narrow enough for one screen."""
        return summary_table([("", self.compared, self.result)])

    def tables(self) -> list[Table]:
        """Return all tables: Table 1 (every fixed_k first), Table 2, tests, margins, distances, dev, Table 3."""
        dev = self.tuned.table()
        return [
            policies_table(self.compared, self.result),
            chance_table(self.chance, self.replayed),
            ablations_table(self.replayed),
            tests_table(self.compared),
            policy_margins_table(self.compared),
            distances_table(self.convergence, self.tuned.eps),
            conjecture_table(self.convergence),
            *([] if dev is None else [dev]),
            theory_table(self.checked),
            self.provenance(),
        ]

    def provenance(self) -> Table:
        """Return the table of the figures' provenance."""
        embedder, draws = embedder_of(self.drafts.prepared.recording), self.resampling
        named = "not named by the recording" if embedder is None else ", ".join(f"{k} {v}" for k, v in embedder.items())
        facts = (
            ("command", self.command or "called in Python"),
            ("test data", f"{self.n} questions, hash {self.data_hash}"),
            ("convergence", self.tuned.sentence()),
            ("embedder", named),
            ("draws", f"{draws.n_resamples:,}, seed {draws.seed}, over {self.compared.n_clusters} questions"),
            ("ledger", self.result.ledger),
        )
        return origin_table(facts, self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN becomes None."""
        values = {
            "suffice": __version__,
            "command": self.command,
            "metric": self.drafts.metric,
            "n": self.n,
            "n_clusters": self.compared.n_clusters,
            "baseline": self.compared.baseline,
            "data_hash": self.data_hash,
            "ledger": self.result.ledger,
            **self.resampling.to_dict(),
            "headlines": self.headlines(),
            "dominated": {label: self.result.row(label).dominated_by for label in self.replayed.policies},
            "convergence_rule": self.tuned.to_dict(),
            "family": self.compared.family,
            "against_chance": self.chance,
            "conjecture": {**asdict(self.convergence), "verdict": self.convergence.verdict},
            "claims": self.checked,
            "notes": self.notes,
            "tables": self.tables(),
        }
        return {name: jsonable(value) for name, value in values.items()}


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
    """Replay every policy of Semantic Early-Stopping on the same drafts of one recording, and compare the policies.

    Args:
        recording: Test questions: a recording at full width, with `semantic_distance`.
        tuned: The parameters of convergence, from `tune` on other questions, from `published` or from `given`.
        metric: The metric of quality, a column in [0, 1] or `agreement`; None for `information_score`.
        margins: Margins of quality, for non-inferiority and equivalence.
        resampling: Settings of the intervals; its level is also the one-sided confidence of the margins' bounds.
        ledger: `live`, or `published` to charge judges as the paper does; see `suffice.evaluation.replay.replay`.
        command: The command that was run, for the provenance.

    Raises:
        DataError: There is no margin, or `read_drafts` refuses the recording.
        ConfigMismatchError: Dev and test share questions, or their drafts were embedded differently.
    """
    if not margins:
        raise DataError("the protocol tests margins of quality: give at least one, as 0.02")
    check_apart(recording, tuned.seen)
    _check_embedder(recording, tuned)
    drafts = read_drafts(recording, metric_of(recording, metric), ledger=ledger)
    replayed = replay_all(drafts, tuned)
    compared = compare(replayed, margins=margins, resampling=resampling)
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
    main = {label: replayed.policies[label] for label in MAIN if label in replayed.policies}
    notes = [*drafts.notes, *result.notes, *_protocol_notes(replayed, recording, known=known)]
    return SemanticProtocol(
        n=drafts.n,
        resampling=resampling,
        data_hash=result.data_hash,
        compared=compared,
        chance=against_chance(drafts, main, resampling=resampling),
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


def _protocol_notes(replayed: Replayed, recording: Recording, *, known: bool) -> list[str]:
    prepared, notes = replayed.drafts.prepared, []
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
    judge = prepared.recording.signal_components.get("information_gain", "judge:information_score")
    if judge == f"judge:{replayed.drafts.metric}" and "gain" not in replayed.missing:
        notes.append(
            f"the cascade's judge gives {replayed.drafts.metric}, the quality itself: information_gain is its rise, so the cascade "
            "sees what it is judged by"
        )
    if "gain" not in replayed.missing and judge not in prepared.costs.components:
        notes.append(f"the calls of {judge} were not recorded: policies that ask the judge look cheaper than they are")
    return notes
