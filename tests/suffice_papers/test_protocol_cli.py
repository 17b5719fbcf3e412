"""`suffice paper protocol`: tables, strict JSON, and a page that shows the same figures and asks no network."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from suffice.common.tables import render
from suffice.evaluation.statistics import Resampling
from suffice.recordings import write_recording
from suffice_papers.semantic import commands, given, semantic_protocol
from suffice_papers.semantic.data import marked
from suffice_papers.semantic.page import protocol_report
from suffice_papers.semantic.policies import CELLS
from tests.support.cli_tools import cli
from tests.support.protocol_tools import NAN, drafts, row, table
from tests.support.report_tools import HOSTILE, page_data

FAST = ("--set=resamples=50",)
N = 40


@pytest.fixture(scope="module", autouse=True)
def _each_protocol_is_computed_once():
    """Commands that print the same protocol in other forms share it; which command it is does not name the form."""
    kept = {}

    def once(recording, tuned, *, command, **settings):
        asked = (command, tuple(recording.question_ids))
        if asked not in kept:
            kept[asked] = semantic_protocol(recording, tuned, command=command, **settings)
        return kept[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "semantic_protocol", once)
        yield


def write(path, recording):
    write_recording(path, recording.table, recording.metadata)
    return path


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("protocol")
    test = write(folder / "test.parquet", drafts(N, approve=0.02, shorter=0.1))
    return test, write(folder / "dev.parquet", drafts(15, seed=1, prefix="d"))


@pytest.fixture(scope="module")
def few():
    return semantic_protocol(drafts(8), given(0.05), resampling=Resampling(n_resamples=20))


@pytest.fixture(scope="module")
def paged(paths, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "page.html"
    done = cli("paper", "protocol", paths[0], "--dev", paths[1], "-o", out, "--json", *FAST)
    assert (done.code, done.err) == (0, "")
    return done.json, out.read_text()


def test_a_screen_says_who_dominates_and_shows_table_1(paths):
    done = cli("paper", "protocol", *paths[:1], "--dev", paths[1], *FAST, code=0)
    lines = done.out.splitlines()
    verdict, _ = done.out.split("\nPolicies on identical drafts: ")
    assert verdict.startswith("judge_free (patience(")
    assert "DOMINATED" in verdict or "Not dominated" in verdict
    names = [line.split(" ")[0] for line in lines if line.startswith(("fixed_k", "judge_free  ", "random", "oracle"))]
    assert names[:7] == [*(f"fixed_k({k})" for k in range(1, 7)), "judge_free"]
    assert len(lines) <= 45
    assert max(len(line.rstrip()) for line in lines if line.startswith("fixed_k")) <= 100
    assert "more: --details" in done.out
    assert lines[-1].startswith("next: suffice paper protocol ")


def test_details_show_every_table_and_a_sentence_for_each_policy(paths):
    done = cli("paper", "protocol", *paths[:1], "--dev", paths[1], *FAST, "--details")
    lines = done.out.splitlines()
    for title in (
        "Table 1.",
        "Table 2.",
        "Paired tests",
        "Is the loss",
        "Distance of each",
        "The conjecture",
        "Dev:",
        "Table 3.",
    ):
        assert sum(line.startswith(title) for line in lines) == 1, title
    assert [line for line in lines if line.startswith(("judge_free (pat", "cascade (first", "critic_only (cri"))]
    assert "suffice paper protocol test.parquet --dev dev.parquet" in done.out


def test_json_holds_every_table_with_columns_of_different_names(paged, few):
    told, _ = paged
    assert told["baseline"] == "fixed_k(6)"
    assert {len(t["rows"][0]) for t in told["tables"]} > {2}
    for item in told["tables"]:
        assert len({len(cells) for cells in item["rows"]}) == 1
    first = {cells["policy"].split(" ")[0]: cells for cells in told["tables"][0]["rows"]}
    assert first["fixed_k(1)"]["rounds"] == 1
    assert set(told["dominated"]) == {
        "cascade",
        "no_critic",
        "no_convergence",
        "no_gain",
        "critic_only",
        "judge_free",
        "gain_only",
    }
    assert told["convergence_rule"]["how"] == "selected on dev"
    assert [claim["holds"] for claim in told["claims"]] == [True] * 5
    for item in few.tables():
        names = [column.name for column in item.columns]
        assert len(set(names)) == len(names), item.title


def test_without_dev_a_quarter_of_the_questions_is_set_aside(paths):
    done = cli("paper", "protocol", paths[0], "--json", *FAST)
    told = done.json
    assert told["n"] + told["convergence_rule"]["n_dev"] == N
    assert told["convergence_rule"]["n_dev"] > 5
    other = cli("paper", "protocol", paths[0], "--set=dev-share=0.5", "--json", *FAST).json
    assert other["convergence_rule"]["n_dev"] > told["convergence_rule"]["n_dev"]
    assert "--set dev-share=0.5" in other["command"]


def test_a_fixed_eps_uses_every_question_and_says_given(paths):
    told = cli("paper", "protocol", paths[0], "--set=eps=0.05", "--set=patience=3", "--json", *FAST).json
    assert (told["n"], told["convergence_rule"]["how"]) == (N, "given")
    assert (told["convergence_rule"]["eps"], told["convergence_rule"]["patience"]) == (0.05, 3)
    assert (
        cli("paper", "protocol", paths[0], "--set=eps=0.05", "--json", *FAST).json["convergence_rule"]["patience"] == 2
    )


def test_the_published_ledger_charges_the_judge_in_every_round(paths):
    def tokens(*options):
        told = cli("paper", "protocol", paths[0], "--set=eps=0.03", "--json", *FAST, *options).json
        return {cells["policy"].split(" ")[0]: cells["tokens"] for cells in told["tables"][0]["rows"]}, told

    live, _ = tokens()
    published, told = tokens("--set=ledger=published")
    assert told["ledger"] == "published"
    assert published["cascade"] > live["cascade"]
    assert published["oracle_best"] > live["oracle_best"]
    assert published["judge_free"] > live["judge_free"]  # the last critique, which nobody reads live
    assert any("charged as Semantic Early-Stopping published it" in note for note in told["notes"])


def test_the_selected_policy_can_be_saved_and_replayed(paths, tmp_path):
    saved = tmp_path / "policy.json"
    done = cli("paper", "protocol", paths[0], "--dev", paths[1], "--policy", saved, "--json", *FAST)
    assert done.json["policy"] == str(saved)
    told = {cells["policy"].split(" ")[0]: cells for cells in done.json["tables"][0]["rows"]}
    again = cli("replay", paths[0], "--policy", saved, "--metric", "information_score", "--json", *FAST).json["rows"][0]
    assert again["metrics"]["information_score"] == pytest.approx(told["judge_free"]["information_score"])
    assert again["costs"]["tokens"] == pytest.approx(told["judge_free"]["tokens"])
    assert not again["selected_here"]
    assert cli("replay", paths[1], "--policy", saved, "--metric", "information_score", "--json", *FAST).json["rows"][0][
        "selected_here"
    ]


def test_a_bundled_recording_goes_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = cli("paper", "protocol", "self_refine_gpt4", "--metric", "target_sentiment", "--json", *FAST, code=0)
    assert done.json["dominated"]["judge_free"] == "fixed_k(2)"
    assert done.json["n"] > 250
    assert set(CELLS) <= set(done.json["dominated"]), "the mark that a judge gave has a rise, so no member is missing"
    assert any("gives target_sentiment, the quality itself" in note for note in done.json["notes"])


def test_the_rise_of_a_judges_mark_is_the_cascades_gain():
    rows = [
        row | {"cost.judge:tone.calls": 1.0, "tone": row["information_score"]} for row in drafts(4).table.to_pylist()
    ]
    for item in rows:
        item.pop("information_gain")
    recording = table(rows)
    found = marked(recording, "tone")
    tone, gain = found.column("tone"), found.column("information_gain")
    assert np.isnan(gain[:, 0]).all()
    np.testing.assert_allclose(gain[:, 1:], tone[:, 1:] - tone[:, :-1])
    assert found.signal_components["information_gain"] == "judge:tone"
    assert marked(recording, "critic_approved") is recording, "no judge of that name was paid"
    assert marked(found, "tone") is found


@pytest.mark.parametrize("form", ["md", "csv", "latex"])
def test_tables_go_to_a_file_in_the_form_that_its_name_says(paths, tmp_path, form):
    out = tmp_path / f"tables.{form}"
    assert cli("paper", "protocol", paths[0], "--set=eps=0.05", "-o", out, *FAST).code == 0
    assert "fixed" in out.read_text()
    if form == "md":
        assert out.read_text().startswith("# Semantic early stopping: test\n\njudge_free (")


def test_the_figures_of_the_page_are_also_pictures(paths, tmp_path):
    done = cli("paper", "protocol", paths[0], "--set=eps=0.05", f"--set=figures={tmp_path}", *FAST)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"protocol-{name}.svg" for name in ("distance", "frontier", "saved")
    ]
    assert "distance to the draft before" in (tmp_path / "protocol-distance.svg").read_text("utf-8")
    assert f"figures written to {tmp_path}" in done.words


def test_the_page_shows_the_protocol_first_with_the_figures_of_the_json(paged):
    told, page = paged
    assert page.index("Semantic early stopping</h2>") < page.index("Quality against cost</h2>")
    for sentence in told["headlines"]:
        assert sentence.replace("<", "&lt;").replace(">", "&gt;") in page
    assert "Table 1. Policies" in page
    assert "Table 2. Ablations" in page
    assert "Table 3. Claims" in page
    charts = page_data(page)["cells"][0]["charts"]
    points = {p["label"]: p for p in charts["protocol-frontier"]["data"]["values"]}
    rows = {cells["policy"].split(" ")[0]: cells for cells in told["tables"][0]["rows"]}
    for label in ("fixed_k(1)", "fixed_k(6)", "judge_free"):
        [point] = [p for name, p in points.items() if label in name.split(", ")]
        assert point["quality"] == pytest.approx(100 * rows[label]["information_score"])
        assert point["cost"] == pytest.approx(rows[label]["rounds"])
    distances = charts["protocol-distance"]["data"]["values"]
    assert [d["mean"] for d in distances] == pytest.approx([r["mean"] for r in told["conjecture"]["rounds"]])
    saved = {s["policy"]: s["saved"] for s in charts["protocol-saved"]["data"]["values"]}
    assert saved["judge_free"] == pytest.approx(rows["judge_free"]["tokens saved, %"]["value"])


def test_the_page_needs_no_network_and_keeps_hostile_names_in_their_place(tmp_path):
    rows = [
        row(f"q{q}{HOSTILE[q % len(HOSTILE)]}", r, distance=NAN if r == 1 else 0.1 / r, answer=HOSTILE[r])
        for q in range(16)
        for r in (1, 2, 3, 4)
    ]
    path, out = write(tmp_path / "r.parquet", table(rows)), tmp_path / "page.html"
    assert cli("paper", "protocol", path, "--set=eps=0.05", "-o", out, *FAST).code == 0
    page = out.read_text()
    assert "alert(1)</script>" not in page
    assert not re.search(r"""(?:src|href)=["']?(?:https?:|//)""", page)
    assert page_data(page)


