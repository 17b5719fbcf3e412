"""Compare two folders of generated results figure by figure.

python scripts/compare_results.py OLD NEW    exit code 1 if a figure differs, or a table or a row is missing on one side

Markdown tables are aligned by heading, title, row label and column, JSON by its keys, and the numbers of the prose by
heading.  Whole numbers and words must be the same; numbers with decimals may differ by one in the last printed digit, and
numbers in JSON by one part in a billion, and how many do is said.  Pages that only one folder has are listed, and are no
difference.  What is not compared stands in `IGNORED`, each with its reason.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

RELATIVE = 1e-9
"""How far apart, relative to the larger, two numbers of JSON may be."""

_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?![\w])")
_FIGURE = re.compile(rf"\b[0-9a-f]{{16,64}}\b|{_NUMBER.pattern}")
"""A number, or the hash of data or weights."""

_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_CELLS = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True)
class Ignored:
    """What is not compared.

    Attributes:
        page: A file name, with wildcards.
        place: What the place of a figure matches: headings, title, row and column, or the keys of JSON.
        reason: Why.
    """

    page: str
    place: str
    reason: str


IGNORED = (
    Ignored("*.json", r"^suffice$", "the version that wrote the page"),
    Ignored("*.json", r"\bcommand$", "commands may be renamed"),
    Ignored("*", r"> suffice >", "the version that wrote the page"),
    Ignored("*", r"> command >", "commands may be renamed"),
    Ignored("*", r"> (seconds|wall|time)\b", "timings differ from run to run"),
    Ignored("gates*.md", r"> (to decide, ms|fit, s)$", "timings differ from run to run"),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure, table or row that differs; `exact` is false where only the last printed digit does."""

    page: str
    place: str
    old: str
    new: str
    exact: bool = True

    def __str__(self) -> str:
        return f"{self.page}: {self.place}: {self.old} -> {self.new}"


def figures(text: str) -> dict[str, str]:
    r"""Return the cells of every Markdown table of a page by place, and headings, titles and the figures of the prose.

    >>> figures("| rule | F1 |\n| --- | ---: |\n| tasr | 36.8 |\n\nOf 200 questions.")
    {'tasr > F1': '36.8', ' > prose': '200'}
    """
    found: dict[str, str] = {}
    prose: dict[str, list[str]] = {}
    heading, title, columns, seen = "", "", list[str](), Counter[str]()
    for line in _FENCED.sub("", text).replace("[-, -]", "[n/a]").splitlines():
        if line.startswith("#"):
            heading, title = _bare(line.lstrip("# ")), ""
            found[f"{heading} > heading"] = line.lstrip("# ")
        elif re.fullmatch(r"\*\*.+\*\*", line.strip()):
            title = _bare(line.strip().strip("*"))
            found[f"{heading} > {title} > title"] = line.strip().strip("*")
        elif line.startswith("|"):
            cells = [cell.strip() for cell in _CELLS.split(line.strip()[1:-1])]
            if not columns:
                columns = cells
            elif not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                row = " > ".join(filter(None, [heading, title, cells[0]]))
                seen[row] += 1
                row += f" #{seen[row]}" if seen[row] > 1 else ""
                found |= {f"{row} > {column}": cell for column, cell in zip(columns[1:], cells[1:], strict=False)}
            continue
        elif line.strip():
            prose.setdefault(heading, []).append(line.strip())
        columns = []
    for name, lines in prose.items():
        numbers = _FIGURE.findall(" ".join(lines))
        if numbers:
            found[f"{name} > prose"] = " ".join(numbers)
    return found


def _bare(title: str) -> str:
    """Return a title without its numbers, which are figures: they are not what it is found by."""
    return _NUMBER.sub("_", title)


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested JSON by place; objects in a list are found by their label or name."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            name = item.get("label") or item.get("name") if isinstance(item, Mapping) else None
            yield from leaves(item, f"{place}[{name or position}]")
    else:
        yield place, value


def compare_numbers(old: str, new: str) -> bool | None:
    """Return whether two texts hold the same words and numbers: None if they are equal but for a last digit.

    >>> compare_numbers("36.8 [1.0, 2.0]", "36.8 [1.0, 2.1]"), compare_numbers("36.8", "37.0"), compare_numbers("3", "4")
    (None, False, False)
    """
    if old == new:
        return True
    if _NUMBER.sub("_", old) != _NUMBER.sub("_", new):
        return False
    for left, right in zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True):
        a, b = (Decimal(text.replace(",", "")) for text in (left, right))
        exponent = max(int(number.as_tuple().exponent) for number in (a, b))
        if a != b and (exponent == 0 or abs(a - b) > Decimal(1).scaleb(exponent)):
            return False
    return None


def _same_value(old: Any, new: Any) -> bool | None:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (old, new))
    if not numbers or old == new or all(isinstance(value, int) for value in (old, new)):
        return bool(old == new)
    return None if math.isclose(old, new, rel_tol=RELATIVE) else False


def compare_pages(page: str, old: str, new: str) -> list[Difference]:
    """Return where two versions of a page differ."""
    if page.endswith(".json"):
        before, after = (dict(leaves(json.loads(text))) for text in (old, new))
        same = _same_value
    else:
        before, after = figures(old), figures(new)
        same = compare_numbers
    rules = [rule for rule in IGNORED if fnmatch(page, rule.page)]
    found = []
    for place in dict.fromkeys([*before, *after]):
        if any(re.search(rule.place, place) for rule in rules):
            continue
        if place not in before or place not in after:
            held = before.get(place, after.get(place))
            there, here = ("missing", str(held)) if place not in before else (str(held), "missing")
            found.append(Difference(page, place, there, here))
            continue
        verdict = same(before[place], after[place])
        if verdict is not True:
            found.append(Difference(page, place, str(before[place]), str(after[place]), exact=verdict is False))
    return found


def compare_folders(old: Path, new: Path) -> tuple[list[Difference], list[str], list[str]]:
    """Return all differences, the pages that both folders have, and those that only one has."""
    names = [{path.name for path in folder.iterdir() if path.suffix in (".md", ".json")} for folder in (old, new)]
    both = sorted(names[0] & names[1])
    texts = ((name, (old / name).read_text("utf-8"), (new / name).read_text("utf-8")) for name in both)
    return [d for page in texts for d in compare_pages(*page)], both, sorted(names[0] ^ names[1])


def main(arguments: list[str]) -> int:
    """Compare, print and return the exit code."""
    if len(arguments) != 2 or not all(Path(name).is_dir() for name in arguments):  # noqa: PLR2004
        sys.stderr.write("usage: compare_results.py OLD NEW, two folders\n")
        return 2
    found, both, single = compare_folders(*map(Path, arguments))
    wrong = [difference for difference in found if difference.exact]
    lines = [str(difference) for difference in wrong]
    for page in both:
        strict, slight = (sum(d.page == page and d.exact is exact for d in found) for exact in (True, False))
        told = f"{strict} differences" if strict else "equal"
        lines.append(f"{page}: {told}" + (f", {slight} in the last digit" if slight else ""))
    lines += [f"{page}: only in one folder, not compared" for page in single]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
