"""Extension points: what one file adds, and how the command line finds it."""

import os
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from suffice import (
    METRICS,
    Policy,
    Round,
    Rounds,
    Rule,
    import_recording,
    parse_rule,
    register_importer,
    register_metric,
    register_rule,
    replay,
)
from suffice.cli import extensions, tree
from suffice.common import provided as provided_module
from suffice.common.provided import provided
from suffice.errors import DataError
from suffice.evaluation.replay import outcome
from suffice.importers import ImportedRun, ImportedTrajectory, importer, importer_names, importers, kind_of
from suffice.policy.rules import find_threshold, with_threshold
from suffice.recordings import Recording, read_recording, write_recording
from suffice.recordings.schema import build_table
from tests.suffice.package.test_docs import FILE, ROOT, commands, section
from tests.support.cli_tools import cli


@register_rule("test_ext_from")
@dataclass(frozen=True)
class From(Rule):
    """Fires where another rule does, from a round on."""

    rule: Rule
    first: int

    def fires(self, rounds):
        return self.rule.fires(rounds) & (rounds.index >= self.first)


def test_a_rule_around_a_rule_needs_nothing_but_when_it_fires():
    rule = From(parse_rule("(answer_stable >= 1) & (p_correct > 0.25)"), 3)
    assert str(rule) == "test_ext_from(((answer_stable >= 1) & (p_correct > 0.25)), 3)"
    assert parse_rule(str(rule)) == rule
    assert rule.signals == {"answer_stable", "p_correct"}
    assert with_threshold(rule, find_threshold(rule, "p_correct"), 0.5).rule == parse_rule(
        "(answer_stable >= 1) & (p_correct > 0.5)"
    )
    assert Policy(rule=str(rule)).rule == rule


def test_a_rule_reads_its_signals_at_every_round_by_default():
    rounds = Rounds.from_columns({"p_correct": [0.1, 0.9, 0.9]})
    reads = From(parse_rule("p_correct > 0.5"), 3).reads(rounds, np.array([False, False, True]))
    assert reads["p_correct"].tolist() == [True, True, True]


def recorded():
    rows = [
        {"question_id": q, "round": r, "end": "max_rounds", "answer": answer, "golds": golds}
        for q, golds, answers in (("a", ["Oslo"], ["Rome", "Oslo"]), ("b", [], ["x", None]))
        for r, answer in enumerate(answers, start=1)
    ]
    return Recording(build_table(rows))


def test_a_registered_metric_is_computed_where_a_recording_lacks_it():
    @register_metric("test_ext_length")
    def length(answer, golds):
        return float(any(len(answer or "") == len(gold) for gold in golds))

    assert METRICS["test_ext_length"] is length
    values = outcome(recorded(), "test_ext_length")
    np.testing.assert_array_equal(values, [[1.0, 1.0], [np.nan, np.nan]])
    of_a = recorded().select(np.array([True, False]))
    assert replay(of_a, ["fixed_k(1)"], metrics=["test_ext_length"]).rows[0].metrics == {"test_ext_length": 1.0}
    for name, message in (("test_ext_length", "already"), ("em", "already"), ("two words", "a metric")):
        with pytest.raises(DataError, match=message):
            register_metric(name)


def test_a_registered_importer_has_a_name_that_is_free():
    @register_importer("test_ext_format")
    def read(path):
        return path

    assert "test_ext_format" in importer_names()
    assert importer("test_ext_format") is read
    for name in ("test_ext_format", "tabular"):
        with pytest.raises(DataError, match="already"):
            register_importer(name)


def test_the_importer_of_the_how_to_works_by_its_own_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importers, "_REGISTERED", {})
    example, console, check = section_of_the_how_to("An importer", tmp_path)
    exec(compile(example.text, "section.md", "exec"), {})
    (arguments,) = commands(console.text)
    cli(*arguments, code=0)
    exec(compile(check.text, "section.md", "exec"), {})
    recording = read_recording("drafts.parquet")
    assert recording.metadata["source"] == "drafts_json"
    np.testing.assert_array_equal(recording.column("em"), [[0.0, 1.0, 1.0]])
    np.testing.assert_array_equal(recording.column("answer_stable"), [[np.nan, 0.0, 1.0]])


