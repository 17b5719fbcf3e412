"""Run the scripts of examples/start, and write the page that shows each with what it prints: docs/examples.md.

    python -m scripts.examples_page            every script; those of agent frameworks need the framework
    python -m scripts.examples_page 2 3        those whose names begin so; the page keeps what it shows of the others

`make test` and `make test-frameworks` run them again and compare what they print with the page.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.compare_results import compare_numbers

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted((ROOT / "examples" / "start").glob("*.py"))
PAGE = ROOT / "docs" / "examples.md"
WIDTH = 76
"""Characters of a line of output on the page."""

FRAMEWORKS = ("2_graph_of_langgraph", "3_agent_of_openai")
"""Scripts that need an agent framework, and run with its tests."""

HEAD = """\
# Examples

<!-- written by  python -m scripts.examples_page  -->

Eight ways to start. Each is one script of at most 60 lines that you can read from top to bottom and run from a checkout
(`python examples/start/1_own_logs.py`), without a network: where a model would be asked, a list or a function answers, and a comment says what
you put there. The main package is enough (`pip install .`) where a script does not name another. Below each is what it prints; the tests
run all of them and compare.

"""


def described(script: Path) -> tuple[str, str, str]:
    """Return a script's title, what its docstring says about it, and its code without the docstring."""
    source = script.read_text("utf-8")
    docstring = ast.get_docstring(ast.parse(source)) or ""
    title, _, text = docstring.partition(": ")
    code = source.split('"""', 2)[2].strip("\n")
    return title, text[0].upper() + re.sub(r"\.  (?=\S)", ". ", text[1:]), code


def printed(script: Path, folder: Path) -> str:
    """Run a script in a folder, and return what it prints.

    Raises:
        RuntimeError: It failed, warned, or left files behind.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SUFFICE_", "OPENAI_"))}
    runtime = folder / "runtime"  # where a server of Postgres has its socket, if the machine names no place
    runtime.mkdir(mode=0o700, parents=True)
    place = folder / "here"
    place.mkdir()
    strict = () if script.stem in FRAMEWORKS else ("-W", "error")  # frameworks warn of each other
    done = subprocess.run(
        [sys.executable, *strict, str(script)],
        cwd=place,
        env={**environment, "XDG_RUNTIME_DIR": str(runtime), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    left = sorted(path.name for path in place.iterdir())
    if done.returncode or done.stderr or left:
        raise RuntimeError(
            f"{script.name} ended with {done.returncode}, left {left} behind, and said: {done.stderr[-2000:]}"
        )
    return wrapped(done.stdout)


def wrapped(output: str) -> str:
    """Return an output with its long lines broken."""
    wrap = textwrap.TextWrapper(WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(wrap.fill(line) for line in output.splitlines()).strip("\n")


def page_text(outputs: Mapping[str, str]) -> str:
    """Return the page, with the output of each script by its name without `.py`."""
    rows, parts = ["| script | what it does |", "| --- | --- |"], []
    for script in SCRIPTS:
        title, text, code = described(script)
        summary = text.partition("\n\n")[0].replace("\n", " ")
        anchor = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        rows.append(f"| [{title}](#{anchor}) | {summary} |")
        name = script.stem
        test = f"{'frameworks' if name in FRAMEWORKS else 'suffice/package'}/test_start_scripts.py"
        parts.append(
            f"## {title}\n\n{text}\n\n[`examples/start/{script.name}`](../examples/start/{script.name})\n\n"
            f"<!-- run by tests/{test} -->\n```python\n{code}\n```\n\nIt prints:\n\n```\n{outputs[name]}\n```\n"
        )
    return HEAD + "\n".join([*rows, "", *parts])


def shown_outputs(page: str) -> dict[str, str]:
    """Return the output of each script that a page shows, by its name without `.py`."""
    found = re.finditer(
        r"^\[`examples/start/(\w+)\.py`\].*?^It prints:\n\n```\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL
    )
    return {match[1]: match[2] for match in found}


def differs(shown: str, said: str) -> bool:
    """Return whether two outputs differ by more than one in the last printed digit of numbers with decimals."""
    return compare_numbers(" ".join(shown.split()), " ".join(said.split())) is False


def main(arguments: Sequence[str]) -> None:
    """Run scripts and write the page."""
    outputs = {script.stem: "" for script in SCRIPTS}
    outputs |= shown_outputs(PAGE.read_text("utf-8")) if PAGE.exists() else {}
    for script in SCRIPTS:
        if not arguments or script.name.startswith(tuple(arguments)):
            with tempfile.TemporaryDirectory() as folder:
                outputs[script.stem] = printed(script, Path(folder))
    PAGE.write_text(page_text(outputs), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
