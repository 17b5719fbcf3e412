"""Choose the normalizer that compares a recording's answers; if two normalizers would disagree, ask the user."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import chain

from suffice.errors import UnsettledError
from suffice.policy.doubts import FEW, LONG, Pairs, are_codes, differ, say_more_than_numbers, unsettled, with_exact
from suffice.policy.expressions import is_available, looks_mathematical
from suffice.policy.fields import reason_of_records
from suffice.policy.metrics import normalize_answer
from suffice.policy.normalizers import (
    DEFAULT_NORMALIZER,
    NORMALIZERS,
    comma_number,
    is_code,
    is_structured,
    listed_items,
)
from suffice.policy.numbers_in_text import is_number_alone, is_quantity
from suffice.policy.plain_forms import currencies_in, without_currency
from suffice.policy.spellings import ask_about_case, ask_about_initials, reason_of_spellings

MOST = 0.95
"""Least share of the texts that must be code, LaTeX or (without gold answers) numbers to choose that normalizer."""

_SPECIFIC = ("date", "date_day_first", "letter", "number")
"""Normalizers of which one is chosen that reads all gold answers, the first one first."""

_WITH_WORDS = {"number": "mixed", "decimal_comma": "mixed_comma"}
"""For normalizers that read numbers alone, those that count the words and units beside them, too."""

_UNIT = r"[A-Za-z°µ][A-Za-z°/]{0,7}[\d²³]?"
_DECIMAL_COMMA = re.compile(
    r"\s*[-+]?\s*[$€£]?\s*(?:\d{1,3}(?:[.\s]\d{3})+,\d+|\d+,(?:\d{1,2}|\d{4,}))\s*"
    rf"(?:[%€]|{_UNIT})?\s*"
)
_SURE_COMMA = re.compile(
    rf"\s*[-+]?(?:\d{{1,3}}(?:[.\s]\d{{3}})+,\d+\s*(?:[%€]|{_UNIT})?|\d+,\d{{1,2}}\s*(?:[%€]|{_UNIT}))\s*"
)
_DECIMAL_POINT = re.compile(r"(?<![\d.])\d+\.(?!\d{3}(?!\d))\d+|\d,\d{3}(?!\d)")
"""What nobody writes who writes a decimal comma: a point with another number of digits after it than three, or a comma with three."""

_TOLD = 0.05
"""Least share of gold answers that show that a comma is decimal: it follows thousands, or a unit follows its digits."""

_COMMA_AFTER_POINTS = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+,\d")
_LEADING_ZERO = re.compile(r"\s*0\d+\s*")
_LOW_TENS = frozenset({"10", "20", "30"})
"""Decimals with a zero at the end that versions often reach."""

_VERSION = re.compile(r"\s*\d{1,3}\.\d{1,3}\s*")
_QUOTED = re.compile(r"\s*['\"\[{][\s\S]*")
_LISTED = re.compile(r"\s*\[[\s\S]*\]\s*")
_WITH_UNIT = re.compile(rf"\W*\d[\d.,]*\s*{_UNIT}\W*")
_OTHER_CASE = re.compile(r"\s*[A-Za-z]\s*")
_WORD = re.compile(r"[^\W\d_]{2,}")
_PERCENT = re.compile(r"%|\bper ?cent\b")
_NAME = re.compile(r"[^\W_]*[^\W\d_][^\W_]*")
"""What stands beside a number: a word, or a letter with digits such as Q1."""

_SAYS_NOTHING = re.compile(
    r"\b(?:an|the|so|then|thus|hence|therefore|is|are|was|were|be|it|he|she|they|we|there|that|this|of|in|to|and|has|have)\b"
)
"""Words in which two wordings of one answer often differ; a letter alone is none, since gates and grades are called so."""

_SENTENCE, _PHRASE, _HALF = 5, 3, 0.5
"""The fewest words of a sentence that says more than its number, and beside gold answers that are sentences; the least share of these."""

_LONG_SENTENCE = re.compile(rf"(?:\S+\s+){{{LONG - 1}}}\S+")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The normalizer that compares a recording's answers, with the reason for the choice.

    Attributes:
        normalizer: Name of the normalizer.
        why: The reason, to be appended to "answers are compared as NAME, ".
    """

    normalizer: str
    why: str


@dataclass(frozen=True, slots=True)
class _Rival:
    """A rival of the chosen normalizer; it may be meant for a pair if a text (with `both`: each text) matches `looks`."""

    name: str
    looks: re.Pattern[str]
    both: bool = False

    def may_differ(self, first: str, second: str) -> bool:
        looks = self.looks.fullmatch(first) is not None, self.looks.fullmatch(second) is not None
        return all(looks) if self.both else any(looks)