def test_an_importer_that_returns_something_else_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    register_importer("test_ext_nothing")(lambda path: [])
    with pytest.raises(DataError, match="test_ext_nothing"):
        import_recording(tmp_path / "a.jsonl", "test_ext_nothing", out=tmp_path / "r.parquet")


def test_an_imported_trajectory_scores_its_answers_unless_it_has_scores():
    rounds = (Round(index=1, answer="Rome"), Round(index=2, answer="Oslo"))
    shared = {"question_id": "q", "cluster": "q", "rounds": rounds, "end": "max_rounds"}
    run = ImportedRun(source="mine", trajectories=[ImportedTrajectory(golds=("Oslo",), **shared)])
    assert [row["em"] for row in run.rows()] == [0.0, 1.0]
    marked = ImportedTrajectory(golds=("Oslo",), metrics=({"mark": 0.5}, {"mark": 1.0}), **shared)
    assert [sorted(item) for item in marked.metrics] == [["mark"], ["mark"]]
    with pytest.raises(DataError, match="gold"):
        ImportedTrajectory(golds="Oslo", **shared)


@pytest.mark.parametrize("wrong", [{"end": "limit"}, {"metrics": ({"mark": 7.0},)}, {"metrics": ({"mark": -0.1},)}])
def test_an_importer_s_unknown_end_or_score_outside_the_unit_is_refused(wrong):
    shared = {"question_id": "q7", "cluster": "q7", "rounds": (Round(index=1, answer="Rome"),), "end": "max_rounds"}
    ImportedTrajectory(**shared | {"metrics": ({"mark": float("nan")},)})
    with pytest.raises(DataError, match="q7"):
        ImportedTrajectory(**shared | wrong)


def test_a_file_that_two_importers_recognise_needs_a_choice(tmp_path, monkeypatch):
    monkeypatch.setattr(importers, "_REGISTERED", {})
    (tmp_path / "a.jsonl").write_text('{"claimed": 1}\n')
    for name in ("test_ext_one", "test_ext_other"):
        register_importer(name, recognises=lambda head: head.has("claimed"))(lambda path: None)
    with pytest.raises(DataError, match="--kind"):
        kind_of(tmp_path / "a.jsonl")


def test_an_importer_whose_package_cannot_be_loaded_is_named(tmp_path, monkeypatch):
    entry = EntryPoint(name="test_ext_broken", value="no_such_module:read", group=importers.IMPORTERS)
    monkeypatch.setattr(importers, "by_name", lambda group: {entry.name: (entry,)})
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(DataError, match="no_such_module"):
        kind_of(tmp_path / "a.jsonl")


def test_the_command_line_imports_an_extension_once(tmp_path, monkeypatch):
    path = tmp_path / "test_ext_file.py"
    path.write_text(
        "from suffice import parse_rule, register_rule\nregister_rule('test_ext_own', lambda: parse_rule('round >= 2'))\n"
    )
    for _ in range(2):
        assert cli("--extension", path, "data", "signals").code == 0
    assert parse_rule("test_ext_own") == parse_rule("round >= 2")
    monkeypatch.setenv("SUFFICE_EXTENSIONS", f"{path} json")
    assert cli("data", "signals").code == 0


@pytest.mark.parametrize(("name", "text"), [("absent.py", None), ("broken.py", "def"), ("no_such_module", None)])
def test_an_extension_that_cannot_be_imported_is_named(tmp_path, name, text):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    failed = cli("--extension", path if name.endswith(".py") else name, "data", "signals")
    assert failed.code == (2 if name == "absent.py" else 1)  # a file that is not there is wrong usage
    assert f"{name}'" in failed.error


def test_modules_of_installed_packages_are_imported_by_their_entry_points(monkeypatch):
    loaded = []
    entry = EntryPoint(name="mine", value="json", group=extensions.EXTENSIONS)
    monkeypatch.setattr(EntryPoint, "load", lambda self: loaded.append(self.value))
    monkeypatch.setattr(extensions, "installed", lambda group: [entry] if group == extensions.EXTENSIONS else [])
    extensions.load_extensions(())
    assert loaded == ["json"]


