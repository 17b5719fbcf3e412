"""Keep docstrings from opening with a riddle: no first line begins with What, Which, How, Whether, Where or Who.

    python -m scripts.openings            print the docstrings that open so and are not listed, and exit with 1
    python -m scripts.openings --write    take out of the list what no longer opens so

`scripts/openings.txt` lists those of today, one name a line: of a class, function or method the qualified name, of a module
the name of its file or folder.  No module path is in it, so that it survives moves.  The list may only become shorter.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "scripts" / "openings.txt"
HOUSES = ("src", "packages")
OPENINGS = ("What", "Which", "How", "Whether", "Where", "Who")


def opened(text: str, module: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the first line of each docstring of a module that opens with a riddle.

    >>> [*opened('"Which rule holds."', "rules")]
    [('module rules', 'Which rule holds.')]
    """
    yield from _below(ast.parse(text), f"module {module}", "")


def _below(node: ast.AST, name: str, prefix: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        first = (ast.get_docstring(node) or "").split("\n", 1)[0]
        if first.split(" ", 1)[0].strip(",:;.?") in OPENINGS:
            yield name, first
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _below(child, f"{prefix}{child.name}", f"{prefix}{child.name}.")
        else:
            yield from _below(child, name, prefix)


def found(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and a line that tells where, for each docstring of the distributions that opens so."""
    for house in HOUSES:
        for path in sorted((root / house).rglob("*.py")):
            module = path.parent.name if path.stem == "__init__" else path.stem
            for name, first in opened(path.read_text("utf-8"), module):
                yield name, f"{path.relative_to(root)}: {name}: {first}"


def listed() -> Counter[str]:
    """Return the names in the list; a name stands in it as often as docstrings of that name open so."""
    return Counter(LIST.read_text("utf-8").splitlines())


def complaints(docstrings: list[tuple[str, str]], known: Counter[str]) -> list[str]:
    """Return a line for each docstring that opens so beyond the list, and for each name that the list needs no more.

    Of several docstrings with one name all are shown, since the list cannot tell which of them is new.
    """
    names = Counter(name for name, _ in docstrings)
    lines = [place for name, place in docstrings if names[name] > known[name]]
    return lines + [f"{name}: take it out of scripts/openings.txt (--write does)" for name in known - names]


def main(arguments: list[str] | None = None) -> int:
    """Check docstrings, or shorten the list; return 1 if one opens with a riddle, or if the list is too long."""
    parser = argparse.ArgumentParser(description="Check how docstrings open.")
    parser.add_argument("--write", action="store_true", help="take out of the list what no longer opens so")
    given = parser.parse_args(arguments)
    docstrings, known = [*found(ROOT)], listed()
    if given.write:
        kept = known & Counter(name for name, _ in docstrings)
        LIST.write_text("".join(f"{name}\n" for name in sorted(kept.elements())), encoding="utf-8")
        known = kept
    lines = complaints(docstrings, known)
    print("\n".join([*lines, f"{len(docstrings)} docstrings open with {', '.join(OPENINGS)}"]))
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