_RIVALS: dict[str, tuple[_Rival, ...]] = {
    "number": (
        _Rival("exact", _LEADING_ZERO),
        _Rival("exact", _VERSION, both=True),
        _Rival("literal", _QUOTED),
        _Rival("mixed", _WITH_UNIT, both=True),
    ),
    "literal": (_Rival("unordered", _LISTED, both=True),),
    "letter": (_Rival("exact", _OTHER_CASE, both=True),),
    "date": (_Rival("date_day_first", re.compile(r"[\s\S]*")),),
}


def chosen_normalizer(golds: Iterable[str], answers: Iterable[str] = (), pairs: Pairs = ()) -> Comparison:
    r"""Return the most specific normalizer that reads all gold answers, with the reason.

    >>> chosen_normalizer(["18.0", "1,200"])
    Comparison(normalizer='number', why='which reads all gold answers')
    >>> chosen_normalizer(["Oslo", "7"], pairs=[("7", "7.0"), ("-7", "7")]).why
    "since 1 of 2 pairs differ in a sign, a decimal point or a bracket alone, which 'qa' would ignore"

    LaTeX expressions are compared by `math` if the extra of that name is installed, else as they are written (`exact`).

    Args:
        golds: The gold answers.
        answers: The model's answers, from which the normalizer is chosen if there are no gold answers.
        pairs: Answers to compare with one another, to see whether two normalizers would disagree.

    Raises:
        UnsettledError: Another normalizer also reads the gold answers and disagrees on more than 1 % of the pairs, or
            the gold answers have decimal commas.
    """
    texts = golds if isinstance(golds, Collection) else [*golds]
    try:
        return _chosen(texts, answers, pairs)
    except UnsettledError as error:
        raise (with_exact(error) if are_codes([*texts]) else error) from None


def _chosen(texts: Collection[str], answers: Iterable[str], pairs: Pairs) -> Comparison:
    if not any(True for _ in texts):
        return _by_answers(answers, pairs)
    if any(map(looks_mathematical, texts)):
        if not is_available():
            return Comparison("exact", "since gold answers in LaTeX need the extra math to be compared by value")
        n = sum(1 for _ in texts)
        read = sum(NORMALIZERS["math"](text) is not None for text in texts)
        if read >= MOST * n:
            return Comparison("math", f"which reads {'all' if read == n else f'{read:,} of {n:,}'} gold answers")
    named = _specific(texts, answers)
    if named is not None and named.normalizer == "number" and say_more_than_numbers(texts, pairs):
        named = None
    records = reason_of_records(texts, pairs) if named is None or named.normalizer == "number" else ""
    if named is not None and not records:
        if named.normalizer == "number":
            _ask_about_thousands("number", pairs)
            _ask_about_sentences(pairs, are_golds=_share(_LONG_SENTENCE.search, texts) > _HALF)
            _ask_about_words("number", pairs)
            named = _by_percent(pairs) or named
        if named.normalizer == "letter":
            ask_about_initials(pairs)
        _ask_if_another_differs(named.normalizer, texts, pairs)
        return named
    _ask_about_comma(texts, pairs)
    chosen = Comparison("mixed", records) if records else _code_or_words(texts, pairs, "which reads all gold answers")
    ask_about_case(chosen.normalizer, texts, pairs)
    _ask_about_decimal_commas(chosen.normalizer, pairs)
    _ask_about_thousands(chosen.normalizer, pairs)
    _ask_about_order(chosen.normalizer, pairs)
    return chosen


def _ask_about_comma(texts: Collection[str], pairs: Pairs) -> None:
    """Raise if all gold answers are numbers and one may have a decimal comma, such as 3,5."""
    with_comma = next(filter(_DECIMAL_COMMA.fullmatch, texts), None)
    if with_comma is None or not all(map(_is_number, texts)):
        return
    is_told = _share(_SURE_COMMA.fullmatch, texts) >= _TOLD and not any(map(_DECIMAL_POINT.search, texts))
    if is_told:
        _ask_about_words("decimal_comma", pairs)
    question = f"gold answers such as {with_comma!r:.40} may have a decimal comma"
    names = (*_with_commas(pairs), "exact", DEFAULT_NORMALIZER)
    raise unsettled(question, names, "decimal_comma" if is_told else "")