def test_a_file_that_an_installed_package_has_imported_is_not_imported_again(tmp_path, monkeypatch):
    path = tmp_path / "test_ext_package" / "rules.py"
    path.parent.mkdir()
    path.write_text(
        "from suffice import parse_rule, register_rule\nregister_rule('test_ext_twice', lambda: parse_rule('round >= 2'))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = EntryPoint(name="mine", value="test_ext_package.rules", group=extensions.EXTENSIONS)
    monkeypatch.setattr(extensions, "installed", lambda group: [entry] if group == extensions.EXTENSIONS else [])
    extensions.load_extensions([str(path), "test_ext_package.rules"])
    assert parse_rule("test_ext_twice") == parse_rule("round >= 2")
    assert extensions.import_named(str(path)).__name__ == "test_ext_package.rules"


def section_of_the_how_to(heading, folder):
    """Write the files of a section of the how-to into a folder; return its blocks that are no file."""
    shown = section(ROOT / "docs" / "how-to" / "extend.md", heading)
    assert shown, heading
    rest = []
    for block in shown:
        if block.language == "python" and (file := FILE.match(block.text)):
            (folder / file["name"]).write_text(block.text, encoding="utf-8")
        else:
            rest.append(block)
    return rest


def suffice(folder, *words, **variables):
    """Run a command in a process of its own, in a folder outside the repository."""
    done = subprocess.run(
        [sys.executable, "-m", "suffice", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.whole
@pytest.mark.parametrize(
    ("heading", "key", "name"), [("A retriever", "retriever", "short_first"), ("A model", "model", "titles")]
)
def test_a_file_of_the_how_to_serves_the_record_command(heading, key, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = section_of_the_how_to(heading, tmp_path)
    (words,) = [words for block in shown if block.language == "console" for words in commands(block.text)]
    assert cli(*words).code == 0
    recording = read_recording(words[words.index("-o") + 1])
    assert name in str(recording.metadata["config"][key])
    assert len(recording.question_ids) == 2


@pytest.mark.whole
def test_the_store_of_the_how_to_answers_by_its_own_text(tmp_path, monkeypatch):
    example, console = section_of_the_how_to("A store", tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(compile(example.text, "extend.md", "exec"), {})
    (words,) = commands(console.text)
    assert "Norway" in suffice(tmp_path, *words)


def test_the_framework_of_the_how_to_ends_and_records_an_agent(tmp_path, monkeypatch):
    (example,) = section_of_the_how_to("A framework", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    exec(compile(example.text, "extend.md", "exec"), {})
    recording = read_recording("steps.parquet")
    assert recording.table["answer"].to_pylist() == ["Titus Andronicus", "The Tempest", "the Tempest."]
    assert recording.table["end"].to_pylist()[-1] == "rule"


def install(folder, name, version, **groups):
    """Put a package with entry points into a folder, as pip would."""
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    parts = [
        f"[suffice.{group}]\n" + "".join(f"{entry} = {value}\n" for entry, value in entries.items())
        for group, entries in groups.items()
    ]
    (place / "entry_points.txt").write_text("\n".join(parts))


@pytest.mark.whole
def test_the_command_of_the_how_to_runs_from_an_installed_package(tmp_path):
    site, here = tmp_path / "site", tmp_path / "here"
    site.mkdir()
    here.mkdir()
    project, shell = section_of_the_how_to("A command", site)
    stated = tomllib.loads(project.text)["project"]
    install(site, stated["name"], stated["version"], commands=stated["entry-points"]["suffice.commands"])
    write_recording(here / "run.parquet", recorded().table)
    asked = shlex.split(shell.text.splitlines()[-1])
    assert asked[0] == "suffice"
    assert suffice(here, *asked[1:], PYTHONPATH=str(site)).split() == ["Oslo", "Rome", "x"]


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder that packages may be installed into, with a module of two commands and an importer."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "test_ext_shop.py").write_text(
        "def tally():\n    '''Count.\n\n    Example: suffice tally\n    '''\n    print('tallied')\n\n\ndef read(path):\n    return path\n"
    )
    caches = (tree._plugins, tree.command_at, provided_module._provided)
    monkeypatch.syspath_prepend(str(folder))
    for cached in caches:
        cached.cache_clear()
    yield folder
    for cached in caches:
        cached.cache_clear()
    sys.modules.pop("test_ext_shop", None)


def test_a_package_may_add_a_group_of_commands(site):
    install(site, "shop", "1.0", commands={"shop.tally": "test_ext_shop:tally"})
    assert cli("shop", "tally").out == "tallied\n"
    assert "tally" in cli("shop", "--help").out


@pytest.mark.parametrize(
    ("packages", "words", "named"),
    [
        ([("one", "tally", "test_ext_shop:tally"), ("other", "tally", "test_ext_shop:tally")], ["tally"], "one, other"),
        ([("one", "tally", "test_ext_no_such:tally")], ["tally"], "test_ext_no_such"),
        ([("one", "tally", "test_ext_shop:absent")], ["tally"], "absent"),
        ([("one", "replay", "test_ext_shop:tally")], ["replay", "r.parquet"], "one"),
        ([("one", "replay.more", "test_ext_shop:tally")], ["replay", "r.parquet"], "no group"),
        ([("suffice-gates", "gate.train", "test_ext_shop:tally")], ["gate", "train"], "0.0.1"),
    ],
)
def test_a_command_that_cannot_be_used_is_one_line(site, packages, words, named):
    for package, place, value in packages:
        install(site, package, "0.0.1", commands={place: value})
    assert cli("--help").code == 0
    failed = cli(*words, code=1)
    assert named in failed.error
    assert failed.error.count("\n") == 1


def test_a_component_of_another_version_is_refused(site):
    install(site, "suffice-reader", "0.0.1", provides={"reader.MiniLM": "test_ext_shop:read"})
    with pytest.raises(DataError, match=r"0\.0\.1"):
        provided("reader.MiniLM")


def test_a_component_of_two_packages_is_refused(site):
    for name in ("one", "other"):
        install(site, name, "1.0", provides={"test_ext_part": "test_ext_shop:read"})
    with pytest.raises(DataError, match="one, other"):
        provided("test_ext_part")


def test_a_store_of_two_packages_is_refused(site):
    for name in ("one", "other"):
        install(site, name, "1.0", stores={"testext": "test_ext_shop:read"})
    assert "one, other" in cli("answer", "Who?", "--corpus", "testext://place").error


def test_an_importer_of_two_packages_is_refused(site, tmp_path):
    for name in ("one", "other"):
        install(site, name, "1.0", importers={"test_ext_format_of_two": "test_ext_shop:read"})
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    assert "one, other" in cli("import", tmp_path / "a.jsonl", "-o", tmp_path / "r.parquet").error


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--model", "{}/absent.py:Model"], "absent.py"),
        (["--model", "{}/mine.py:Absent"], "Absent"),
        (["--model", "{}/mine.py:Bare"], "fingerprint"),
        (["--model", "{}/mine.py:Bare", "--set=max-tokens=9"], "max-tokens"),
        (["--model", "{}/mine.py:Bare", "--local"], "--local"),
    ],
)
def test_a_model_of_ones_own_that_cannot_answer_is_refused(words, named, tmp_path):
    (tmp_path / "mine.py").write_text("class Bare:\n    name = 'bare'\n")
    words = [word.format(tmp_path) for word in words]
    assert named in cli("record", "hotpotqa_eval", "--limit", "1", "-o", tmp_path / "r.parquet", *words).error
    sys.modules.pop("mine", None)


def test_the_settings_file_cannot_name_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("raise SystemExit('it ran')\n")
    (tmp_path / "suffice.toml").write_text('model = "mine.py:Model"\n')
    assert "code" in cli("record", "hotpotqa_eval", "--limit", "1", "-o", "r.parquet").error
