"""The preview of an import: one question as it was read, to compare with the log."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suffice.common.tables import Column, Table
from suffice.importers.rounds.summary import RoundMeans
from suffice.policy.metrics import without_parts
from suffice.policy.normalizers import DEFAULT_NORMALIZER, MATCH, title
from suffice.policy.rounds import COST_KINDS

_LONGEST = 80
"""Most characters of a text in a table; the JSON of a preview has more."""

_LONGEST_IN_JSON = 2000
_SCORED = (MATCH, "em", "f1")
_KINDS = {"uncached_tokens": "input tokens"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRound:
    """One round as it was read.

    Attributes:
        answer: The answer as it was extracted; None if there is none.
        reply: The raw text if it differs from the answer; else None.
        metrics: The known metrics by name, in [0, 1].
        costs: The known costs by kind, summed over components: calls, tokens, seconds.
    """

    round: int
    answer: str | None
    reply: str | None
    metrics: Mapping[str, float]
    costs: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """One question as it was read.

    The first question whose answer changes between rounds is shown; if there is none, the first question.

    Attributes:
        question: Its text; None if unknown.
        golds: Its gold answers; empty if unknown.
        normalizer: Decides which answers are the same.
        judge: The metric on which decisions are based, computed from gold answers; "" without gold answers.
    """

    question_id: str
    question: str | None
    golds: tuple[str, ...]
    rounds: tuple[PreviewRound, ...]
    normalizer: str
    why: str
    judge: str = ""

    @property
    def title(self) -> str:
        """The question and its gold answers, shortened if long, and the normalizer unless it is the default one."""
        asked = "" if self.question in (None, self.question_id) else f": {cut(self.question)}"
        question = f"Question {cut(self.question_id)!r}{asked}"
        question += "" if question[-1] in ".?!" else "."
        right = f"Right answer: {' | '.join(map(cut, self.golds[:3]))}" if self.golds else "No right answer is known"
        is_usual = self.normalizer == DEFAULT_NORMALIZER
        return f"{question} {right}{'' if is_usual else f' (answers are compared as {self.normalizer!r})'}"


def preview_of(rows: Sequence[Mapping[str, Any]], metrics: Sequence[str], normalizer: str, why: str) -> Preview:
    """Return the preview of a question from the rows of its recording."""
    first = rows[0]
    return Preview(
        question_id=str(first["question_id"]),
        question=_limited(first.get("question")),
        golds=tuple(_limited(gold) or "" for gold in first.get("golds") or ()),
        rounds=tuple(_round(row, metrics) for row in rows),
        normalizer=normalizer,
        why=why,
    )


def _round(row: Mapping[str, Any], metrics: Sequence[str]) -> PreviewRound:
    answer, reply = row.get("answer"), row.get("text")
    costs: dict[str, float] = {}
    for name, value in row.items():
        if name.startswith("cost.") and value is not None:
            kind = name.rpartition(".")[2]
            costs[kind] = costs.get(kind, 0.0) + value
    return PreviewRound(
        round=int(row["round"]),
        answer=_limited(answer),
        reply=_limited(reply) if reply is not None and reply.strip() != (answer or "").strip() else None,
        metrics={name: row[name] for name in metrics if row.get(name) is not None},
        costs=costs,
    )


def rounds_table(preview: Preview, by_round: Sequence[RoundMeans], *, details: bool = False) -> Table:
    """Return a table with a row for each round: the preview's question, and the means over all questions.

    Of the metrics based on gold answers, only the one that decisions use is shown.  Without `details`:

    - the tokens of a round are added up
    - columns that are the same in all rounds are left out, and so is the number of different answers
    - if the log has several scores of its own, only their means are shown
    """
    nothing = PreviewRound(round=0, answer=None, reply=None, metrics={}, costs={})
    own = {item.round: item for item in preview.rounds}
    rounds = [own.get(item.round, nothing) for item in by_round]
    metrics = shown_metrics((name for item in rounds for name in item.metrics), preview.judge)
    means = _means(by_round, preview.judge)
    if not details and not preview.judge and len(metrics) > 1:
        means, metrics = {name: means[name] for name in without_parts(means)}, []
    titles = {name: title(name, None if details else means) for name in (*metrics, *means)}
    columns: dict[Column, list[Any]] = {Column("round", "d"): [item.round for item in by_round]}
    columns[Column("answer")] = [None if item.answer is None else cut(item.answer) for item in rounds]
    if any(item.reply is not None for item in rounds):
        columns[Column("reply")] = [None if item.reply is None else cut(item.reply) for item in rounds]
    for name in metrics:
        column = Column("right", ".0f") if name == MATCH else Column(titles[name], ".2f")
        columns[column] = [item.metrics.get(name, math.nan) for item in rounds]
    for name, values in means.items():
        columns[Column(f"{'' if name == MATCH else 'mean '}{titles[name]}, %", ".1f", scale=100)] = values
    if details or len({item.n for item in by_round}) > 1:
        columns[Column("n", "d")] = [item.n for item in by_round]
    if any(item.answered != 1 for item in by_round):
        columns[Column("answered %", ".1f", scale=100)] = [item.answered for item in by_round]
    if any(item.scored not in (0, item.n) for item in by_round):
        columns[Column("scored", "d")] = [item.scored for item in by_round]
    for name in [name for name in means if any(item.known.get(name, item.n) != item.n for item in by_round)]:
        columns[Column(f"n with {titles[name]}", "d")] = [item.known.get(name, 0) for item in by_round]
    if details:
        columns[Column("different answers so far", ".2f")] = [item.distinct for item in by_round]
    columns |= _costs(rounds, details=details)
    return Table(title=preview.title, columns=tuple(columns), rows=tuple(zip(*columns.values(), strict=True)))


def _means(by_round: Sequence[RoundMeans], judge: str) -> dict[str, list[float]]:
    """Return the known means of each shown metric, by round."""
    own = dict.fromkeys(name for item in by_round for name in item.scores)
    means = {
        name: [item.scores.get(name, math.nan) if name in own else getattr(item, name) for item in by_round]
        for name in ("em", "f1", MATCH, *own)
    }
    known = [name for name, values in means.items() if not all(map(math.isnan, values))]
    return {name: means[name] for name in shown_metrics(known, judge)}


def _costs(rounds: Sequence[PreviewRound], *, details: bool) -> dict[Column, list[float]]:
    """Return the known costs of rounds by column; tokens of all kinds are added up without `details`."""
    kinds = [kind for kind in COST_KINDS if any(kind in item.costs for item in rounds)]
    if not any(item.costs.get("cached_tokens", 0) for item in rounds):
        kinds = [kind for kind in kinds if kind != "cached_tokens"]
    tokens = [kind for kind in kinds if kind.endswith("tokens")]
    if details or len(tokens) == 1:
        groups = {_KINDS.get(kind, kind.replace("_", " ")): [kind] for kind in kinds}
    else:
        groups = {"tokens" if kind in tokens else kind: tokens if kind in tokens else [kind] for kind in kinds}
    return {
        Column(name, ",.0f" if name.endswith("tokens") else ".4g"): [
            sum(item.costs.get(kind, math.nan) for kind in group) for item in rounds
        ]
        for name, group in groups.items()
    }


def shown_metrics(names: Iterable[str], judge: str) -> list[str]:
    """Return the metrics to show: all of the log's own, and of those computed from gold answers only `judge`."""
    return [name for name in dict.fromkeys(names) if name == judge or name not in (*_SCORED, "contains")]


def cut(text: str, most: int = _LONGEST) -> str:
    r"""Return a text on one line, visibly shortened if it is long.

    >>> cut("to be, or\nnot to be, that is", 16)
    'to be, or not... (15 more characters)'
    """
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    head = line[: most - 3].rstrip()
    return f"{head}... ({len(line) - len(head):,} more characters)"


def _limited(text: Any) -> str | None:
    if text is None:
        return None
    text = str(text)
    return text if len(text) <= _LONGEST_IN_JSON else f"{text[:_LONGEST_IN_JSON]}... ({len(text):,} characters)"
