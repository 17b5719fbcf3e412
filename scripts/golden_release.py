"""Compare what the installed `suffice` computes with what release 0.4.0 computed, figure by figure.

    python -m scripts.golden_release --check                    every case; prints differences and exits with 1
    python -m scripts.golden_release --check --only replay_evidence
    python -m scripts.golden_release --accept                   keep the new values of all differences that are expected
    python -m scripts.golden_release --write                    write the golden files; on release 0.4.0 alone

The golden files in `tests/golden/release` hold the figures of 0.4.0 and are not written again.  A change by intent is an
entry of `expected.toml` beside them, which says since which step and why; `accepted.json` keeps the values since then:

    [[expected]]
    step = "draws by question"
    why = "Intervals no longer depend on the order of rows."
    paths = ["replay_*/interval/*"]

A path is `case/key/...`; `*` stands for any text, slashes among it.  Left out are durations, dates, versions, hashes and
folders; floats are equal within 1e-9 of their size, 1e-4 in the demos, which run an embedded model.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os.path import commonprefix
from pathlib import Path
from typing import Any

from scripts.golden_bench import ROOT, checksum
from scripts.golden_cases import CASES, results

FOLDER = ROOT / "tests" / "golden" / "release"
TOLERANCE, KERNELS = 1e-9, 1e-4
"""How far two floats may be apart, relative to the larger one."""
LEFT_OUT = re.compile(
    r"suffice|said|versions|seconds|.*_seconds|latency.*|.*(hash|digest|fingerprint)|recorded_at|.*_at|made_on|dates?"
)
"""The keys whose values differ between runs or releases without a meaning."""
SAME = (
    (re.compile(r"\b0\.\d+\.\d+(\.dev\d+|rc\d+)?\b(?=['\" ,)]|$)"), "VERSION"),
    (re.compile(r"(?<![\w.])(?=\d*[a-f])[0-9a-f]{16,64}\b"), "HASH"),
    (re.compile(r"(?<![\w/])/(?:[\w.-]+/)+"), "FOLDER/"),
    (re.compile(r"\d+(?:\.\d+)? (?:s|ms|seconds?)\b"), "N s"),
    (re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:[\d:.]+(?: ?UTC|Z|\+[\d:]+)?)?"), "DATE"),
)
"""What takes the place of versions, hashes, folders, durations and dates in texts."""
LONG = 24
"""Lists of more numbers or texts than this are kept as their length, first items and sums."""
KEYS = ("label", "policy", "name", "rule", "column", "title", "ours")
"""The first of these that tells the items of a list apart is their place in a path, in the place of a number."""


class Absent:
    """The value where there is none."""

    def __repr__(self) -> str:
        """Return what a difference shows."""
        return "nothing"


ABSENT = Absent()


@dataclass(frozen=True)
class Difference:
    """A value that is not as it was.

    Attributes:
        path: Where it is, as ``case/key/...``.
        before: The value of 0.4.0.
        after: The value now.
    """

    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        """Return one line, its values cut; of two long texts what surrounds the first difference."""
        texts = [value for value in (self.before, self.after) if isinstance(value, str)]
        begin = len(commonprefix(texts)) - 30 if len(texts) == 2 else 0  # noqa: PLR2004, RUF071 - characters of both
        before, after = (value[begin:] if begin > 0 else value for value in (self.before, self.after))
        return f"{self.path}: {_cut(before)} -> {_cut(after)}"


@dataclass(frozen=True)
class Expected:
    """A change by intent.

    Attributes:
        step: Since when.
        why: The reason.
        paths: Patterns of the paths that it changes.
    """

    step: str
    why: str
    paths: tuple[str, ...]


def _cut(value: Any, width: int = 100) -> str:
    shown = repr(value) if value is ABSENT else json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= width else shown[: width - 4] + " ..."


def normalised(value: Any) -> Any:
    """Return a result without what differs between runs, its floats rounded to 12 digits and its long lists summed."""
    if isinstance(value, Mapping):
        return {str(key): normalised(item) for key, item in value.items() if not LEFT_OUT.fullmatch(str(key))}
    if isinstance(value, list | tuple):
        return _list(value)
    if isinstance(value, str):
        for pattern, word in SAME:
            value = pattern.sub(word, value)
        return re.sub(r"\d+\.\d{10,}", lambda found: f"{float(found[0]):.9g}", value)
    if isinstance(value, float):
        return float(f"{value:.12g}") if math.isfinite(value) else str(value)
    return value


def _list(values: Sequence[Any]) -> Any:
    plain = all(isinstance(item, str | int | float | None) for item in values)
    if len(values) <= LONG or not plain:
        return [normalised(item) for item in values]
    kept: dict[str, Any] = {"length": len(values), "first": [normalised(item) for item in values[:4]]}
    numbers = [(place, float(item)) for place, item in enumerate(values) if isinstance(item, int | float)]
    finite = [(place, item) for place, item in numbers if math.isfinite(item)]
    if finite:
        kept["numbers"] = len(finite)
        kept["sum"] = normalised(math.fsum(item for _, item in finite))
        kept["sum by place"] = normalised(math.fsum((place + 1) * item for place, item in finite))
    texts = [(place, item) for place, item in enumerate(values) if isinstance(item, str)]
    if texts:
        kept["text"] = checksum(texts)
    return kept


def differences(before: Any, after: Any, path: str) -> Iterator[Difference]:
    """Yield every value that differs, a whole branch where one side has none of it."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            if key in before and key in after:
                yield from differences(before[key], after[key], f"{path}/{key}")
            else:
                yield Difference(f"{path}/{key}", before.get(key, ABSENT), after.get(key, ABSENT))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _between_lists(before, after, path)
    elif not same(before, after, tolerance_of(path)):
        yield Difference(path, before, after)


