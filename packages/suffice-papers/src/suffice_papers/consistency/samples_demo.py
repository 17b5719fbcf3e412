"""`suffice demo samples`: stop votes early, on published samples and panels, offline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from suffice._version import __version__
from suffice.cli import options
from suffice.cli.console import status
from suffice.cli.output import Output, Screen, check_markdown
from suffice.cli.parameters import Setting
from suffice.common.tables import Column, Table, render
from suffice.evaluation.replay import policy_for
from suffice.evaluation.replay.panels import BestSingle, best_single
from suffice.evaluation.statistics import Resampling
from suffice.policy.rounds import Floats
from suffice.policy.seen import id_hash
from suffice.policy.session import Policy
from suffice.recordings import Recording, bundled_recording
from suffice.verdicts.certificates import Certification, Claim, certify
from suffice_papers.multinomial import draws_by_place

_METRIC = "match"
_EPSILON = 0.01
_CREDITS = (
    "Answers: ChatGPT on date understanding, recorded by verify_cot (Ling et al., 2023; CC BY 4.0); Codex programs on AQuA, by "
    "Program of Thoughts (Chen et al., 2023; MIT); Code Llama on CRUXEval, by CRUXEval (Gu et al., 2024; MIT); GPT-4 on the Game of 24, "
    "by Tree of Thoughts (Yao et al., 2023; MIT); 44 models on GSM8K and 51 on CRUXEval, by ZeroEval (Apache-2.0)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vote:
    """A published set of answers, and the rules to certify on it.

    Attributes:
        recording: The name of the bundled recording.
        title: Name in tables.
        family: The rules, in the order of their tests.
        is_panel: True if the answers come from different models.
        checker: The rule of the family that reads a check of each answer, and whose policy returns the checked answer;
            "" if the family has no such rule.
    """

    recording: str
    title: str
    family: tuple[str, ...]
    is_panel: bool = False
    checker: str = ""

    def policies(self, recording: Recording) -> list[Policy]:
        """Return the policies of the family."""
        return [policy_for(recording, rule, **self._changes(rule)) for rule in self.family]

    def _changes(self, rule: str) -> dict[str, str]:
        return {"selector": "max_passed", "name": rule} if rule == self.checker else {}


_VOTES = (
    _Vote(
        recording="samples_date",
        title="ChatGPT, dates",
        family=("settled(10)", "esc(5)", "adaptive_consistency", "lead(4)", "lead(3)", "lead(2)"),
    ),
    _Vote(
        recording="samples_aqua",
        title="AQuA, Codex",
        family=("settled(30)", "adaptive_consistency", "lead(4)", "lead(3)"),
    ),
    _Vote(recording="samples_cruxeval", title="CRUXEval, Code Llama", family=("settled(10)", "lead(3)", "fixed_k(1)")),
    _Vote(
        recording="samples_game24", title="Game of 24, GPT-4", family=("passed >= 1", "lead(3)"), checker="passed >= 1"
    ),
    _Vote(
        recording="panel_gsm8k",
        title="GSM8K, 44 models",
        family=("settled(44)", "lead(4)", "lead(3)", "lead(2)"),
        is_panel=True,
    ),
    _Vote(
        recording="panel_cruxeval",
        title="CRUXEval, 51 models",
        family=("settled(51)", "lead(4)", "lead(3)"),
        is_panel=True,
    ),
)
"""The sets and rules, declared before any figure was computed; rules run from careful to cheap."""


def demo_samples(
    output: Output,
    orders: Annotated[int, Setting("statistics", "orders", min=1, help="Random orders to average figures over.")] = 100,
    markdown: options.Markdown = None,
) -> None:
    """Stop votes among independent answers early.

    Published samples of one model and panels of many, offline: which rules lose nothing, what a certificate says, where
    stopping loses, and where votes are useless.

    Example: suffice demo samples
    """
    check_markdown(markdown)
    outcomes = []
    for vote in _VOTES:
        with status(f"{vote.title}: {orders} orders", quiet=output.as_json):
            outcomes.append(_Outcome.of(vote, bundled_recording(vote.recording), orders))
    tables = [_brief(outcomes), _summary(outcomes, orders)]
    sentences = [item.headline for item in outcomes]
    if markdown is not None:
        markdown.write_text(_page(tables, sentences, orders), encoding="utf-8")
    screen = Screen(
        sentences=sentences,
        tables=tables,
        notes=[_CREDITS],
        aside={"fixed number as good"},
        files={"table": markdown},
        then="suffice import SAMPLES.jsonl --samples -o samples.parquet",
    )
    output.show({item.vote.recording: item.to_dict() for item in outcomes}, screen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """The results of the rules on one set, compared with a single answer and with the best single model.

    Attributes:
        vote: The set and its rules.
        result: The certification of the rules.
        alone: Share of right answers to each question, which is the expected result of a single answer; in the order of
            the certificate.
        single: The result of the best single model of a panel; None for samples of one model.
    """

    vote: _Vote
    result: Certification
    alone: Floats
    single: BestSingle | None

    @classmethod
    def of(cls, vote: _Vote, recording: Recording, orders: int) -> _Outcome:
        claim = Claim(epsilon=_EPSILON, metric=_METRIC, orders=orders, baseline=policy_for(recording, "full"))
        result = certify(recording, vote.policies(recording), claim)
        hashes = result.measured.question_ids
        alone = np.nanmean(np.where(recording.seen, recording.column(_METRIC), np.nan), axis=1)
        single = best_single(recording, _METRIC) if vote.is_panel else None
        if single is not None:
            single = replace(single, half=single.half[_places(recording, hashes)])
        return cls(vote=vote, result=result, alone=alone[_places(recording, hashes)], single=single)

    @property
    def headline(self) -> str:
        place = self.vote.family.index("lead(3)")
        measured, given = self.result.measured, bool(self.result.certified[place])
        proof = "is excluded with 95 % confidence" if given else "is not excluded, so it is not certified"
        full, alone = measured.baseline_values.mean(), self.alone.mean()
        if self.vote.checker:
            checked = self.vote.family.index(self.vote.checker)
            return (
                f"{self.vote.title}: the vote of all {measured.baseline_costs['calls'].mean():.0f} answers is right on {100 * full:.1f} % of "
                f"{self.result.n} questions; checking each answer, and stopping at the first that passes, on "
                f"{100 * measured.values[checked].mean():.1f} % with {measured.costs['calls'][checked].mean():.1f} answers. Votes are "
                "useless here: each answer is another one, and a verifier is needed."
            )
        text = (
            f"{self.vote.title}: stopping at a lead of 3 votes is right on {100 * measured.values[place].mean():.1f} % of "
            f"{self.result.n} questions with {measured.costs['calls'][place].mean():.1f} answers each, all "
            f"{measured.baseline_costs['calls'].mean():.0f} on {100 * full:.1f} %; a loss above "
            f"{100 * _EPSILON:g} point {proof}."
        )
        if not self.vote.is_panel:
            gain = ": the vote gains nothing." if full - alone < _EPSILON else "."
            text += f" One answer alone is right on {100 * alone:.1f} %{gain}"
        if self.single is not None:
            text += (
                f" The best single model, chosen on half of the questions, is right on {100 * self.single.score:.1f} % of the other "
                f"half with one answer each, the lead of 3 there on {100 * measured.values[place][self.single.half].mean():.1f} %."
            )
        return text

    def brief_row(self) -> tuple[Any, ...]:
        """Return the row of the first table: one rule, all answers, a single answer, and the best single model."""
        measured, rule = self.result.measured, self.vote.checker or "lead(3)"
        place = self.vote.family.index(rule)
        return (
            self.vote.title,
            measured.baseline_costs["calls"].mean(),
            measured.baseline_values.mean(),
            self.alone.mean(),
            None if self.single is None else self.single.score,
            rule,
            measured.costs["calls"][place].mean(),
            measured.values[place].mean(),
            "yes" if self.result.certified[place] else "no",
        )

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows of the second table."""
        measured, title = self.result.measured, self.vote.title
        calls = measured.baseline_costs["calls"].mean()
        rows: list[tuple[Any, ...]] = [(title, "all", measured.baseline_values.mean(), "", calls, "", "", "")]
        differences = np.vstack([measured.values, self.alone]) - measured.baseline_values
        deltas = draws_by_place(Resampling(), self.result.n).compare(dict(enumerate(differences)))
        texts = [
            f"{100 * delta.delta:+.2f} [{100 * delta.low:+.2f}, {100 * delta.high:+.2f}]" for delta in deltas.values()
        ]
        rows.append((title, "one alone", self.alone.mean(), texts[-1], 1.0, "", "", ""))
        for place, rule in enumerate(self.vote.family):
            rows.append(
                (
                    title,
                    rule,
                    measured.values[place].mean(),
                    texts[place],
                    measured.costs["calls"][place].mean(),
                    "yes" if self.result.certified[place] else "no",
                    _p_text(float(self.result.p_values[place])),
                    (measured.rivals[place].match or "none").removesuffix(
                        f", {self.result.family.policies[place].selector}"
                    ),
                )
            )
        if self.single is not None:
            rows.append(
                (
                    f"  on {int(self.single.half.sum())} of them",
                    self.single.model,
                    self.single.score,
                    "",
                    1.0,
                    "",
                    "",
                    "",
                )
            )
            place = self.vote.family.index("lead(3)")
            values, calls = (of[place][self.single.half].mean() for of in (measured.values, measured.costs["calls"]))
            rows.append(("", "lead(3)", values, "", calls, "", "", ""))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        single = self.single and {"model": self.single.model, _METRIC: self.single.score}
        return {
            "headline": self.headline,
            "one_alone": float(self.alone.mean()),
            "certificate": self.result.to_dict(),
            "best_single_model": single,
        }


