"""Extension points: what one file adds, and how the command line finds it."""

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
from suffice.cli import extensions
from suffice.errors import DataError
from suffice.evaluation.replay import outcome
from suffice.importers import ImportedRun, ImportedTrajectory, importer, importer_names, importers, kind_of
from suffice.policy.rules import find_threshold, with_threshold
from suffice.recordings import Recording, read_recording
from suffice.recordings.schema import build_table
from tests.suffice.package.test_docs import ROOT, blocks, commands
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


def test_by_default_a_rule_reads_its_signals_at_every_round_because_it_may_look_back():
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
    for name, message in (("test_ext_length", "already"), ("em", "already"), ("two words", "cannot name a metric")):
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
    page = (ROOT / "docs" / "how-to" / "extend.md").read_text("utf-8")
    section = page.partition("\n## An importer\n")[2].partition("\n## ")[0]
    (tmp_path / "section.md").write_text(section, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importers, "_REGISTERED", {})
    extension, example, console = blocks(tmp_path / "section.md")
    assert extension.text.startswith("# drafts_json.py\n")
    (tmp_path / "drafts_json.py").write_text(extension.text, encoding="utf-8")
    exec(compile(example.text, "section.md", "exec"), {})
    (arguments,) = commands(console.text)
    done = cli(*arguments)
    assert done.code == 0, done.error
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


def test_a_file_that_two_importers_recognise_needs_a_choice(tmp_path, monkeypatch):
    monkeypatch.setattr(importers, "_REGISTERED", {})
    (tmp_path / "a.jsonl").write_text('{"claimed": 1}\n')
    for name in ("test_ext_one", "test_ext_other"):
        register_importer(name, recognises=lambda head: head.has("claimed"))(lambda path: None)
    with pytest.raises(DataError, match="--kind"):
        kind_of(tmp_path / "a.jsonl")


def test_an_importer_whose_package_cannot_be_loaded_is_named(tmp_path, monkeypatch):
    entry = EntryPoint(name="test_ext_broken", value="no_such_module:read", group=importers.IMPORTERS)
    monkeypatch.setattr(importers, "importer_names", lambda: ("test_ext_broken",))
    monkeypatch.setattr(importers, "entry_points", lambda group, name: [entry])
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
    assert f"{name}' cannot be imported" in failed.error


def test_modules_of_installed_packages_are_imported_by_their_entry_points(monkeypatch):
    loaded = []
    entry = EntryPoint(name="mine", value="json", group=extensions.EXTENSIONS)
    monkeypatch.setattr(EntryPoint, "load", lambda self: loaded.append(self.value))
    monkeypatch.setattr(extensions, "entry_points", lambda group: [entry] if group == extensions.EXTENSIONS else [])
    extensions.load_extensions(())
    assert loaded == ["json"]