def test_the_tables_of_the_report_hold_those_of_the_protocol(few):
    report = protocol_report(few, "drafts")
    tables = list(report.tables())
    assert [cell.name for cell in report.cells] == ["drafts"]
    assert [t.title for t in tables][: len(few.tables())] == [t.title for t in few.tables()]
    assert report.cells[0].result.baseline == "fixed_k(6)"
    assert report.cells[0].result.cost == few.result.cost == "tokens"
    assert report.cells[0].rules[0].dominated_by == few.result.row("judge_free").dominated_by
    json.dumps(report.to_dict(), allow_nan=False)
    assert render(few.tables(), "md")


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--set=eps=0.05", "--set=preset=bge"], 2, "choose one"),
        (["--set=patience=2"], 2, "goes with eps"),
        (["--set=preset=minilm"], 2, "allowed: bge"),
        (["--set=ledger=theirs"], 2, "allowed: live"),
        (["-o", "page.pdf"], 2, "allowed endings"),
        (["--set=dev-share=2"], 1, "strictly between 0 and 1"),
        (["--set=eps=9"], 1, "lies in"),
        (["--set=preset=bge"], 1, "belongs to bge-small-en-v1.5"),
        (["--metric", "nothing"], 2, "no metric 'nothing'"),
        (["--set=tolerance=-1"], 1, "tolerance"),
        (["--dev", "{test}"], 1, "in dev and test"),
        (["--dev", "missing.parquet"], 2, "does not exist"),
    ],
)
def test_wrong_options_say_what_is_allowed(paths, options, code, told, tmp_path, monkeypatch):  # noqa: PLR0917
    monkeypatch.chdir(tmp_path)
    done = cli("paper", "protocol", paths[0], *[option.format(test=paths[0]) for option in options], *FAST)
    assert done.code == code
    assert told in " ".join(done.error.split())
    assert not list(tmp_path.iterdir())
