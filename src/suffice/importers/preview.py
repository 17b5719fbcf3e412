"""The preview of an import: one whole question as it was understood, to be compared with the log."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suffice.common.tables import Column, Table
from suffice.importers.summary import RoundMeans
from suffice.policy.normalizers import DEFAULT_NORMALIZER, MATCH
from suffice.policy.rounds import COST_KINDS

_LONGEST = 80
"""Most characters of a text in a table; the JSON of a preview has more."""

_LONGEST_IN_JSON = 2000
_SCORED = (MATCH, "em", "f1")
_KINDS = {"uncached_tokens": "input tokens"}

USUAL = "; answers are compared by their words"
"""The end of the title of a preview whose answers are compared as usual."""

DIFFERENT = "different answers so far"
"""The heading of the mean number of different answers that a question has up to a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRound:
    """One round as it was understood.

    Attributes:
        answer: The answer as it was extracted; None if there is none.
        reply: The raw text, where it differs from the answer; else None.
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
    """One question as it was understood: the first whose answer changes between rounds, else the first.

    Attributes:
        question: Its text; None if unknown.
        golds: Its gold answers; empty if unknown.
        normalizer: Decides which answers are the same.
        judge: The metric of gold answers by which a decision judges; "" without gold answers.
    """

    question_id: str
    question: str | None
    golds: tuple[str, ...]
    rounds: tuple[PreviewRound, ...]
    normalizer: str
    why: str
    judge: str = ""

    def table(self) -> Table:
        """Return the question as a table, with long texts cut."""
        facts = [f"Question {cut(self.question_id)!r}", *([cut(self.question)] if self.question else [])]
        facts.append(f"gold: {' | '.join(map(cut, self.golds[:3]))}" if self.golds else "no gold answer")
        has_replies = any(item.reply is not None for item in self.rounds)
        metrics = shown_metrics((name for item in self.rounds for name in item.metrics), self.judge)
        kinds = [kind for kind in COST_KINDS if any(kind in item.costs for item in self.rounds)]
        if not any(item.costs.get("cached_tokens", 0) for item in self.rounds):
            kinds = [kind for kind in kinds if kind != "cached_tokens"]
        columns = [Column("round", "d"), Column("answer"), *([Column("reply")] if has_replies else [])]
        columns += [Column(title(name), ".2f") for name in metrics]
        columns += [Column(_KINDS.get(kind, kind.replace("_", " ")), ".4g") for kind in kinds]
        rows = [
            (
                item.round,
                None if item.answer is None else cut(item.answer),
                *([None if item.reply is None else cut(item.reply)] if has_replies else []),
                *(item.metrics.get(name, math.nan) for name in metrics),
                *(item.costs.get(kind, math.nan) for kind in kinds),
            )
            for item in self.rounds
        ]
        is_usual = self.normalizer == DEFAULT_NORMALIZER
        compared = USUAL if is_usual else f"; answers are compared as {self.normalizer!r}, {self.why}"
        return Table(title=f"{'; '.join(facts)}{compared}", columns=tuple(columns), rows=tuple(rows))


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


def means_table(by_round: Sequence[RoundMeans], judge: str) -> Table:
    """Return a line for each round: trajectories, share with an answer, scores, and different answers.

    Of the metrics that compare with gold answers, it has the one that judges.  The share with an answer is left out where it is all, and
    the number with a gold answer where it is all or none.
    """
    own = dict.fromkeys(name for item in by_round for name in item.scores)
    scores = {
        name: [item.scores.get(name, math.nan) if name in own else getattr(item, name) for item in by_round]
        for name in ("em", "f1", MATCH, *own)
    }
    known = {name: values for name, values in scores.items() if not all(map(math.isnan, values))}
    shown = {name: known[name] for name in shown_metrics(known, judge)}
    all_answer = all(item.answered == 1 for item in by_round)
    are_some_scored = any(item.scored not in (0, item.n) for item in by_round)
    return Table(
        title="Means of each round",
        columns=(
            *(Column("round", "d"), Column("n", "d")),
            *([] if all_answer else [Column("answered %", ".1f", scale=100)]),
            *([Column("scored", "d")] if are_some_scored else []),
            *(Column(title(name), ".1f", scale=100) for name in shown),
            Column(DIFFERENT, ".2f"),
        ),
        rows=tuple(
            (
                *(item.round, item.n),
                *([] if all_answer else [item.answered]),
                *([item.scored] if are_some_scored else []),
                *values,
                item.distinct,
            )
            for item, *values in zip(by_round, *shown.values(), strict=True)
        ),
    )


def title(metric: str) -> str:
    """Return the heading of a metric's column."""
    names = {"em": "score (EM)", "f1": "score (F1)", MATCH: "score (match)"}
    return names.get(metric, metric)


def shown_metrics(names: Iterable[str], judge: str) -> list[str]:
    """Return the metrics of a table: those of the log itself, and of those that compare with gold answers the one that judges."""
    return [name for name in dict.fromkeys(names) if name == judge or name not in (*_SCORED, "contains")]


def cut(text: str, most: int = _LONGEST) -> str:
    r"""Return a text on one line, cut visibly if it is long.

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