def _p_text(p: float) -> str:
    return "<.001" if p < 0.001 else f"{p:.3f}"  # noqa: PLR2004 - what three digits show


def _places(recording: Recording, hashes: Sequence[str]) -> list[int]:
    """Return the indices, in a recording, of the questions with these hashes."""
    places = {id_hash(question_id): place for place, question_id in enumerate(recording.question_ids)}
    return [places[name] for name in hashes]


def _brief(outcomes: Sequence[_Outcome]) -> Table:
    return Table(
        title="One rule on published samples and panels",
        columns=(
            Column("data"),
            Column("answers", ".0f"),
            Column("all, %", ".1f", scale=100),
            Column("one, %", ".1f", scale=100),
            Column("best model, %", ".1f", scale=100),
            Column("stop at"),
            Column("answers", ".1f"),
            Column("right, %", ".1f", scale=100),
            Column(f"loss <= {100 * _EPSILON:g}"),
        ),
        rows=tuple(item.brief_row() for item in outcomes),
        notes=(
            "of panels a random order, and the best model is chosen on half of the questions and judged on the other half",
            "yes: a loss above 1 point against all answers is excluded with 95 % confidence",
        ),
    )


def _summary(outcomes: Sequence[_Outcome], orders: int) -> Table:
    return Table(
        title=f"Votes that stop early: means over {orders} random orders",
        columns=(
            Column("data"),
            Column("answer by"),
            Column("right, %", ".2f", scale=100),
            Column("against all"),
            Column("answers", ".2f"),
            Column(f"loss <= {100 * _EPSILON:g}"),
            Column("p"),
            Column("fixed number as good"),
        ),
        rows=tuple(row for item in outcomes for row in item.rows()),
        notes=(
            "tied answers count in expectation, and intervals (95 %) are over questions",
            "one alone: the mean of all answers; passed >= 1 returns the answer that passed its check",
            "a panel's members came in random order, and its single model was chosen on the other half of the questions",
        ),
    )


def _page(tables: Sequence[Table], sentences: Sequence[str], orders: int) -> str:
    command = f"suffice demo samples --set orders={orders} --set markdown=docs/results/samples.md"
    written = f"Written by `{command}` (suffice {__version__}), seed 42. {_CREDITS}"
    return "\n\n".join(
        [
            "# Samples and panels",
            written,
            *(f"- {sentence}" for sentence in sentences),
            render(tables, "md"),
        ]
    )
