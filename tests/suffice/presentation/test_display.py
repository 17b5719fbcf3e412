"""How values show themselves: HTML of tables, data frames, charts, and the example notebook."""

import ast
import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from suffice import Calibrator, Policy, Round, Session, calibrate, certify, diagnose, read_recording, replay, report
from suffice.common.display import Chart, html_table, table_html as displayed
from suffice.common.tables import Column, Table, render
from suffice.errors import DataError
from suffice.evaluation.statistics import Resampling
from suffice.presentation import Settings
from suffice.recordings import bundled_recording
from suffice.verdicts.certificates import Claim

ROOT = Path(__file__).resolve().parents[3]
QUALITY = "target_sentiment"
HOSTILE = "<script>alert('x')</script> & \"more\""


@pytest.fixture(scope="module")
def recording():
    whole = bundled_recording("self_refine_dv3")
    return whole.select(np.arange(whole.shape[0]) < 40)


@pytest.fixture(scope="module")
def result(recording):
    return replay(recording, ["semantic(0.03)", "fixed_k(2)"], metrics=[QUALITY], resampling=Resampling(n_resamples=20))


def values(recording, result):
    policy, fit = calibrate(recording, rule="p_correct > 0.9", source="lexical_support", target=QUALITY)
    session = Session("fixed_k(1)")
    decision = session.observe(Round(index=1, answer=HOSTILE))
    claim = Claim(epsilon=0.3, metric=QUALITY)
    settings = Settings(metrics=(QUALITY,), resampling=Resampling(n_resamples=20))
    return {
        "recording": recording,
        "replay": result,
        "policy": policy,
        "calibration": fit,
        "decision": decision,
        "certification": certify(recording, ["fixed_k(2)"], claim),
        "diagnosis": diagnose(recording, metric=QUALITY, resampling=Resampling(n_resamples=20)),
        "report": report(recording, ["fixed_k(2)"], settings=settings),
    }


def test_every_kind_of_value_shows_itself_as_escaped_html(recording, result):
    for name, value in values(recording, result).items():
        page = value._repr_html_()
        assert page.startswith('<div class="suffice">'), name
        assert page.count("<table>") == page.count("</table>") == len(value.tables()), name
        assert "<script" not in page, name
        for text in (table.title for table in value.tables()):
            assert html_table(Table(title=text, columns=(), rows=())).splitlines()[2][9:-10] in page, name


def test_printed_a_value_is_its_sentence_and_its_first_table(recording, result):
    for name, value in values(recording, result).items():
        text = str(value)
        assert text.startswith(value.lead or f"**{value.tables()[0].title}**"), name
        assert text.endswith(render(value.tables()[:1], "md").rstrip()), name


def test_text_cannot_leave_its_cell():
    table = Table(
        title=HOSTILE, columns=(Column(HOSTILE), Column("n", ".0f")), rows=((HOSTILE, 1.0),), notes=(HOSTILE,)
    )
    page = html_table(table)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 5
    assert page.count('"') % 2 == 0


def test_a_decision_shows_its_answer_and_reason():
    decision = Session("fixed_k(1)").observe(Round(index=1, answer="Oslo"))
    assert decision.to_frame("pyarrow").to_pydict() == {
        "what": ["stop", "stop_round", "answer", "answer_round", "reason", "fired", "signals"],
        "value": ["yes", "1", "Oslo", "1", "rule", "round >= 1", "round = 1"],
    }


def test_a_policy_says_whether_its_certificate_holds():
    calibrator = Calibrator(output="p_correct", signal="answer_margin")
    calibrated = Policy(rule="p_correct > 0.5", calibrators=(calibrator,), depends={"model": "m"})
    shown = dict(calibrated.tables()[0].rows)
    assert shown["calibrated"] == "p_correct from answer_margin"
    assert shown["certificate"] == "none"
    assert (shown["rule"], shown["rounds"], shown["depends on"]) == ("p_correct > 0.5", "1 to 5", "model = m")
    plain = Policy(rule="tasr")
    valid = replace(plain, certificate={"policy_digest": plain.digest})
    assert dict(valid.tables()[0].rows)["certificate"] == "valid"
    changed = Policy(rule="tasr", certificate={"policy_digest": "another"})
    assert dict(changed.tables()[0].rows)["certificate"].startswith("void")


