"""Compare the public names of this version with those of the last release: docs/reference/versions.md says what they promise.

    python -m scripts.public_names           print each name that is gone without a word in CHANGELOG.md
    python -m scripts.public_names --write   keep the names of this version, as a step of its release

A public name is a line of `tests/golden/public.txt`: a name of a package's `__all__`, a command, one of its options or
settings, a file format with its version, an extra, or something that users name in a policy or a command (rules, signals, ...).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scripts.capabilities import ROOT, capabilities

STORED = ROOT / "tests" / "golden" / "public.txt"
CHANGELOG = ROOT / "CHANGELOG.md"
OURS = {"dev", "docs", "test"}
"""Extras for those who work on the packages."""


def public(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each public name, as the changelog says it.

    >>> list(public({"commands": {"suffice replay": {"--rule": {}, "setting seed": {}}}, "names": {"Rule": ["suffice"]}}))
    ['suffice replay', 'suffice replay --rule', 'suffice replay --set seed', 'suffice.Rule']
    """
    for words, parameters in found.get("commands", {}).items():
        yield words
        options = (name.replace("setting ", "--set ") for name in parameters)
        yield from (f"{words} {name}" for name in options if name.startswith("--"))
    for name, packages in found.get("names", {}).items():
        yield from (f"{package}.{name}" for package in packages if "._" not in package)
    yield from (f"format {name} {version}" for name, version in found.get("formats", {}).items() if version)
    yield from (f"extra {name}" for name in found.get("extras", []) if name not in OURS)
    yield from (
        f"entry point {name}"
        for name in found.get("entry points", [])
        if name.startswith(("suffice.importers", "suffice.stores"))
    )
    for kind, names in found.get("registered", {}).items():
        yield from (f"{kind} {name}" for name in names)


def sections(changelog: str) -> list[tuple[str, dict[str, str]]]:
    """Return each version of a changelog with its paragraphs by their headings, the latest version first."""
    found = []
    for part in re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]:
        version, _, text = part.partition("\n")
        pieces = re.split(r"^\*\*(.+)\*\*$", text, flags=re.MULTILINE)
        found.append((version.split()[0], dict(zip(pieces[1::2], pieces[2::2], strict=True))))
    return found


def unannounced(before: Sequence[str], now: Sequence[str], changelog: str, release: str, version: str) -> list[str]:
    """Return a line for each public name that is gone, and that the policy does not let go.

    Args:
        before: The public names of the last release.
        now: The public names of the version in work.
        changelog: The text of the changelog.
        release: The last release.
        version: The version in work.
    """
    found = sections(changelog)
    if not found or found[0][0] != version:
        return [f"CHANGELOG.md begins with the section of {found[0][0] if found else 'no version'}, not of {version}"]
    gone = sorted(set(before) - set(now))
    is_promised = bool(re.fullmatch(r"[1-9]\d*\.\d+\.\d+", release))
    if is_promised and release.partition(".")[0] == version.partition(".")[0]:
        return [f"`{name}` is gone, and {version} has the major version of {release}: keep it" for name in gone]
    said = _named(found[:1], "Dropped", "Renamed")
    lines = [
        f"`{name}` is gone: name it under **Dropped** or **Renamed** of {version}" for name in gone if name not in said
    ]
    warned = _named(found[1:], "Deprecated")
    late = [name for name in gone if is_promised and name not in warned]
    return [*lines, *(f"`{name}` is gone: no release before {version} named it under **Deprecated**" for name in late)]


def _named(parts: Sequence[tuple[str, Mapping[str, str]]], *headings: str) -> set[str]:
    """Return what stands in backticks under some headings."""
    texts = (paragraphs.get(heading, "") for _, paragraphs in parts for heading in headings)
    return {name for text in texts for name in re.findall(r"`([^`]+)`", text)}


def stored() -> tuple[str, list[str]]:
    """Return the last release whose names were kept, and its names."""
    first, *names = STORED.read_text("utf-8").splitlines()
    return first.removeprefix("# "), names


def main() -> int:
    """Keep the public names of this version, or print those that are gone without a word; return 1 for these."""
    found = capabilities()
    names = list(dict.fromkeys(public(found)))
    if "--write" in sys.argv[1:]:
        STORED.write_text("\n".join([f"# {found['release']}", *sorted(names)]) + "\n", "utf-8")
        return 0
    release, before = stored()
    lines = unannounced(before, names, CHANGELOG.read_text("utf-8"), release, found["release"])
    print("\n".join(lines or [f"all {len(before)} public names of {release} are there, or the changelog names them"]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