def _ask_about_sentences(pairs: Pairs, *, are_golds: bool) -> None:
    """Raise if pairs of sentences with mostly different words would be equal as numbers: each contains only this number.

    If the gold answers are long sentences themselves, as in summaries, pairs with mostly equal words count, too.
    """
    words = [[{*_WORD.findall(text.lower())} for text in pair] for pair in pairs]
    least = _PHRASE if are_golds else _SENTENCE
    apart = [
        pair
        for pair, (first, second) in zip(pairs, words, strict=True)
        if least <= (fewest := min(len(first), len(second)))
        and (are_golds or fewest > 2 * len(first & second))
        and differ("number", DEFAULT_NORMALIZER, *pair)
    ]
    if len(apart) > FEW * len(pairs):
        first, second = apart[0]
        question = f"{len(apart):,} of {len(pairs):,} pairs, such as {first!r:.60} and {second!r:.60}, are sentences with the same number and other words"
        raise unsettled(question, (DEFAULT_NORMALIZER, "number"))


def _ask_about_words(name: str, pairs: Pairs) -> None:
    """Raise if pairs have the same number but differ in other words (LX 200 and BA 200) or in the currency."""
    if found := _beside_other_words(name, pairs):
        first, second = found[0]
        question = f"{len(found):,} of {len(pairs):,} pairs, such as {first!r:.40} and {second!r:.40}, have the same number beside other words or signs"
        is_told = all(is_quantity(text) for pair in pairs for text in pair)
        raise unsettled(question, (name, _WITH_WORDS[name]), _WITH_WORDS[name] if is_told else "")


def _beside_other_words(name: str, pairs: Pairs) -> list[tuple[str, str]]:
    """Return the pairs with equal numbers but different words or currencies; if only a few pairs are like this, return [].

    Words only count as different if each text of the pair has a word that the other text lacks.
    """
    key_of = NORMALIZERS[name]
    same = [pair for pair in pairs if key_of(pair[0]) == key_of(pair[1]) is not None]
    apart = [pair for pair in same if differ(name, _WITH_WORDS[name], *pair)]
    found = [pair for pair in apart if _have_other_words(*pair) or _have_other_currencies(*pair)]
    return found if len(found) > FEW * len(pairs) else []


def _with_commas(pairs: Pairs) -> list[str]:
    """Return `decimal_comma`; if pairs differ only in words or units, add the normalizer that also compares words and units."""
    name = "decimal_comma"
    return [name, _WITH_WORDS[name]] if _beside_other_words(name, pairs) else [name]


def _have_other_words(first: str, second: str) -> bool:
    """Return True if each text has a word that the other text lacks; "%" counts as a word, currencies and "the" do not."""
    texts = (_PERCENT.sub(" percent ", without_currency(text).lower()) for text in (first, second))
    own, other = ({*_NAME.findall(_SAYS_NOTHING.sub(" ", text))} for text in texts)
    return bool(own - other and other - own)


def _have_other_currencies(first: str, second: str) -> bool:
    own, other = currencies_in(first), currencies_in(second)
    return bool(own and other and own != other)


def _ask_about_decimal_commas(name: str, pairs: Pairs) -> None:
    """Raise if some pairs with a text such as 1.234,5 kg are equal only if the comma is the decimal point."""
    key_of = NORMALIZERS[name]
    written = [pair for pair in pairs if any(map(_COMMA_AFTER_POINTS.search, pair))]
    apart = [pair for pair in written if comma_number(pair[0]) == comma_number(pair[1]) is not None]
    apart = [pair for pair in apart if key_of(pair[0]) != key_of(pair[1])]
    if len(apart) > FEW * len(pairs):
        first, second = apart[0]
        question = f"{len(apart):,} of {len(pairs):,} pairs, such as {first!r:.40} and {second!r:.40}, are equal if the comma is the decimal point"
        raise unsettled(question, (*_with_commas(pairs), name))


def _ask_about_order(name: str, pairs: Pairs) -> None:
    """Raise if pairs such as "red; blue" and "blue; red" list the same items in a different order."""
    items = [tuple(map(tuple, map(listed_items, pair))) for pair in pairs if pair[0] != pair[1]]
    several = [pair for pair in items if min(map(len, pair)) > 1]
    apart = [
        pair for pair in several if sorted(map(normalize_answer, pair[0])) == sorted(map(normalize_answer, pair[1]))
    ]
    apart = [pair for pair in apart if [*map(normalize_answer, pair[0])] != [*map(normalize_answer, pair[1])]]
    if name != "unordered" and len(apart) > FEW * len(pairs):
        first, second = (", ".join(own) for own in apart[0])
        question = f"{len(apart):,} of {len(pairs):,} pairs, such as {first!r:.40} and {second!r:.40}, list the same in another order"
        raise unsettled(question, ("unordered", name))


