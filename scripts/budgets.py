"""Measure every distribution and room, and fail where one has grown past its budget.

    python -m scripts.budgets            print what is over budget, and exit with 1
    python -m scripts.budgets --write    write the figures of today into budgets.toml, as a decision of this commit

`budgets.toml` says where distributions lie (`roots`, patterns of folders), which folders are only counted (`counted`), and
how long a module and a function may be; the longer ones of today are listed and may not grow.  A room is a folder or
module directly below a root; modules of a few lines count with the root itself.  Lines are those of Python files,
statements those of their syntax trees without docstrings, so that nothing is won by squeezing.
"""

from __future__ import annotations

import argparse
import ast
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from itertools import takewhile
from pathlib import Path
from typing import Any

from scripts.capabilities import commands

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "budgets.toml"
STEPS = {"lines": 50, "statements": 25}
"""What `--write` rounds rooms up to, so that not every line is a decision; distributions to four times as much."""
ITSELF = "itself"
"""The room of the modules that lie directly below a root."""


@dataclass
class Size:
    """What Python files add up to.

    Attributes:
        lines: All of their lines.
        statements: Their statements without docstrings.
    """

    lines: int = 0
    statements: int = 0

    def add(self, other: Size) -> None:
        """Add another size to this one."""
        self.lines += other.lines
        self.statements += other.statements


@dataclass
class Measured:
    """The sizes of a tree.

    Attributes:
        totals: Of each root and counted folder, by its import name or path.
        rooms: Of each room, by root and name.
        options: Command-line options of each root.
        modules: Lines of each module of a root, by its path below the root.
        functions: Lines of each function of a root, by its name within its module; of equal names the longest.
    """

    totals: dict[str, Size] = field(default_factory=dict)
    rooms: dict[str, dict[str, Size]] = field(default_factory=dict)
    options: Counter[str] = field(default_factory=Counter)
    modules: dict[str, int] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)


def size_of(text: str) -> Size:
    r"""Return the size of a module.

    >>> size_of('def f():\\n    "Return 1."\\n    return 1\\n')
    Size(lines=3, statements=2)
    """
    return _size(text, ast.parse(text))


