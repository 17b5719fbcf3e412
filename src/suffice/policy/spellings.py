"""Choose a comparison for answers that are spelled in two ways, such as 8:05 and 08:05, or ask the user to choose it."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache

from suffice.policy.doubts import FEW, Pairs, unsettled
from suffice.policy.metrics import f1, normalize_answer
from suffice.policy.normalizers import DEFAULT_NORMALIZER, NORMALIZERS
from suffice.policy.numbers_in_text import is_quantity
from suffice.policy.plain_forms import CURRENCY, in_one_form, plain_text

_LONGEST = 300
"""The most characters of a text that is looked at; longer ones are replies or drafts, of which hardly any two are one answer."""

_SHOWN = 30
"""The most characters of an example."""

_NAME = 3
"""The most words of a name after its initial."""

_PADDED = re.compile(r"(?<![\d.,:])0\d+(?!\d|[.:]\d)")
"""A number with a zero in front, which may be an id; in a time of day it is none."""

_VERSION = re.compile(rf"(?<![\d.,$])\d{{1,3}}\.\d{{1,3}}(?![\d.,]*\d|\s?(?:[%$€£¥]|{CURRENCY}))")
"""A number with decimals and no sign of a share or of money in one form."""

_NOTATION = re.compile(r"(?=\S*\d)[^\W\d_]\S*")
"""A word that begins with a letter and has a digit, as a move in chess."""


def reason_of_spellings(pairs: Pairs) -> str:
    r"""Return the reason to compare answers as 'mixed', if `qa` would treat more than a few equal pairs as different; else "".

    Raises:
        UnsettledError: More than a few of these pairs are equal only if zeros are ignored, but the numbers may be ids
            or versions.

    >>> reason_of_spellings([("12\u201317 days", "12-17 days"), ("Oslo", "Rome")]).partition("12-17 days', ")[2]
    "differ in dashes, quotes or blanks alone, which 'qa' would tell apart"
    >>> reason_of_spellings([("8:05", "08:05")])
    "since 1 of 1 pairs, such as '8:05' and '08:05', are one number, amount, time or date in two forms, which 'qa' would tell apart"
    >>> reason_of_spellings([("Oslo", "oslo"), ("8:05", "8:15")])
    ''
    """
    split = _split(pairs)
    if len(split) <= FEW * len(pairs):
        return ""
    doubtful = [pair for pair in split if _may_be_another(*pair)]
    if len(doubtful) > FEW * len(pairs):
        raise unsettled(
            f"{_count(doubtful, pairs)}, are the same only if zeros do not count, as they may in ids and versions",
            ("mixed", DEFAULT_NORMALIZER),
        )
    words = NORMALIZERS[DEFAULT_NORMALIZER]
    of_type = [pair for pair in split if words(plain_text(pair[0])) == words(plain_text(pair[1]))]
    found, way = split, "are one number, amount, time or date in two forms"
    if 2 * len(of_type) >= len(split):
        found, way = of_type, "differ in dashes, quotes or blanks alone"
    return f"since {_count(found, pairs)}, {way}, which {DEFAULT_NORMALIZER!r} would tell apart"


def ask_about_initials(pairs: Pairs) -> None:
    """Raise if pairs share their first letter and no other word, as names may (J. Smith and J. Moss).

    The normalizer `letter` would read such a name as the letter of an option, and so treat the names of a pair as equal.

    Raises:
        UnsettledError: More than a few pairs share only their first letter.
    """
    found = [pair for pair in pairs if _have_one_initial(*pair)]
    if len(found) > FEW * len(pairs):
        question = f"{_count(found, pairs)}, have the same first letter and other words"
        raise unsettled(question, (DEFAULT_NORMALIZER, "letter"))


def ask_about_case(name: str, golds: Collection[str], pairs: Pairs) -> None:
    """Raise if pairs that `name` treats as equal differ only in case, although gold answers distinguish answers by case.

    Gold answers distinguish a pair by case if both of its spellings occur among the gold answers, and both among the
    model's answers. They also do so if they are written in a notation with both patterns of case, such as chess moves:
    Bxc3 and bxc3 are two different moves.

    Raises:
        UnsettledError: More than a few pairs are of this kind.

    >>> ask_about_case("qa", ["Oslo", "Rome"], [("oslo", "Oslo"), ("COVID-19", "Covid-19")])
    """
    key_of = NORMALIZERS[name]
    texts = [(first.strip(), second.strip()) for first, second in pairs]
    apart = [(first, second) for first, second in texts if first != second and first.lower() == second.lower()]
    apart = [pair for pair in apart if key_of(pair[0]) == key_of(pair[1]) and NORMALIZERS["boolean"](pair[0]) is None]
    if len(apart) > FEW * len(pairs):
        written, said = {gold.strip() for gold in golds}, {answer for answer, _ in texts}
        forms = {_form(gold) for gold in written if _NOTATION.fullmatch(gold)}
        are_notation = 2 * sum(_NOTATION.fullmatch(gold) is not None for gold in written) > len(written)
        apart = [
            pair
            for pair in apart
            if (written.issuperset(pair) and said.issuperset(pair))
            or (are_notation and forms.issuperset(map(_form, pair)))
        ]
    if len(apart) > FEW * len(pairs):
        question = f"{_count(apart, pairs)}, differ in case alone, and gold answers use both cases"
        raise unsettled(question, ("exact", name))


def _form(text: str) -> str:
    """Return the pattern of a text: runs of capitals become "A", runs of small letters "a", and runs of digits "9"."""
    return re.sub(r"\d+", "9", re.sub(r"[A-Z]+", "A", re.sub(r"[a-z]+", "a", text)))


def _have_one_initial(first: str, second: str) -> bool:
    if None in (keys := [*map(NORMALIZERS["letter"], (first, second))]) or keys[0] != keys[1]:
        return False
    rests = [{*normalize_answer(text[text.find(" ") + 1 :]).split()} for text in (first, second) if " " in text]
    return len(rests) > 1 and all(0 < len(rest) <= _NAME for rest in rests) and rests[0].isdisjoint(rests[1])


def _split(pairs: Pairs) -> list[tuple[str, str]]:
    """Return the pairs that 'mixed' treats as equal, although `qa` treats them as different and their F1 is below 1.

    Two texts with the same words in a different order, as in dates, have an F1 of 1.
    """
    key_of, words = cache(NORMALIZERS["mixed"]), NORMALIZERS[DEFAULT_NORMALIZER]  # each text is in several pairs
    short = [pair for pair in pairs if pair[0] != pair[1] and max(map(len, pair)) <= _LONGEST]
    apart = [pair for pair in short if words(pair[0]) != words(pair[1])]
    alike = [pair for pair in apart if key_of(pair[0]) == key_of(pair[1]) is not None]
    return [(first, second) for first, second in alike if f1(first, [second]) < 1]


def _may_be_another(first: str, second: str) -> bool:
    """Return True if two texts differ in zeros of numbers that may be ids or versions, such as 007 and 7.

    Two dates, or two quantities, never count.
    """
    if all(map(is_quantity, (first, second))) or None not in map(NORMALIZERS["date"], (first, second)):
        return False
    padded = [sorted(map(int, _PADDED.findall(text))) for text in (first, second)]
    versions = [sorted(_VERSION.findall(in_one_form(text))) for text in (first, second)]
    return padded[0] != padded[1] or (versions[0] != versions[1] and all(versions))


def _count(found: Pairs, pairs: Pairs) -> str:
    first, second = next(iter(found))
    return f"{len(found):,} of {len(pairs):,} pairs, such as {first!r:.{_SHOWN}} and {second!r:.{_SHOWN}}"