def _ask_about_thousands(name: str, pairs: Pairs) -> None:
    """Raise if pairs such as 5.141 and 5141 are equal only if points separate thousands.

    Nothing is raised if more than a few texts have a decimal point. Texts that are not numbers are ignored.
    """
    number, comma = NORMALIZERS["number"], comma_number
    apart = [pair for pair in pairs if "." in pair[0] + pair[1] and number(pair[0]) != number(pair[1])]
    alike = [pair for pair in apart if comma(pair[0]) is not None and comma(pair[0]) == comma(pair[1])]
    if len(alike) <= FEW * len(pairs):
        return
    decimals = sum(number(text) is not None and comma(text) is None for pair in pairs for text in pair)
    if decimals <= FEW * len(alike):
        first, second = alike[0]
        question = f"points may separate thousands, as in {first!r:.40} beside {second!r:.40}"
        raise unsettled(question, (*_with_commas(pairs), name))


def _by_percent(pairs: Pairs) -> Comparison | None:
    """Return the normalizer `percent` if more than a few pairs, such as 39 % and 0.39, are equal only under it; else None.

    Raise if there are also pairs with a percent sign that are equal only if 39 % is read as 39.
    """
    apart = [pair for pair in pairs if "%" in pair[0] + pair[1] and differ("number", "percent", *pair)]
    alike = [pair for pair in apart if len({*map(NORMALIZERS["percent"], pair)}) == 1]
    if len(alike) <= FEW * len(pairs):
        return None
    if len(apart) - len(alike) > FEW * len(alike):
        first, second = alike[0]
        raise unsettled(
            f"percentages and fractions are both there, such as {first!r:.40} and {second!r:.40}", ("percent", "number")
        )
    return Comparison("percent", "since percentages equal fractions: 39 % is 0.39")


def _specific(texts: Collection[str], answers: Iterable[str]) -> Comparison | None:
    """Return the most specific normalizer that reads all gold answers; None if no specific normalizer reads them all."""
    why = "which reads all gold answers"
    if any(map(_QUOTED.fullmatch, texts)) and _share(is_code, texts) >= MOST:
        return Comparison("literal", why)
    if _share(is_structured, texts) >= MOST:  # a query is more than the one number in it
        return Comparison("literal", why)
    name = next((name for name in _SPECIFIC if _reads_all(name, texts)), None)
    if name == "date" and _reads_all("date_day_first", texts):
        said = [*answers]
        if _share(NORMALIZERS["date_day_first"], said) > _share(NORMALIZERS["date"], said):
            return Comparison("date_day_first", f"{why}, and more answers than 'date'")
    if name is None or (name == "letter" and _reads_none(name, answers)):  # a letter may be a word, too
        return None
    return Comparison(name, why)


def _reads_none(name: str, answers: Iterable[str]) -> bool:
    """Return True if there are answers but the normalizer reads none of them."""
    first = next(iter(texts := iter(answers)), None)
    return first is not None and all(NORMALIZERS[name](text) is None for text in chain([first], texts))


def _reads_all(name: str, texts: Iterable[str]) -> bool:
    return all(NORMALIZERS[name](text) is not None for text in texts)


def _is_number(text: str) -> bool:
    return is_number_alone(text) or any(form.fullmatch(text) for form in (_DECIMAL_COMMA, _WITH_UNIT))


def guess_normalizer(golds: Iterable[str], answers: Iterable[str] = ()) -> str:
    r"""Return the normalizer that fits `golds`, or `answers` if `golds` is empty; unlike `chosen_normalizer`, compare no pairs.

    >>> guess_normalizer(["A", "(C)"]), guess_normalizer(["05/01/2021"]), guess_normalizer(["True", "False"])
    ('letter', 'date', 'qa')
    >>> guess_normalizer(["Oslo", "7"]), guess_normalizer([])
    ('qa', 'qa')
    >>> guess_normalizer(["[1, 2]", "'-'"]), guess_normalizer(["def f(x):\n    return -x"])
    ('literal', 'literal')
    >>> guess_normalizer([], answers=["-5", "5.0", "$1,200"])
    'number'
    """
    return chosen_normalizer(golds, answers).normalizer


def merged_by_words(pairs: Pairs) -> int:
    """Count the pairs that `qa` treats as equal although their signs, decimal points or brackets differ."""
    key_of = NORMALIZERS[DEFAULT_NORMALIZER]
    return sum(
        key_of(first) == key_of(second) and differ(DEFAULT_NORMALIZER, "mixed", first, second)
        for first, second in pairs
        if first != second
    )


