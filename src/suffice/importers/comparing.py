"""Choose the normalizer that compares the answers of an imported run, and give the reason.

If the user's options do not name a normalizer, the answers and the gold answers decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from suffice.common.tables import CAUTION, counted
from suffice.importers.importers import is_of_own_loop
from suffice.importers.tables.parted_run import PartedRun
from suffice.policy.comparisons import Comparison, chosen_normalizer, merged_by_words
from suffice.policy.doubts import FEW, Pairs
from suffice.policy.expressions import is_available, looks_mathematical
from suffice.policy.normalizers import DEFAULT_NORMALIZER, MATCH, NORMALIZERS, Grouping, normalizer_of

_PAIRS = 20_000
"""The most pairs of answers that are compared to see whether two normalizers differ."""

_LISTS = "since they are lists: the order of their items does not count, unless --set normalizer=literal says so"


def comparison_of(run: PartedRun, options: Mapping[str, Any]) -> Comparison:
    """Return the normalizer of a run and the reason for it, used both in the preview and in the recording.

    Raises:
        UnsettledError: Two normalizers are possible for the gold answers, with different results; the option `normalizer` decides.
    """
    given = options.get("normalizer")
    if given is not None:
        return Comparison(given, "as chosen for this log")
    if not (options.get("samples") or is_of_own_loop(run.source)):
        return Comparison(DEFAULT_NORMALIZER, "as in the paper of the run")
    golds = run.texts("golds")
    if run.list_answers:
        if all(gold.startswith("[") for gold in golds):
            return Comparison("unordered", _LISTS)
        return Comparison(DEFAULT_NORMALIZER, "since gold answers are no lists, as answers are")
    return chosen_normalizer(golds, run.texts("answer"), run.pairs(_PAIRS))


def comparison_metadata(options: Mapping[str, Any], comparison: Comparison) -> dict[str, Any]:
    """Return a recording's metadata about the comparison of its answers."""
    stored = {"normalizer": comparison.normalizer, "normalizer_why": comparison.why}
    if options.get("samples"):
        return {"exchangeable": True, **stored}
    return stored if "normalizer" in options or comparison.normalizer != DEFAULT_NORMALIZER else {}


def comparison_notes(run: PartedRun, options: Mapping[str, Any], comparison: Comparison) -> list[str]:
    """Return the notes on the comparison of answers."""
    notes = []
    name, golds = comparison.normalizer, run.texts("golds")
    if not is_available() and name != "math" and any(map(looks_mathematical, golds)):
        notes.append(
            "the gold answers look like LaTeX: to compare expressions by their value, run  pip install '.[math]'  in a checkout, and import with "
            "--set normalizer=math"
        )
    compared = f"answers are compared as {name!r}, {comparison.why}"
    if options.get("samples"):
        notes.append(f"the rounds of a question are independent samples; {compared}")
    elif name != DEFAULT_NORMALIZER:
        other = f"; --set normalizer={DEFAULT_NORMALIZER} compares them as in question answering"
        notes.append(compared + ("" if "normalizer" in options else other))
    if (
        name != DEFAULT_NORMALIZER
        and not options.get("samples")
        and MATCH in run.schema.names
        and any(True for _ in golds)
    ):
        notes.append(f"the log's own score {MATCH!r} is replaced by this comparison with the gold answers")
    if "normalizer" in options:
        notes += _unread_golds(name, run)
    if name == DEFAULT_NORMALIZER and any(True for _ in golds):
        pairs = run.pairs(_PAIRS)
        merged = merged_by_words(pairs)
        if "normalizer" not in options:
            notes += _other_numbers(pairs)
        elif merged > FEW * len(pairs):
            notes.append(
                f"{merged:,} of {len(pairs):,} pairs of answers are the same as {name!r}, though their signs, decimal points or "
                "brackets differ; --set normalizer=mixed tells them apart"
            )
    return notes


def _other_numbers(pairs: Pairs) -> list[str]:
    """Note pairs of different numbers that count as equal, because they differ only in decimal points or signs.

    The note is for logs in which such pairs are too rare to choose a normalizer that distinguishes the numbers.
    """
    key_of, number = NORMALIZERS[DEFAULT_NORMALIZER], NORMALIZERS["number"]
    same = [pair for pair in pairs if pair[0] != pair[1] and key_of(pair[0]) == key_of(pair[1])]
    apart = [pair for pair in same if None not in (own := [*map(number, pair)]) and own[0] != own[1]]
    if not apart:
        return []
    first, second = apart[0]
    examples = f"such as {first!r:.40} and {second!r:.40}"
    return [
        f"{counted(len(apart), 'pair')} of answers, {examples}, count as the same, as their digits do: --set normalizer=mixed tells them apart"
    ]


def _unread_golds(name: str, run: PartedRun) -> list[str]:
    """Note the share of questions with gold answers that the chosen normalizer cannot read."""
    key_of = normalizer_of(name)
    if isinstance(key_of, Grouping):
        return []
    first = [golds[0] if all(key_of(gold) is None for gold in golds) else "" for golds in _golds_of_questions(run)]
    unread = [*filter(None, first)]
    if not unread:
        return []
    share = len(unread) / len(first)
    warns = CAUTION if share > 1 / 2 else ""
    return [
        f"{warns}{share:.0%} of the questions have a gold answer, such as {unread[0]!r:.40}, that cannot be read as {name!r}: no answer equals it"
    ]


def _golds_of_questions(run: PartedRun) -> Iterator[list[str]]:
    """Yield the gold answers of each question that has some."""
    before = None
    for part in run.tables(["question_id", "golds"]):
        for row in part.to_pylist():
            golds = [gold for gold in row["golds"] or () if gold and gold.strip()]
            if golds and row["question_id"] != before:
                yield golds
            before = row["question_id"]
