"""What the documentation shows runs, and what is generated is current.

In the README and in every page of docs/: `python` blocks run, one namespace for each page, but those
that begin with `# name.py` become that file, and those under a comment `<!-- run by tests/frameworks/FILE.py -->` run there,
with their framework, or in the named file of this folder; `console` blocks run their
`$ suffice ...` lines, against a scripted endpoint where they name http://localhost:8000/v1; `json` blocks parse;
`js` blocks run in test_javascript.py; what
cannot run here is an `sh` block under a comment `<!-- not run: WHY -->`, and those are counted.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from docs import build

from suffice.common import provided
from suffice.recordings import read_recording
from suffice_gates.commands import compare_gates
from suffice_gates.gates import load_answered
from suffice_papers.semantic import theory
from suffice_reader.minilm import MiniLM
from tests.support import quick
from tests.support.batches import BatchEndpoint
from tests.support.endpoint import prompt_of

pytestmark = pytest.mark.usefixtures("no_collecting", "quick_reader")  # test_cli_live.py has the real one

ENCODED, READ = MiniLM._mean, provided._read
ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
URL = "http://localhost:8000/v1"
DRAWN = "docs/results/gallery.md"
"""The page whose pictures are drawn; others are empty, as each takes a tenth of a second."""
NOT_RUN = 35
"""Blocks of all pages that cannot run here: installing, downloading, and starting servers."""


_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (?P<name>\w+\.py)\n")
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int
    not_run: str | None
    elsewhere: str | None


def blocks(page):
    text = page.read_text("utf-8")
    found = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()].rstrip("\n").rpartition("\n")[2]
        reason = re.fullmatch(r"<!-- not run: (.+) -->", before)
        elsewhere = re.fullmatch(r"<!-- run by (tests/(?:frameworks|suffice/package)/test_\w+\.py) -->", before)
        line = text.count("\n", 0, match.start()) + 1
        named = [comment[1] if comment else None for comment in (reason, elsewhere)]
        found.append(Block(match["language"], match["text"], line, *named))
    return found


def commands(text):
    """Return the arguments of each `$ suffice ...` line."""
    lines = text.replace("\\\n", " ").splitlines()
    asked = [line[2:] for line in lines if line.startswith("$ ")]
    assert asked, "a console block shows at least one command"
    split = [shlex.split(line) for line in asked]
    assert all(words[0] == "suffice" for words in split), "console blocks hold `suffice` commands; others are `sh`"
    return [words[1:] for words in split]


def execute(page, url):
    """Run a page in the folder of now."""
    from suffice.cli.main import run

    namespace = {"__name__": "__main__"}
    for block in blocks(page):
        if block.not_run is not None or block.elsewhere is not None:
            continue
        sys.stdout.write(f"-- {page.name}:{block.line}\n")
        text = block.text.replace(URL, url)
        if block.language == "python" and (file := FILE.match(text)):
            Path(file["name"]).write_text(text, encoding="utf-8")
        elif block.language == "python":
            # Padded, so that a traceback names the line of the page.
            exec(compile("\n" * block.line + text, str(page), "exec"), namespace)
        elif block.language == "console":
            for arguments in commands(text):
                sys.stdout.write(f"$ suffice {shlex.join(arguments)}\n")
                with pytest.raises(SystemExit) as ended:
                    run(arguments)
                assert ended.value.code in (0, None), f"{page.name}:{block.line}: exit code {ended.value.code}"


def judgement(prompt):
    """Judge in every shape at once."""
    noise = zlib.crc32(prompt.encode())
    passages = [{"number": i, "useful": True} for i in range(1, prompt.count("\nPassage ") + 1)]
    statements = [{"statement": "s", "supported": bool(noise >> i & 1)} for i in range(3)]
    better = "A" if prompt.count("Oslo", prompt.find("Draft A"), prompt.find("Draft B")) else "B"
    verdict = {"needed": "n", "found": "f", "sufficient": bool(noise % 2)}
    return json.dumps({"statements": statements, "passages": passages, "mark": noise % 5, "better": better, **verdict})


def reply(body):
    """Answer something that depends on the question, and changes once as evidence comes."""
    prompt = prompt_of(body)
    if "Proposed answer" in prompt:
        return "Mark: 4"
    if "response_format" in body:
        return judgement(prompt)
    if "Task: review" in prompt:
        return "Approved."
    passages = prompt.count("\nPassage ")
    word = ("yes", "no", "Oslo", "1961")[zlib.crc32(prompt.partition("\n\nPassage")[0].encode()) % 4]
    return f"Answer: {'unsure' if passages < 2 else word}\nConfidence: 4"


@cache
def entry_points():
    """Return those of all packages: the product reads them again whenever the folder of a page has another file."""
    return READ(())


def labels(folder):
    """Return the texts in the picture of savings."""
    return re.findall(r"<text[^>]*>([^<]+)", (folder / "savings.svg").read_text("utf-8"))


@pytest.mark.whole
@pytest.mark.parametrize("name", [name for name, page in zip(NAMES, PAGES, strict=True) if blocks(page)])
def test_the_examples_of_the_page_run(name, tmp_path, monkeypatch):
    for variable in [variable for variable in os.environ if variable.startswith(("OPENAI_", "SUFFICE_"))]:
        monkeypatch.delenv(variable)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])  # for the modules that a page writes
    monkeypatch.setattr(compare_gates, "load_answered", lambda source: load_answered(source)[:40])
    monkeypatch.setattr(theory, "_SAMPLE", 10)  # of 200 questions for each set of members, in five recordings
    monkeypatch.setattr(provided, "_read", lambda _: entry_points())
    if name != DRAWN:
        monkeypatch.setattr("suffice.common.display.chart.picture", quick.picture)
    if name == "docs/how-to/semantic-signals.md":  # it says when these drafts no longer change
        monkeypatch.setattr(MiniLM, "_mean", ENCODED)
    with BatchEndpoint(reply=reply) as endpoint:
        execute(ROOT / name, endpoint.url)
    if name == DRAWN:  # shows the picture that it draws
        assert labels(tmp_path) == labels(ROOT / "docs" / "results")
        assert "fixed_k(2)" in labels(tmp_path)
    for file in tmp_path.glob("*.py"):
        sys.modules.pop(file.stem, None)


def section(page, heading):
    """Return the blocks below a heading of the second level; those before the first one for an empty heading."""
    lines = page.read_text("utf-8").splitlines()
    headings = {0: ""} | {i: line[3:] for i, line in enumerate(lines, start=1) if line.startswith("## ")}
    return [block for block in blocks(page) if headings[max(i for i in headings if i < block.line)] == heading]


SECTIONS = {
    "": ["rising.py"],
    "A rule around a rule": ["not_before.py"],
    "A signal": ["settled.py", "cites.py"],
    "A selector": ["sure.py"],
    "A metric": ["starts_right.py"],
}
"""Sections of the how-to on extensions, and the files that each writes."""

IN_TURN = """
import json, sys
from suffice.cli.main import run

