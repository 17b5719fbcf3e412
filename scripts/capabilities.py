"""List what an installed `suffice` can do, and compare it with another release.

    python -m scripts.capabilities --write tests/golden/capabilities-0.4.0.json    write the list of this release
    python -m scripts.capabilities --against tests/golden/capabilities-0.4.0.json  print what is missing, new or changed

A capability is a command, one of its arguments, options or settings, a public name, an extra, an entry point, a file format with its
version, a table of an sqlite file, or something registered by name (rules, signals, ...).  Public names are those of the
`__all__` of packages; they are compared by name, wherever their module lies.  `tests/golden/capabilities.toml` accounts for
those that are missing:

    [[account]]
    was = "option replay --stream"
    fate = "dropped"          # or "renamed", "moved"
    now = ""                  # the new capability, of a renamed or moved one
    why = "Every replay reads block by block."

An entry of "option *" with now = "setting *" accounts for the options that are settings of the same command and name.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from importlib.metadata import distributions, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEFORE = ROOT / "tests" / "golden" / "capabilities-0.4.0.json"
ACCOUNT = ROOT / "tests" / "golden" / "capabilities.toml"
FATES = ("renamed", "moved", "dropped")
SETTINGS = "setting *"
"""What options are now that are settings of the same command and name."""
REGISTRIES = {
    "rule": "NAMED_RULES",
    "selector": "SELECTORS",
    "signal": "SIGNALS",
    "metric": "METRICS",
    "normalizer": "NORMALIZERS",
    "bundled recording": "BUNDLED_RECORDINGS",
    "bundled samples": "BUNDLED_SAMPLES",
}
"""Where things are registered by name: the constant of each kind."""


def houses() -> dict[str, Path]:
    """Return the import name and the folder of each installed distribution of the family."""
    names = sorted({str(item.metadata["Name"]) for item in distributions()})
    found = {}
    for name in (name.replace("-", "_") for name in names if re.match(r"suffice($|[-_])", name)):
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            found[name] = Path(spec.origin).parent
    return found


TOLD = re.compile(rf"""CREATE TABLE|["']suffice[ .-]|^(?:{"|".join(REGISTRIES.values())})\b""", re.MULTILINE)
"""What a module has that names a format, a table or a registry; to parse all others takes seconds."""


@cache
def modules() -> Mapping[str, ast.Module]:
    """Return the syntax tree of each module of the family that tells something, by its dotted name; none is imported."""
    found = {}
    for house, folder in houses().items():
        for path in sorted(folder.rglob("*.py")):
            words = path.relative_to(folder).with_suffix("").parts
            dotted = ".".join([house, *(word for word in words if word != "__init__")])
            if TOLD.search(text := path.read_text("utf-8")):
                found[dotted] = ast.parse(text)
    return found


def commands() -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """Yield each command with its parameters: their type, default and other names, and the table of a setting."""
    (script,) = entry_points(group="console_scripts", name="suffice")
    yield from _below(import_module(script.module).app, "suffice")


def _below(command: Any, words: str) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    yield words, {_name(item): _parameter(item) for item in command.params if _name(item) != "--help"}
    if hasattr(command, "list_commands"):
        for name in command.list_commands(command.make_context(words, [], resilient_parsing=True)):
            context = command.make_context(words, [], resilient_parsing=True)
            _, below, _ = command.resolve_command(context, [name, "--help"])
            yield from _below(below, f"{words} {name}")


def _name(parameter: Any) -> str:
    names: list[str] = parameter.opts
    if hasattr(parameter, "setting"):
        return f"setting {parameter.setting.name}"
    return next((name for name in names if name.startswith("--")), names[0])


def _parameter(parameter: Any) -> dict[str, Any]:
    described = getattr(parameter, "type_descriptor", None)
    kind = parameter.type.name if described is None else described.annotation
    default = parameter.default
    setting = getattr(parameter, "setting", None)
    others = [name for name in [*parameter.opts, *parameter.secondary_opts] if name != _name(parameter)]
    return {
        "type": kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind),
        "default": default if isinstance(default, str | int | float | bool | None) else str(default),
        **({"required": True} if parameter.required else {}),
        **({"also": others} if others and setting is None else {}),
        **({"table": setting.table} if setting is not None else {}),
    }


