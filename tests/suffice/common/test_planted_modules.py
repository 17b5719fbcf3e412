"""A folder of recordings may come from somebody else: no command imports a module that lies in it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import suffice
from tests.suffice.evaluation.test_search_parts import write_parts
from tests.support.cli_tools import cli, dataset, reply
from tests.support.endpoint import Endpoint
from tests.support.report_tools import recording, rows
from tests.support.serving import ending

PLANTED = (
    *("typer", "multiprocessing", "numpy", "json", "pickle", "concurrent", "asyncio", "subprocess", "sitecustomize"),
    *("pyarrow", "scipy", "rich", "ray", "math_verify", "sympy", "suffice"),
)
SOURCES = Path(suffice.__file__).parent


@pytest.fixture
def folder(tmp_path):
    """A folder with modules that would leave a mark, and a recording as a file and in parts."""
    path = tmp_path / "theirs"
    path.mkdir()
    for name in PLANTED:
        (path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r} + '\\n')\n")
    recording(path / "eval.parquet", n=60, seed=3)
    write_parts(path / "parts", rows(60, seed=4), [i % 2 for i in range(60)])
    return path


@pytest.fixture
def program(tmp_path):
    """The script that an installation puts among the programs, and what it runs with."""
    script = tmp_path / "bin" / "suffice"
    script.parent.mkdir()
    script.write_text("from suffice.cli.main import run\n\nif __name__ == '__main__':\n    run()\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment |= {"PYTHONPATH": str(SOURCES.parent), "RAY_raylet_start_wait_time_s": "300"}
    return [sys.executable, str(script)], environment


def ran(folder):
    """Return which of the planted modules were imported."""
    marks = folder.parent / "ran"
    return sorted(set(marks.read_text().split())) if marks.exists() else []


def run(program, folder, *words):
    command, environment = program
    done = subprocess.run(
        [*command, *map(str, words)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ran(folder) == []
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.whole
def test_the_studio_decides_in_a_process_that_imports_nothing_from_the_folder(program, folder):
    command, environment = program
    words = [*command, "studio", "--no-browser", "--port", "0"]
    with ending(
        subprocess.Popen(
            words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    ) as process:
        address = next(word for line in process.stdout for word in line.split() if word.startswith("http"))
        with httpx.Client(base_url=address.partition("/open")[0], timeout=600) as client:
            client.get(address)
            page = client.get("/").text.partition("<bdi>eval.parquet</bdi>")[0]
            shown = "/recording/" + page.rpartition("/recording/")[2].partition('"')[0] + "/decide/advice"
            last = json.loads(client.get(shown, params={"metric": "em"}).text.splitlines()[-1])
        process.kill()
    assert "problem" not in last
    assert last["sentence"]
    assert ran(folder) == []


IN_TURN = """
import shlex, sys
from suffice.cli.main import run

if __name__ == "__main__":
    for line in sys.argv[1:]:
        try:
            run(shlex.split(line))
        except SystemExit as ended:
            assert not ended.code, line
        print("DONE", flush=True)
"""


@pytest.mark.whole
def test_indexes_expressions_and_clusters_import_nothing_from_the_folder(program, folder):
    """In one process, which finds modules at its last command where it found them at its first."""
    Path(program[0][1]).write_text(IN_TURN)
    passages = [json.dumps({"id": f"p{i}", "title": "", "text": f"The tower {i}."}) for i in range(3500)]
    (folder / "passages.jsonl").write_text("\n".join(passages))
    rows = [
        {"question_id": f"q{q}", "round": r, "answer": answer, "gold": "0.5", "quality": 1.0}
        for q in range(8)
        for r, answer in enumerate(("$\\frac{1}{2}$", "$\\frac{2}{4}$", "0.5"))
    ]
    (folder / "samples.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    dataset(folder / "q.jsonl", n=2)
    with Endpoint(reply, usage="plain") as endpoint:
        model = f"--model m --base-url {endpoint.url} --json"
        index, samples, recorded, _, _ = run(
            program,
            folder,
            "index passages.jsonl -o i --json",
            "import samples.jsonl --samples --set=normalizer=math --log-golds keep -o s.parquet --yes --json",
            f"record q.jsonl --max-rounds 1 -o out --on ray --set=workers=1 --set=shards=1 {model}",
            f"doctor --set=repeats=1 {model}",
        ).split("DONE\n")
    assert "3500" in index.replace(",", "")
    assert json.loads(samples)
    assert json.loads(recorded)["questions"] == 2


@pytest.mark.whole
def test_the_package_run_as_a_module_imports_nothing_more_from_the_folder(program, folder):
    for name in {*PLANTED} - {"typer", "pyarrow", "scipy", "rich", "multiprocessing"}:
        (folder / f"{name}.py").unlink()  # what Python imports before any line of the package runs, it takes from there
    command, environment = program
    run(
        ([command[0], "-m", "suffice"], environment),
        folder,
        "search",
        "parts",
        "--jobs",
        2,
        "--set=resamples=20",
        "--json",
    )


@pytest.mark.whole
def test_processes_import_a_named_module_and_nothing_else_from_the_folder(program, folder, monkeypatch):
    (folder / "rising.py").write_text(RISING)
    monkeypatch.chdir(folder)
    rule = ("--rule", "(rising(p_correct)) & (round >= 3)")
    words = ("--extension", "rising.py", "replay", "parts", *rule, "--set=resamples=20", "--json")
    assert json.loads(run(program, folder, *words, "--jobs", 2)) == cli(*words, "--jobs", 1).json


RISING = """
from dataclasses import dataclass

from suffice import Rule, register_rule


@register_rule("rising")
@dataclass(frozen=True)
class Rising(Rule):
    name: str

    def fires(self, rounds):
        return rounds[self.name] > 0.5

    @property
    def signals(self):
        return frozenset({self.name})
"""


STARTS = {
    *("Popen", "ProcessPoolExecutor", "Process", "get_context", "set_start_method", "set_executable"),
    *("create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell"),
    *("check_call", "check_output", "getoutput", "getstatusoutput", "system", "popen", "fork", "forkpty"),
    *("posix_spawn", "posix_spawnp", "spawnl", "spawnv", "spawnve", "execv", "execve", "execl", "execvp", "startfile"),
}
"""Functions of the standard library that start a process."""
NAMED = re.compile(rf"\b(?:{'|'.join(sorted(STARTS))}|subprocess|executable)\b")


def starters(tree):
    """Yield what of a module would start a process."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            owner = getattr(function.value, "id", "") if isinstance(function, ast.Attribute) else ""
            if name in STARTS or (name, owner) in {("run", "subprocess"), ("call", "subprocess")}:
                yield name
        elif isinstance(node, ast.Attribute) and node.attr == "executable":
            yield "executable"


def test_only_one_module_starts_processes():
    found = {
        str(path.relative_to(SOURCES)): sorted(set(starters(ast.parse(text))))
        for path in SOURCES.rglob("*.py")
        if NAMED.search(text := path.read_text("utf-8"))  # to parse all takes longer than most tests
    }
    assert {name: calls for name, calls in found.items() if calls} == {
        "common/processes.py": ["Popen", "ProcessPoolExecutor", "create_subprocess_exec", "executable"]
    }