def _by_answers(answers: Iterable[str], pairs: Pairs) -> Comparison:
    """Choose the normalizer from the answers, if there are no gold answers; prose with a number does not count as number."""
    texts = answers if isinstance(answers, Collection) else [*answers]
    why = "since there are no golds, and it reads nearly all answers"
    if _share(is_number_alone, texts) >= MOST:
        _ask_if_another_differs("number", texts, pairs)
        _ask_about_thousands("number", pairs)
        return _by_percent(pairs) or Comparison("number", why)
    chosen = _code_or_words(texts, pairs, why)
    return (
        Comparison(DEFAULT_NORMALIZER, "since there are no golds")
        if chosen.normalizer == DEFAULT_NORMALIZER
        else chosen
    )


def _code_or_words(texts: Collection[str], pairs: Pairs, why: str) -> Comparison:
    if any(map(is_structured, texts)) and _share(is_code, texts) >= MOST:
        return Comparison("literal", why)
    n = len(pairs)
    if _reads_all("boolean", texts) and sum(differ(DEFAULT_NORMALIZER, "boolean", *pair) for pair in pairs) > FEW * n:
        return Comparison("boolean", why)
    merged = merged_by_words(pairs)
    if merged > FEW * n:
        differing = f"since {merged:,} of {n:,} pairs differ in a sign, a decimal point or a bracket alone"
        return Comparison("mixed", f"{differing}, which {DEFAULT_NORMALIZER!r} would ignore")
    halves = sum(_is_half_right(*pair) for pair in pairs)
    if halves > FEW * n:
        return Comparison(
            "mixed", f"since {halves:,} of {n:,} pairs are other numbers with the same unit, and are not half right"
        )
    if spelled := reason_of_spellings(pairs):
        return Comparison("mixed", spelled)
    return Comparison(DEFAULT_NORMALIZER, why)


def _is_half_right(first: str, second: str) -> bool:
    """Return True if two texts are different quantities, such as 5 km and 7 km; F1 would count their common unit as half right."""
    both = first != second and is_quantity(first) and is_quantity(second)
    return both and NORMALIZERS["mixed"](first) != NORMALIZERS["mixed"](second)


def _ask_if_another_differs(name: str, texts: Collection[str], pairs: Pairs) -> None:
    """Raise if `texts` may need a different normalizer than `name`, and the two disagree on more than 1 % of the pairs."""
    if name == "letter" and (all(map(str.isupper, texts)) or all(map(str.islower, texts))):
        return
    for rival in _RIVALS.get(name, ()):
        if rival.looks is _LEADING_ZERO and _share(_LEADING_ZERO.fullmatch, texts) <= FEW:
            continue  # leading zeros that only the model writes are not part of an id
        if rival.looks is _VERSION and not (_share(_VERSION.fullmatch, texts) >= MOST and _are_versions(texts)):
            continue
        if not _reads_all(rival.name, texts):
            continue
        apart = [pair for pair in pairs if rival.may_differ(*pair) and differ(name, rival.name, *pair)]
        if len(apart) > FEW * len(pairs):
            first, second = apart[0]
            is_told = rival.name == "mixed" and all(is_quantity(text) for pair in pairs for text in pair)
            raise unsettled(
                f"{len(apart):,} of {len(pairs):,} pairs of answers, such as {first!r:.40} and {second!r:.40}, are the same or not "
                f"depending on whether answers are compared as {name!r} or as {rival.name!r}",
                (name, rival.name),
                rival.name if is_told else "",  # every answer names its unit
            )


def _are_versions(texts: Iterable[str]) -> bool:
    """Return True if decimals such as 3.9 and 3.10 look like versions rather than measured numbers.

    Measured numbers of equally many decimals may end in any digit. Otherwise they end in a zero only as padding (78.50),
    and few versions have parts as large as 50. If 3.2 and 3.20 both occur, they are two versions.
    """
    versions = [text.strip() for text in texts if _VERSION.fullmatch(text)]
    known = [text.partition(".")[2] for text in versions]
    longer = {text.removesuffix("0") for text in versions if text.partition(".")[2] in _LOW_TENS}
    if sum(text in longer for text in versions) > FEW * len(versions):
        return True
    ended = [decimals for decimals in known if decimals.endswith("0") and decimals.strip("0")]
    low = sum(decimals in _LOW_TENS for decimals in ended)
    is_fixed = len({*map(len, known)}) == 1
    return 2 * low > len(ended) > FEW * len(known) and not (is_fixed and 2 * len(ended) <= len(known))


def _share(holds: Callable[[str], object], texts: Iterable[str]) -> float:
    """Return the share of texts for which `holds` returns a true value; 0 if there are no texts."""
    n = true = 0
    for text in texts:
        n += 1
        true += bool(holds(text))
    return true / n if n else 0.0