def test_frames_hold_raw_values_and_intervals_as_three_columns(result):
    frame = result.to_frame()
    assert isinstance(frame, pd.DataFrame)
    table = result.tables()[0]
    assert list(frame.columns) == table.flat()[0]
    quality = next(column.name for column in table.columns if column.name.lower() == QUALITY)
    np.testing.assert_allclose(frame[quality], [row.metrics[QUALITY] for row in result.rows])
    assert any(name.endswith(" low") for name in frame.columns)
    arrow = result.to_frame("pyarrow")
    assert isinstance(arrow, pa.Table)
    assert pa.table(result).equals(arrow)  # through the Arrow interface, as polars and others read it
    assert len(result.to_frame(table=1)) == len(result.tables()[1].rows)


def test_a_recording_is_a_frame_of_its_rows(recording):
    assert len(recording.to_frame()) == recording.table.num_rows
    assert pa.table(recording).equals(recording.table)
    facts = dict(recording.tables()[0].rows)
    assert facts["questions"] == "40"
    assert QUALITY in facts["metric columns"]


def test_an_unknown_or_absent_library_is_named(result, monkeypatch):
    with pytest.raises(DataError, match="'excel'"):
        result.to_frame("excel")

    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(displayed, "import_module", absent)
    assert isinstance(result.to_frame(), pa.Table)
    with pytest.raises(DataError, match="pip install polars"):
        result.to_frame("polars")


def test_polars_is_given_the_arrow_table(result, monkeypatch):
    class Polars:
        @staticmethod
        def from_arrow(table):
            return ("polars", table.num_rows)

    monkeypatch.setattr(displayed, "import_module", lambda name: Polars if name == "polars" else None)
    assert result.to_frame("polars") == ("polars", len(result.rows))


def test_a_column_of_text_and_numbers_is_text():
    table = Table(title="T", columns=(Column("r"), Column("n", ".1f")), rows=(("all", 1), (2, 0.5), (None, None)))
    assert displayed.arrow_table(table).to_pydict() == {"r": ["all", "2", None], "n": [1.0, 0.5, None]}


def test_charts_are_those_of_the_report_with_colours_of_their_own(recording, result):
    from suffice.evaluation.replay.charts import pareto_chart

    chart = result.plot()
    assert chart.spec == pareto_chart(result, "calls")
    _, fit = calibrate(recording, rule="p_correct > 0.9", source="lexical_support", target=QUALITY)
    for shown in (chart, fit.plot()):
        text = json.dumps(shown.to_dict())
        assert "var(" not in text
        assert "color-mix" not in text
        assert '"orient": "top"' in text
        bundle = shown._repr_mimebundle_()
        assert bundle["application/vnd.vegalite.v5+json"]["$schema"].endswith("/v5.json")
        assert bundle["application/vnd.vegalite.v6+json"] == shown.to_dict()
    with pytest.raises(DataError, match="'money'"):
        result.plot("money")
    with pytest.raises(DataError, match="'p_known'.*p_correct"):
        fit.plot("p_known")


def test_a_saved_chart_needs_no_network(tmp_path):
    path = tmp_path / "chart.html"
    Chart({"$schema": "x/v6.json", "description": HOSTILE, "width": "container"}).save(path)
    page = path.read_text("utf-8")
    assert not re.search(r"<script[^>]+src=|<link", page)
    assert HOSTILE not in page
    assert page.count("<script>") == page.count("</script>") == 4


@pytest.mark.usefixtures("remembered_windows")
def test_the_example_notebook_runs(tmp_path, monkeypatch):
    """Cell by cell, in an event loop as in a notebook; the value of a cell's last expression shows itself."""
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((ROOT / "examples" / "notebook.ipynb").read_text("utf-8"))
    assert notebook["nbformat"] == 4
    namespace, shown = {}, []

    async def run():
        for number, cell in enumerate(notebook["cells"]):
            if cell["cell_type"] != "code":
                continue
            assert cell["outputs"] == []
            source = "".join(cell["source"]).replace("limit=12", "limit=5")  # the reader takes most of the time
            tree = ast.parse(source, f"cell {number}")
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, f"cell {number}", "exec"), namespace)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), namespace)
                show = getattr(value, "_repr_html_", None) or getattr(value, "_repr_mimebundle_", None)
                shown.append(type(value).__name__ if show and show() else repr(value))

    asyncio.run(run())
    assert {"ReplayResult", "Chart", "Policy", "DataFrame", "Decision", "RecordSummary"} <= set(shown)
    assert read_recording("eval.parquet").shape[0] == 5