def public_names() -> dict[str, list[str]]:
    """Return the names in the `__all__` of packages, with the packages that export them."""
    found: dict[str, list[str]] = {}
    for house, folder in houses().items():
        for path in sorted(folder.rglob("__init__.py")):
            dotted = ".".join([house, *path.parent.relative_to(folder).parts])
            for name in _exported(ast.parse(path.read_text("utf-8"))):
                found.setdefault(name, []).append(dotted)
    return dict(sorted(found.items()))


def _exported(tree: ast.Module) -> list[str]:
    for name, value in _constants(tree):
        if name == "__all__":
            return [str(item) for item in value]
    imported = [alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    return [alias.name for alias in imported if alias.asname == alias.name]  # see `suffice.common.lazy`


def _constants(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """Yield the name and value of each literal that a module assigns."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            try:
                value = ast.literal_eval(node.value)
            except (ValueError, TypeError):
                continue
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    yield target.id, value
                elif isinstance(target, ast.Tuple) and isinstance(value, tuple):
                    yield from zip((getattr(item, "id", "") for item in target.elts), value, strict=True)


def formats() -> tuple[dict[str, int | None], list[str]]:
    """Return the versions of file formats by their names, and the tables of sqlite files."""
    found: dict[str, int | None] = {}
    tables: set[str] = set()
    for tree in modules().values():
        constants = dict(_constants(tree))
        versions = {name: value for name, value in constants.items() if name.endswith("VERSION")}
        for name, value in constants.items():
            if re.search(r"(FORMAT|KIND)$", name) and re.match(r"suffice[ .-]", str(value)):
                own = re.sub(r"(FORMAT|KIND)$", "VERSION", name)
                found[str(value)] = versions.get(own, next(iter(versions.values()), None))
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict):
                _note_header(node, found)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                tables |= set(re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", node.value))
    return dict(sorted(found.items())), sorted(tables)


def _note_header(node: ast.Dict, found: dict[str, int | None]) -> None:
    """Note the format of a dict such as ``{"kind": "suffice.reranker", "version": 1}``."""
    header = {
        key.value: value.value
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(value, ast.Constant)
    }
    name, number = header.get("format", header.get("kind")), header.get("version")
    if isinstance(name, str) and re.match(r"suffice[.-]", name) and isinstance(number, int):
        found[name] = number


def registered() -> dict[str, list[str]]:
    """Return the names of what is registered, by kind."""
    found = {}
    for kind, constant in REGISTRIES.items():
        homes = [
            dotted
            for dotted, tree in modules().items()
            if any(constant == getattr(target, "id", "") for node in tree.body for target in _targets(node))
        ]
        found[kind] = sorted(getattr(import_module(homes[0]), constant)) if homes else []
    return found


def _targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def capabilities() -> dict[str, Any]:
    """Return all capabilities of what is installed, as JSON-ready values."""
    family = [item for item in distributions() if re.match(r"suffice($|[-_])", str(item.metadata["Name"]))]
    versions, tables = formats()
    extras = {name for item in family for name in item.metadata.get_all("Provides-Extra") or []}
    plugins = {f"{point.group} {point.name}" for item in family for point in item.entry_points}
    return {
        "release": version("suffice"),
        "commands": dict(commands()),
        "names": public_names(),
        "extras": sorted(extras),
        "entry points": sorted(name for name in plugins if name.startswith("suffice")),
        "formats": versions,
        "sqlite tables": tables,
        "registered": registered(),
    }


def listed(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return one line for each capability, with the facts that may change while it stays.

    >>> listed({"commands": {"suffice replay": {"--seed": {"type": "int"}}}, "names": {"Rule": ["suffice"]}})
    {'command suffice replay': None, 'option replay --seed': {'type': 'int'}, 'name Rule': None}
    """
    lines: dict[str, Any] = {}
    for words, parameters in found.get("commands", {}).items():
        lines[f"command {words}"] = None
        for name, facts in parameters.items():
            kind = "option" if name.startswith("-") else "setting" if name.startswith("setting ") else "argument"
            command = words.removeprefix("suffice").strip() or "suffice"
            lines[" ".join([kind, command, name.removeprefix("setting ")])] = facts
    lines |= {f"name {name}": None for name in found.get("names", {})}
    lines |= {f"extra {name}": None for name in found.get("extras", [])}
    lines |= {f"entry point {name}": None for name in found.get("entry points", [])}
    lines |= {f"format {name}": {"version": number} for name, number in found.get("formats", {}).items()}
    lines |= {f"sqlite table {name}": None for name in found.get("sqlite tables", [])}
    lines |= {f"{kind} {name}": None for kind, names in found.get("registered", {}).items() for name in names}
    return lines


def missing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the capabilities of one release that another has not."""
    there = listed(after)
    return [line for line in listed(before) if line not in there]


def account(text: str) -> list[dict[str, str]]:
    """Return the entries of an account in TOML, each of them checked."""
    entries: list[dict[str, str]] = tomllib.loads(text).get("account", [])
    for entry in entries:
        is_whole = entry.keys() <= {"was", "fate", "now", "why"} and entry.get("was") and entry.get("why")
        if not is_whole or entry.get("fate") not in FATES or (entry["fate"] == "dropped") == bool(entry.get("now")):
            raise SystemExit(
                f"an account has was, fate ({', '.join(FATES)}), why, and now unless it was dropped: {entry}"
            )
    return entries


def unaccounted(gone: Sequence[str], entries: Sequence[Mapping[str, str]], after: Mapping[str, Any]) -> list[str]:
    """Return a line for each missing capability without an account, and for each account that is wrong.

    Args:
        gone: The missing capabilities.
        entries: The account; `was` may be a pattern with `*`.
        after: The capabilities of the later release: `now` must be one of them, unless it is a pattern or a sentence.
    """
    there = listed(after)
    kinds = tuple({line.split(" ")[0] for line in there})
    lines = [line for line in gone if not any(_accounts(entry, line, there) for entry in entries)]
    for entry in entries:
        if not any(_accounts(entry, line, there) for line in gone):
            lines.append(f"{entry['was']!r} is accounted for, and nothing of that name is missing")
        now = entry.get("now", "")
        if now.startswith(kinds) and "*" not in now and now not in there:
            lines.append(f"{entry['was']!r} is said to be {now!r} now, which there is not")
    return lines


def _accounts(entry: Mapping[str, str], line: str, there: Mapping[str, Any]) -> bool:
    """Return whether an entry accounts for a missing capability."""
    if entry.get("now") == SETTINGS:
        kind, _, option = line.partition(" ")
        return kind == "option" and f"setting {option.replace('--', '', 1)}" in there
    return fnmatchcase(line, entry["was"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the capabilities, or compare them with those of a file; return 1 if one is missing without an account."""
    parser = argparse.ArgumentParser(description="List what suffice can do, and compare releases.")
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--write", type=Path, metavar="FILE", help="write the capabilities of what is installed")
    todo.add_argument("--against", type=Path, metavar="FILE", help="print what is missing, new or changed since FILE")
    given = parser.parse_args(arguments)
    after = json.loads(json.dumps(capabilities()))
    if given.write:
        given.write.write_text(json.dumps(after, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return 0
    before = json.loads(given.against.read_text("utf-8"))
    old, new = listed(before), listed(after)
    gone = missing(before, after)
    entries = account(ACCOUNT.read_text("utf-8"))
    lines = unaccounted(gone, entries, after)
    for title, names in (
        ("missing", gone),
        ("new", [line for line in new if line not in old]),
        ("changed", [f"{line}: {old[line]} -> {new[line]}" for line in old if line in new and old[line] != new[line]]),
    ):
        print(f"{title}: {len(names)}", *names, sep="\n  ")
    print("\n".join(["unaccounted:", *lines]) if lines else "every missing capability is accounted for")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