def _between_lists(before: list[Any], after: list[Any], path: str) -> Iterator[Difference]:
    key = next((key for key in KEYS if _tells_apart(before, key) and _tells_apart(after, key)), None)
    if key is None:
        numbered = [{str(place): item for place, item in enumerate(items)} for items in (before, after)]
        yield from differences(numbered[0], numbered[1], path)
        return
    old, new = ({item[key]: item for item in items} for items in (before, after))
    yield from differences(old, new, path)
    kept, now = [name for name in old if name in new], [name for name in new if name in old]
    if kept != now:
        yield Difference(f"{path}/order", kept, now)


def _tells_apart(items: list[Any], key: str) -> bool:
    names = [item.get(key) if isinstance(item, dict) else None for item in items]
    return bool(names) and all(isinstance(name, str) for name in names) and len(set(names)) == len(names)


def tolerance_of(path: str) -> float:
    """Return the tolerance of a value: what the demos' embedded model computes depends on the processor's kernels."""
    return KERNELS if path.startswith("demo") else TOLERANCE


def same(before: Any, after: Any, tolerance: float = TOLERANCE) -> bool:
    """Return whether two values are the same, floats within the tolerance."""
    numbers = [value for value in (before, after) if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == 2:  # noqa: PLR2004 - both of them
        return math.isclose(before, after, rel_tol=tolerance, abs_tol=1e-12)
    if isinstance(before, dict | list) and isinstance(after, dict | list):
        return next(differences(before, after, ""), None) is None
    return type(before) is type(after) and bool(before == after)


def expected(text: str) -> list[Expected]:
    """Return the changes by intent of a text in TOML."""
    entries = tomllib.loads(text).get("expected", [])
    for entry in entries:
        if entry.keys() != {"step", "why", "paths"} or not (entry["step"] and entry["why"] and entry["paths"]):
            raise SystemExit(f"an entry of expected.toml has step, why and paths, and none is empty: {entry}")
    return [Expected(entry["step"], entry["why"], tuple(entry["paths"])) for entry in entries]


def unexplained(
    found: Sequence[Difference], known: Sequence[Expected], accepted: Mapping[str, Any], cases: Sequence[str]
) -> list[str]:
    """Return a line for each difference that no entry expects, or that differs from the accepted value.

    Args:
        found: The differences from 0.4.0.
        known: The changes by intent.
        accepted: The values since then, by path; null stands for nothing.
        cases: The cases that ran: an accepted value of theirs that is that of 0.4.0 again is a line, too.
    """
    lines = []
    for item in found:
        entry = next((entry for entry in known if any(fnmatchcase(item.path, path) for path in entry.paths)), None)
        after = None if item.after is ABSENT else item.after
        if entry is None:
            lines.append(str(item))
        elif item.path not in accepted:
            lines.append(f"{item} (expected since {entry.step!r}, not accepted yet)")
        elif not same(accepted[item.path], after, tolerance_of(item.path)):
            lines.append(f"{item.path}: {_cut(accepted[item.path])} since {entry.step!r} -> {_cut(after)}")
    differing = {item.path for item in found}
    lines += [
        f"{path}: was accepted with another value than in 0.4.0, and has that of 0.4.0 again"
        for path in accepted
        if path.split("/")[0] in cases and path not in differing
    ]
    return lines


def written(value: Any, depth: int = 2) -> str:
    """Return JSON whose first levels have lines of their own."""
    if depth and isinstance(value, dict) and value:
        items = (f"{json.dumps(key)}: {written(item, depth - 1)}" for key, item in value.items())
        return "{\n" + ",\n".join(items) + "\n}"
    if depth and isinstance(value, list) and value:
        return "[\n" + ",\n".join(written(item, depth - 1) for item in value) + "\n]"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def computed(names: Sequence[str], *, quiet: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield the name and the normalised result of each case, computed now."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.process_time()
        for name, value in results(names, Path(folder)):
            yield name, json.loads(json.dumps(normalised(value)))
            if not quiet:
                print(f"{name}: {time.process_time() - begin:.1f} processor seconds", file=sys.stderr)
            begin = time.process_time()


def compared(names: Sequence[str], *, quiet: bool = True) -> list[Difference]:
    """Return how the results of cases differ from those of 0.4.0."""
    found = []
    for name, value in computed(names, quiet=quiet):
        golden = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
        found += [*differences(golden, value, name)]
    return found


def known_changes() -> tuple[list[Expected], dict[str, Any]]:
    """Return the changes by intent, and the values that were accepted."""
    accepted = json.loads((FOLDER / "accepted.json").read_text("utf-8"))
    return expected((FOLDER / "expected.toml").read_text("utf-8")), accepted


def _accept(found: Sequence[Difference], cases: Sequence[str]) -> None:
    known, accepted = known_changes()
    kept = {path: value for path, value in accepted.items() if path.split("/")[0] not in cases}
    for item in found:
        if any(fnmatchcase(item.path, path) for entry in known for path in entry.paths):
            kept[item.path] = None if item.after is ABSENT else item.after
    text = written(dict(sorted(kept.items())), 1) if kept else "{}"
    (FOLDER / "accepted.json").write_text(text + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, accept or write; return 1 if something differs that nothing explains."""
    parser = argparse.ArgumentParser(description="Compare what suffice computes with release 0.4.0.")
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--check", action="store_true", help="print what differs, and exit with 1")
    todo.add_argument("--accept", action="store_true", help="keep the values of differences that expected.toml lists")
    todo.add_argument("--write", action="store_true", help="write the golden files, on release 0.4.0")
    parser.add_argument("--only", action="append", choices=[*CASES], metavar="CASE", help="may be repeated")
    parser.add_argument("--lines", type=int, default=60, help="print at most so many differences")
    given = parser.parse_args(arguments)
    names = given.only or [*CASES]
    if given.write:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name, value in computed(names, quiet=False):
            if {"raised", "exit"} & value.keys():
                raise SystemExit(f"{name} failed, and was not written: {value}")
            (FOLDER / f"{name}.json").write_text(written(value) + "\n", encoding="utf-8")
        return 0
    found = compared(names, quiet=False)
    if given.accept:
        _accept(found, names)
    lines = unexplained(found, *known_changes(), names)
    print("\n".join(lines[: given.lines]))
    print(f"{len(found)} values differ from 0.4.0, {len(lines)} of them unexplained; cases: {', '.join(names)}")
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