def _size(text: str, tree: ast.Module) -> Size:
    statements = [*_statements(tree)]
    bodies = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = sum(_starts_with_text(node) for node in [tree, *statements] if isinstance(node, (ast.Module, *bodies)))
    return Size(len(text.splitlines()), len(statements) - docstrings)


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements below a node without a look at their expressions, which are most of a tree."""
    for child in (child for name in _BODIES for child in getattr(node, name, ())):
        if isinstance(child, ast.stmt):
            yield child
        yield from _statements(child)


def _starts_with_text(node: Any) -> bool:
    return ast.get_docstring(node, clean=False) is not None


def functions_of(text: str) -> Iterator[tuple[str, int]]:
    r"""Yield each function of a module by its qualified name, with its lines.

    >>> [*functions_of('class A:\\n    def f(self):\\n        return 1\\n')]
    [('A.f', 2)]
    """
    yield from _functions(ast.parse(text), "")


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
    for child in (child for name in _BODIES for child in getattr(node, name, ())):
        name = f"{prefix}{child.name}" if isinstance(child, _NAMED) else ""
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, (child.end_lineno or child.lineno) - child.lineno + 1
        yield from _functions(child, f"{name}." if name else prefix)


_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def measured(settings: Mapping[str, Any], root: Path, options: Counter[str]) -> Measured:
    """Return the sizes of everything that the settings name.

    Args:
        settings: `roots` and `counted`, patterns of folders.
        root: What these are relative to.
        options: Command-line options by the import name of their distribution.
    """
    found = Measured(options=options)
    for folder in _folders(settings["roots"], root):
        name = folder.name
        found.totals[name], found.rooms[name] = Size(), {}
        for path in sorted(folder.rglob("*.py")):
            text, (room, *below) = path.read_text("utf-8"), path.relative_to(folder).parts
            tree = ast.parse(text)
            size = _size(text, tree)
            found.totals[name].add(size)
            found.rooms[name].setdefault(room if below else ITSELF, Size()).add(size)
            found.modules[f"{name}/{path.relative_to(folder)}"] = size.lines
            for function, lines in _functions(tree, ""):
                found.functions[function] = max(lines, found.functions.get(function, 0))
    for folder in _folders(settings["counted"], root):
        found.totals[str(folder.relative_to(root))] = total = Size()
        for path in folder.rglob("*.py"):
            total.add(size_of(path.read_text("utf-8")))
    return found


def _folders(patterns: list[str], root: Path) -> list[Path]:
    return sorted(
        path for pattern in patterns for path in root.glob(pattern) if path.is_dir() and any(path.rglob("*.py"))
    )


def options() -> Counter[str]:
    """Return how many command-line options each distribution has, by import name."""
    homes = {
        point.name.replace(".", " "): point.module.split(".")[0] for point in entry_points(group="suffice.commands")
    }
    found: Counter[str] = Counter()
    for words, parameters in commands():
        home = homes.get(words.removeprefix("suffice").strip(), "suffice")
        found[home] += sum(name.startswith("-") for name in parameters)
    return found


def over(budgets: Mapping[str, Any], found: Measured) -> list[str]:
    """Return a line for everything that has grown past its budget, or that has none."""
    lines = []
    for name, size in found.totals.items():
        budget = budgets["distributions"].get(name, {})
        sizes = {"lines": size.lines, "statements": size.statements}
        if name in found.rooms:
            sizes["options"] = found.options[name]
        lines += _over(name, sizes, budget)
        for room, held in found.rooms.get(name, {}).items():
            sizes = {"lines": held.lines, "statements": held.statements}
            lines += _over(f"{name}/{room}", sizes, budget.get("rooms", {}).get(room, {}))
    limits, exceptions = budgets["limits"], budgets["exceptions"]
    for kind, longest in (("module", found.modules), ("function", found.functions)):
        allowed = exceptions[f"{kind}s"]
        lines += [
            f"the {kind} {name} has {n} lines; allowed are {allowed.get(name, limits[kind])}: split it"
            for name, n in longest.items()
            if n > allowed.get(name, limits[kind])
        ]
        lines += [
            f"the {kind} {name} is listed as longer than {limits[kind]} lines and is not: remove it from budgets.toml"
            for name in allowed
            if longest.get(name, 0) <= limits[kind]
        ]
    return lines


def _over(name: str, sizes: Mapping[str, int], budget: Mapping[str, int]) -> list[str]:
    if not budget:
        return [f"{name} has no budget: python -m scripts.budgets --write"]
    return [
        f"{name} has {n} {unit}; its budget is {budget[unit]}: cut something, or raise it by --write, as a decision"
        for unit, n in sizes.items()
        if n > budget[unit]
    ]


def written(settings: Mapping[str, Any], found: Measured, opening: Sequence[str] = ()) -> str:
    """Return budgets.toml with the sizes of today, rounded up, below its opening comment and with the limits as they are."""
    lines = [
        *opening,
        f"roots = {_strings(settings['roots'])}",
        f"counted = {_strings(settings['counted'])}",
        "",
        "[limits]",
        *(f"{kind} = {settings['limits'][kind]}" for kind in ("module", "function")),
    ]
    for name, size in found.totals.items():
        lines += ["", f'[distributions."{name}"]', *_figures(size, 4)]
        if name in found.rooms:
            lines += [f"options = {found.options[name]}"]
        rooms = sorted(found.rooms.get(name, {}).items())
        lines += [f'rooms."{room}" = {{ {", ".join(_figures(held))} }}' for room, held in rooms]
    for kind, longest in (("module", found.modules), ("function", found.functions)):
        lines += ["", f"[exceptions.{kind}s]"]
        lines += [f'"{name}" = {n}' for name, n in sorted(longest.items()) if n > settings["limits"][kind]]
    return "\n".join(lines) + "\n"


def _strings(values: list[str]) -> str:
    return f"[{', '.join(f'{chr(34)}{value}{chr(34)}' for value in values)}]"


def _figures(size: Size, steps: int = 1) -> list[str]:
    figures = {"lines": size.lines, "statements": size.statements}
    return [f"{unit} = {-(-n // (steps * STEPS[unit])) * steps * STEPS[unit]}" for unit, n in figures.items()]


def main(arguments: list[str] | None = None) -> int:
    """Check the budgets, or write them; return 1 if something is over its budget."""
    parser = argparse.ArgumentParser(description="Check the sizes of distributions and rooms.")
    parser.add_argument("--write", action="store_true", help="write the figures of today into budgets.toml")
    given = parser.parse_args(arguments)
    text = FILE.read_text("utf-8")
    budgets = tomllib.loads(text)
    found = measured(budgets, ROOT, options())
    if given.write:
        opening = takewhile(lambda line: line.startswith("#"), text.splitlines())
        FILE.write_text(written(budgets, found, [*opening]), encoding="utf-8")
        return 0
    lines = over(budgets, found)
    print("\n".join(lines) if lines else "every distribution and room is within its budget")
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
