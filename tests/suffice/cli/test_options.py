"""Messages, help and documentation name options of the command line only where they exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from suffice.cli.main import app
from suffice.cli.parameters import settings_in
from suffice.cli.tree import commands

ROOT = Path(__file__).resolve().parents[3]
COMMANDS_OF_AGENTS = ROOT / "src" / "suffice" / "importers" / "transcripts" / "visible.py"
"""A module that reads the options of sed, ruff and other programs."""
SOURCES = sorted({*(ROOT / "src" / "suffice").rglob("*.py")} - {COMMANDS_OF_AGENTS})
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOREIGN = {
    "--logprobs-mode": "(?i:vllm)",
    "--max-model-len": "vllm",
    "--enable-prefix-caching": "vllm",
    **dict.fromkeys(("--enable-prompt-tokens-details", "--runner", "--convert", "--tensor-parallel-size"), "vllm"),
    "--head": "ray start",
    **dict.fromkeys(("--standalone", "--nproc-per-node", "--no-python"), "torchrun"),
    "--port": "llama-server|vllm serve",
    "--embeddings": "llama.cpp",
    "--pooling": "llama.cpp",
    **dict.fromkeys(("--muted", "--line", "--raised"), "color-mix"),
    "--surface": "theme_colours",
    "--debates": "benchmarks.self_refine",
    **dict.fromkeys(("--vectors", "--noise"), "benchmarks.bench_dense"),
    **dict.fromkeys(("--seconds", "--runs", "--rate"), "benchmarks.(serve_latency|proxy)"),
    **dict.fromkeys(("--every", "--clients"), "benchmarks.serve_soak"),
    **dict.fromkeys(("--kills", "--loggers"), "benchmarks.(part|shard|ray|journal)_kills"),
    "--one-file": "benchmarks.journal_kills",
    **dict.fromkeys(("--passages", "--limit-gb"), "benchmarks.bench_index"),
    "--tiny": "benchmarks.gpu",
    "--top": "longest",
    "--drawn": "benchmarks.readings",
    "--repeat": "promptfoo",
    "--repeats": r"benchmarks\.gpu",
    "--page": "benchmarks.(readings|referee|power|asked_labels|judged_labels|procedures|checked_loops|escalation|which_loops)",
    **dict.fromkeys(("--job-name", "--array", "--requeue", "--cpus-per-task", "--mem"), "sbatch"),
    **dict.fromkeys(("--reasoning-parser", "--reasoning-config"), "vllm serve"),
    "--only": "which_loops",
    "--source": "scripts/similar_drafts.py",
    "--write": "scripts.public_names",
    **dict.fromkeys(("--from", "--with", "--spec"), "uvx|pipx run"),
}
"""Options of other programs and variables of style sheets, with what a text must name beside them."""

_OPTION = re.compile(r"(?<![\w-])(?<!var\()--[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?![\w-])")
_SET = re.compile(r"(?<![\w-])--set[ =]([a-z][a-z0-9]*(?:-[a-z0-9]+)*)=")
_CALL = re.compile(r"\bsuffice ((?:[a-z]+(?:-[a-z]+)* +)+)([^`]*?)(?=`|$|;|\. )", re.MULTILINE)


def options_of(command):
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return own | {"--help", "-h"} | {f"--set {name}" for name in settings_in(command.params)}


COMMANDS = {(): options_of(app)} | {tuple(words.split()): options_of(command) for words, command in commands()}
KNOWN = set().union(*COMMANDS.values())


def texts(path):
    """Return every string literal of a module, formatted values as a blank, each with its line."""
    if path.suffix == ".md":
        return [(1, path.read_text("utf-8").replace("\\\n", " "))]
    tree = ast.parse(path.read_text("utf-8"))
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else " " for part in node.values]
            found.append((node.lineno, "".join(map(str, parts))))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            found.append((node.lineno, node.value))
    return found


def named(text):
    """Return the options and settings that a text names."""
    return [*_OPTION.findall(text), *(f"--set {name}" for name in _SET.findall(text))]


def wrong(text):
    """Return the options and settings in a text that do not exist, or not for the command that the text gives them to."""
    found = []
    for name in named(text):
        program = FOREIGN.get(name)
        if name not in KNOWN and (program is None or not re.search(program, text)):
            found.append(name)
    for words, rest in _CALL.findall(text):
        called = tuple(words.split())
        while called and called not in COMMANDS:
            called = called[:-1]
        if called:
            found += [f"{' '.join(called)} {name}" for name in named(rest) if name not in COMMANDS[called]]
    return found


@pytest.mark.parametrize("path", [*SOURCES, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_option_that_a_text_names_exists(path):
    missing = {f"{path.name}:{line}": names for line, text in texts(path) if (names := wrong(text))}
    assert not missing


def test_a_command_s_own_messages_name_its_own_options():
    own = {}
    for words, command in commands():
        module = getattr(command.callback, "__module__", "")
        own.setdefault(module, set()).update(COMMANDS[tuple(words.split())])
    for path in SOURCES:
        known = own.get(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))
        for line, text in texts(path) if known and path.stem not in {"main", "tree"} else ():
            if "suffice " not in text:
                assert set(named(text)) <= known, f"{path.name}:{line}"


def test_the_check_sees_what_does_not_exist():
    assert wrong("read with --errors replace") == ["--errors"]
    assert wrong("run `suffice record DATA --policy p.json`") == ["record --policy"]
    assert wrong("run `suffice answer Q --policy p.json`; --no-questions helps") == []
    assert wrong("$ suffice paper tasr --cells c.toml\n$ suffice replay r --nosuch 3") == [
        "--nosuch",
        "replay --nosuch",
    ]
    assert wrong("$ suffice demo tiny-model tiny\nsuffice record DATA --reranker r") == []
    assert wrong("give --set nosuch=3") == ["--set nosuch"]
    assert wrong("$ suffice data show p.json --set resamples=3") == ["data show --set", "data show --set resamples"]
    assert wrong("serve with --pooling last") == ["--pooling"]
    assert wrong("llama.cpp: --pooling last; color: var(--accent)") == []