for words in json.loads(sys.argv[1]):
    try:
        run(words)
    except SystemExit as ended:
        assert not ended.code, words
"""


@pytest.mark.whole
def test_single_files_of_the_how_to_extend_the_command_line(tmp_path):
    page = ROOT / "docs" / "how-to" / "extend.md"
    asked = []
    for heading, files in SECTIONS.items():
        own = section(page, heading)
        written = {match["name"]: block.text for block in own if (match := FILE.match(block.text))}
        assert list(written) == files
        for name, text in written.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        said = [words for block in own if block.language == "console" for words in commands(block.text)]
        assert {words[1] for words in said if words[0] == "--extension"} == set(files)
        asked += said
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN, json.dumps(asked)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "different_answers" not in read_recording(tmp_path / "run.parquet").table.column_names


@pytest.mark.parametrize("name", NAMES)
def test_every_block_is_run_or_says_why_not(name):
    for block in blocks(ROOT / name):
        where = f"{name}:{block.line}"
        assert block.language in ("", "python", "console", "json", "toml", "sh", "ts", "js"), where
        assert block.language != "js" or name == "docs/how-to/javascript.md", where
        if block.language == "ts":  # a part of what tests/suffice_server/test_serve_cli.py runs with node
            assert block.text in (ROOT / "examples" / "typescript" / "client.ts").read_text("utf-8"), where
        assert (block.language == "sh") == (block.not_run is not None), f"{where}: `sh` and the comment go together"
        assert block.elsewhere is None or (block.language == "python" and (ROOT / block.elsewhere).is_file()), where
        if block.language == "json":
            json.loads(block.text)
        if block.language == "toml":
            tomllib.loads(block.text)
        if block.language == "console":
            commands(block.text)


def test_few_blocks_are_not_run():
    assert sum(block.not_run is not None for page in PAGES for block in blocks(page)) == NOT_RUN


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "how-to").glob("*.md")), ids=lambda page: page.stem)
def test_a_how_to_begins_with_its_shortest_working_path(page):
    assert blocks(page)[0].line <= 5  # after the title and one sentence at most


def test_the_readme_is_short():
    assert 700 <= len((ROOT / "README.md").read_text("utf-8").split()) <= 900


def test_readme_examples_need_one_import_and_at_most_twenty_lines():
    examples = [block.text for block in blocks(ROOT / "README.md") if block.language == "python"]
    assert [sum(line.startswith(("import ", "from ")) for line in text.splitlines()) for text in examples] == [1]
    assert max(text.count("\n") for text in examples) <= 20


def anchors(page):
    """Return what links can name in a page: its headings in lower case, punctuation dropped, hyphens for spaces."""
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", [*NAMES, "CONTRIBUTING.md", "CHANGELOG.md", "DATA.md"])
def test_links_lead_somewhere(name):
    text = _FENCE.sub("", (ROOT / name).read_text("utf-8"))
    for match in _LINK.finditer(text):
        target, _, anchor = match["target"].partition("#")
        if "://" in target:
            continue
        page = (ROOT / name).parent / target if target else ROOT / name
        assert page.exists(), f"{name}: {target}"
        assert not anchor or anchor in anchors(page), f"{name}: {target}#{anchor}"


def test_the_code_and_tests_of_each_figure_exist():
    text = (ROOT / "docs" / "how-to" / "check-a-figure.md").read_text("utf-8")
    rows = [row.split("|")[2:4] for row in text.splitlines() if row.startswith("| ") and "`" in row][1:]
    named = [
        (root, name)
        for row in rows
        for root, cell in zip(("src", "tests"), row, strict=True)
        for name in re.findall("`(.+?)`", cell)
    ]
    assert len(named) > 40
    assert [name for root, name in named if not (ROOT / root / "suffice" / name).exists()] == []


def test_every_page_is_reached_from_the_index():
    seen, left = set(), [ROOT / "docs" / "index.md"]
    while left:
        page = left.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        for match in _LINK.finditer(page.read_text("utf-8")):
            target = match["target"].partition("#")[0]
            if target and "://" not in target:
                left.append((page.parent / target).resolve())
    assert set(PAGES) - {ROOT / "README.md"} <= seen


@pytest.mark.whole  # it starts processes, and goes through commands from end to end
def test_generated_parts_are_current(capsys):
    assert build.main(["--check"]) == 0, capsys.readouterr()


@pytest.mark.parametrize("dataset", ["hotpotqa", "2wiki"])
def test_the_figures_belong_to_what_ships(dataset):
    """Weights, questions and version: after a change of one of them, `make results`."""
    import suffice
    from suffice.loops.retrieval import dataset_hash

    found = json.loads((ROOT / "docs" / "results" / f"{dataset}.json").read_text("utf-8"))
    assert found["reader"] == suffice.SpanReaderModel().fingerprint()["revision"]
    assert found["suffice"] == suffice.__version__
    for split, expected in found["questions"].items():
        assert dataset_hash(suffice.load_questions(f"{dataset}_{split}")) == expected
    assert found["live"]["differences_from_replay"] == []


def test_the_exit_codes_are_those_of_the_command_line():
    from suffice.cli import main, tree
    from suffice.cli.watching import EXIT_CODES

    page = (ROOT / "docs" / "reference" / "command-line.md").read_text("utf-8")
    documented = re.findall(r"^\| (\d+) \|", page, re.MULTILINE)
    assert documented == ["0", "1", "2", "3", "4", "130"]
    assert set(EXIT_CODES.values()) == {0, 3, 4}
    assert re.findall(r"\b\d+\b", main.__doc__) == ["0", "1", "2", "130", "3", "4"]
    for words, command in tree.commands():
        assert f"`suffice {words}" in page or isinstance(command, tree.Group)


def test_the_policy_page_names_every_field():
    from suffice import Policy

    page = (ROOT / "docs" / "reference" / "policy.md").read_text("utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(Policy().to_dict())


def test_the_recording_page_names_every_column(tmp_path):
    import suffice
    from suffice.loops.retrieval import InMemoryRetriever

    questions = suffice.load_questions("2wiki_tune", limit=1)
    model = suffice.ScriptedModel(lambda question, passages: "yes")
    loop = suffice.RetrievalLoop(model=model, retriever=InMemoryRetriever(), policy=suffice.Policy(max_rounds=2))
    suffice.record(questions, loop, tmp_path / "r.parquet")
    recording = suffice.read_recording(tmp_path / "r.parquet")
    page = (ROOT / "docs" / "reference" / "recording.md").read_text("utf-8")
    generic = {*suffice.SIGNALS, *recording.names("cost")}
    for column in recording.table.column_names:
        assert column in generic or f"`{column}`" in page, column
    for kind in ("calls", "uncached_tokens", "cached_tokens", "output_tokens", "seconds"):
        assert f"`{kind}`" in page
    for key in recording.metadata:
        assert f"`{key}`" in page, key
