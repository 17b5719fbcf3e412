"""Reports: the slider is a replay, the page holds what it says, and no text of a recording leaves its place."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from suffice.common.tables import FORMATS
from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay import Price, policy_for, replay
from suffice.evaluation.replay.baselines import run_policy
from suffice.evaluation.replay.charts import pareto_chart, reliability_chart, stops_chart
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.replay_tables import replay_notes, replay_tables
from suffice.evaluation.statistics import Resampling
from suffice.policy.calibration import calibration_report
from suffice.policy.rules import thresholds
from suffice.policy.rules.algebra import with_threshold
from suffice.presentation import Settings, make_report, render_html
from suffice.presentation.headline import headline
from suffice.presentation.html import LARGEST_PAGE
from suffice.presentation.slider import Pool, json_in_html, make_slider, slidable
from suffice.presentation.trajectories import Stopped, choose
from suffice.recordings import read_recording, write_recording
from suffice.verdicts.certificates import Claim, certify, listed
from tests.support.cli_tools import cli
from tests.support.money_logs import eur_recording
from tests.support.report_tools import HOSTILE, array, hostile, page_data, questions, recording, rows, trajectories
from tests.support.shared import recording_of
from tests.support.strategies import policies, recorded

SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TASR = "(answer_stable >= 1) & (p_correct > 0.25)"
JUDGED = "((p_correct > 0.4) & (judge_entailment >= 4)) | (overlap < 0.1)"
PRICE = Price(uncached=0.5, cached=0.05, output=1.5)
QUICK = Settings(resampling=Resampling(n_resamples=50))
FEW = "--set=resamples=20"


def prepared_for(kept, policy, metrics=("f1", "em"), price=PRICE):
    return PreparedRecording.of(kept, metrics, prices=price)


def replayed(prepared, policy, literal, threshold):
    """What `replay` says of the rule with another threshold."""
    run, _ = run_policy(prepared, replace(policy, rule=with_threshold(policy.rule, literal, threshold)))
    found = {name: values.mean() for name, values in run.values.items()}
    found |= {"calls": run.ledger.calls.mean(), "money": run.ledger.money.mean()}
    return found | {kind: run.ledger.total(kind).mean() for kind in ("tokens", "seconds")}, run


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    recording(folder / "eval.parquet", n=30, seed=1)
    recording(folder / "judged.parquet", n=24, seed=2, judged=True)
    hostile(folder / "hostile.parquet")
    return folder


@pytest.fixture(scope="module")
def report(files):
    kept = read_recording(files / "eval.parquet")
    made = [policy_for(kept, TASR, name="tasr"), policy_for(kept, "answer_stable")]
    return make_report({"eval": kept}, made, prices={"eval": {"generator": PRICE}}, settings=QUICK)


@pytest.fixture(scope="module")
def page(report):
    return render_html(report)


# The slider


@settings(SETTINGS, max_examples=25)
@given(data=st.data())
def test_the_slider_is_the_replay_at_every_threshold(data):
    item = data.draw(recorded(max_questions=4))
    policy = data.draw(policies(item.recording))
    assume(thresholds(policy.rule))
    prepared = prepared_for(item.recording, policy)
    literal = data.draw(st.sampled_from(thresholds(policy.rule)))
    slider = make_slider(prepared, policy, literal)
    near = [float(v) for v in slider.values.ravel() if math.isfinite(v)]
    at = data.draw(st.one_of(st.floats(-10, 10), st.sampled_from([*near, 0.0, 1e9, -1e9])))
    expected, run = replayed(prepared, policy, literal, at)
    found = slider.at(at)
    for name, value in expected.items():
        assert found.get(name, math.nan) == value or math.isnan(value), name
    region = slider.region(at)
    position = slider.stops[np.arange(len(region)), region]
    stop = np.where(position >= 0, slider.rounds[position], -1)
    assert stop.tolist() == run.rounds.tolist()


@pytest.mark.parametrize(("name", "rule"), [("eval", TASR), ("judged", JUDGED)])
def test_the_pages_data_reproduce_the_replay_exactly(files, name, rule):
    kept = read_recording(files / f"{name}.parquet")
    policy = policy_for(kept, rule)
    prepared = prepared_for(kept, policy)
    pool = Pool()
    for literal in thresholds(policy.rule):
        told = json.loads(json_in_html(make_slider(prepared, policy, literal).to_dict(pool)))
        arrays = [array(json.loads(json_in_html(packed))) for packed in pool.arrays]
        values, stops = arrays[told["values"]], arrays[told["stops"]]
        for at in np.linspace(told["low"], told["high"], 23).tolist():
            below = values <= at if told["closed"] else values < at
            region = below.sum(axis=1)
            place = np.arange(len(stops)), stops[np.arange(len(stops)), region]
            expected, _ = replayed(prepared, policy, literal, at)
            for key, entry in told["outcomes"].items():
                table = arrays[entry["array"]]
                column = table[place] if entry["by"] == "stop" else table[place[0], region]
                assert np.array_equal(column.mean(), expected[key], equal_nan=True), (str(literal), at, key)
    judged = {entry["by"] for entry in told["outcomes"].values()}
    assert judged == ({"stop", "region"} if name == "judged" else {"stop"})  # a judge is paid where its signal is read


@pytest.mark.parametrize("comparison", [">", ">=", "<", "<="])
def test_a_threshold_on_a_value_counts_it_as_the_comparison_does(files, comparison):
    kept = read_recording(files / "judged.parquet")
    policy = policy_for(kept, f"judge_entailment {comparison} 3")
    prepared = prepared_for(kept, policy)
    literal = thresholds(policy.rule)[0]
    slider = make_slider(prepared, policy, literal)
    for at in (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        expected, _ = replayed(prepared, policy, literal, at)
        found = slider.at(at)
        assert [found[name] for name in ("f1", "calls", "money")] == [expected[n] for n in ("f1", "calls", "money")]


def test_the_text_of_the_moved_rule_is_the_rule(files):
    kept = read_recording(files / "judged.parquet")
    for rule in (
        JUDGED,
        "p_correct > 0.4",
        "patience((p_correct > 0.4), 2)",
        "k_of(1, (p_correct > 0.4), (overlap < 1))",
    ):
        policy = policy_for(kept, rule)
        literal = slidable(policy)[0]
        told = make_slider(prepared_for(kept, policy), policy, literal).to_dict(Pool())
        inside = f"{told['signal']} {told['comparison']} 0.75"
        text = (f"({inside})" if told["parenthesised"] else inside).join(told["rule"])
        assert text == str(with_threshold(policy.rule, literal, 0.75))


def test_the_scale_has_round_steps_and_reaches_past_every_value(files):
    kept = read_recording(files / "eval.parquet")
    policy = policy_for(kept, TASR)
    prepared = prepared_for(kept, policy)
    for literal in thresholds(policy.rule):
        slider = make_slider(prepared, policy, literal)
        low, high, step = slider.scale()
        known = slider.values[np.isfinite(slider.values)]
        assert low < known.min()
        assert high > known.max()
        assert (high - low) / step <= 205
        assert f"{step:e}"[0] in "125"
    path = slider.path()
    assert all(a != b for a, b in itertools.pairwise(path))


def test_a_signal_without_a_value_still_slides():
    kept = recording_of([["a", "b"], ["b", "a"]], overlap=[[None, None], [None, None]])
    policy = policy_for(kept, "overlap > 0.5")
    slider = make_slider(prepared_for(kept, policy), policy, thresholds(policy.rule)[0])
    assert slider.at(-1.0) == slider.at(5.0)
    assert slider.scale()[0] < slider.scale()[1]


# Sentences


def test_the_headline_names_the_dominating_baseline_and_the_interval():
    kept = recording_of([["a", "b", "b"]] * 6 + [["b", "a", "a"]] * 2, answer_stable=[[None, 0.0, 1.0]] * 8)
    result = replay(kept, ["answer_stable"], resampling=Resampling(n_resamples=50))
    row = result.row("answer_stable")
    told = headline(result, "answer_stable")
    assert row.dominated_by == "fixed_k(1)"
    assert "it is dominated by fixed_k(1), which reaches 75.0 with 1.00 calls" in told.sentence
    assert told.sentence.startswith("On 8 questions, answer_stable reaches F1 25.0 with 3.00 model calls each")
    assert "95 % interval" in told.sentence


def test_an_unbeaten_rules_headline_names_the_cheapest_equal_or_none(report):
    for cell in report.cells:
        for row, told in zip(cell.rules, cell.headlines, strict=True):
            if row.dominated_by is None:
                name = row.cheapest_match or "no fixed budget and no random stopping"
                assert name in told.sentence
                assert "dominated" not in told.sentence


def test_what_limits_a_figure_is_said_beside_it(files):
    kept = read_recording(files / "eval.parquet")
    from suffice.policy.seen import id_hash

    seen = policy_for(kept, TASR, provenance={"tune_ids": [id_hash(q) for q in kept.question_ids[:7]]})
    result = replay(kept, [seen], metrics=("agreement",), resampling=Resampling(n_resamples=50))
    told = headline(result, seen.label)
    assert any("Selected here" in text and "7 of these questions" in text for text in told.caveats)
    assert any("not truth" in text for text in told.caveats)
    assert "agreement with the full budget" in told.sentence
    assert "selected here" in told.sentence
    cut = recording_of([["a", "b", "c"], ["a", "c"]], end="rule", answer_stable=[[None, 0.0, 0.0], [None, 0.0]])
    result = replay(cut, ["answer_stable"], resampling=Resampling(n_resamples=50))
    assert any("Censored (†): for 1 of 2" in text for text in headline(result, "answer_stable").caveats)


def test_a_certificate_is_quoted_and_a_changed_policy_has_none():
    n = 400
    kept = recording_of([["a", "a", "a"]] * n, answer_stable=[[None, 1.0, 1.0]] * n)
    policy = policy_for(kept, "answer_stable", name="as")
    found = certify(kept, listed([policy], policy), Claim(epsilon=0.05, metric="f1"))
    assert found.policy is not None
    quick = Settings(resampling=Resampling(n_resamples=20))
    told = make_report({"x": kept}, [found.policy], settings=quick).cells[0].headlines[0]
    assert "is certified: with 95 % confidence" in told.certificate
    changed = replace(found.policy, max_rounds=2)
    page = render_html(make_report({"x": kept}, [changed, found.policy], settings=quick))
    assert "is void: the policy was changed" in page
    assert "is certified: with 95 % confidence" in page


# Tables and charts


def test_the_tables_hold_the_rows_of_the_replay(report):
    result = report.cells[0].result
    outcomes, *_, costs, stops, margins = replay_tables(result)
    for row, told, paid, share in zip(result.rows, outcomes.rows, costs.rows, stops.rows, strict=True):
        assert told[1:3] == (row.metrics["f1"], row.metrics["em"])
        assert told[3] == (row.deltas["f1"].delta, row.deltas["f1"].low, row.deltas["f1"].high)
        assert told[5] == row.calls.mean
        assert paid[1] == row.costs["tokens"]
        assert sum(share[1:]) == pytest.approx(1)
    assert len(margins.rows) == sum(len(row.margins) for row in result.rows if row.kind == "rule")
    assert len(replay_notes(result)) == len(set(replay_notes(result)))


def test_the_pareto_chart_shows_every_row_with_its_interval_around_the_baseline(report):
    result = report.cells[0].result
    chart = pareto_chart(result, "calls")
    points = {label: point for point in chart["data"]["values"] for label in point["label"].split(", ")}
    assert set(points) == {row.label for row in result.rows}
    base = result.row(result.baseline)
    for row in result.rows:
        point = points[row.label]
        assert point["quality"] == pytest.approx(100 * row.metrics["f1"])
        assert point["cost"] == pytest.approx(row.calls.mean)
        if row.label != result.baseline:
            assert point["low"] == pytest.approx(100 * (base.metrics["f1"] + row.deltas["f1"].low))
            assert point["low"] <= point["quality"] + 1e-9 <= point["high"] + 2e-9
    assert {"rule", "random", "fixed", "oracle"} == {point["kind"] for point in points.values()}


def test_the_stop_chart_shares_add_up(report):
    cell = report.cells[0]
    values = stops_chart(cell.result, cell.rules)["data"]["values"]
    for row in cell.rules:
        assert sum(point["share"] for point in values if point["policy"] == row.label) == pytest.approx(1)


def test_reliability_is_the_calibration_report_of_each_round():
    rng = np.random.default_rng(0)
    p, y = rng.random(200), (rng.random(200) < 0.5).astype(float)
    found = {"all rounds": calibration_report(p, y)}
    values = reliability_chart(found, "p_correct")["data"]["values"]
    assert [(v["predicted"], v["n"]) for v in values] == [(b.predicted, b.n) for b in found["all rounds"].bins if b.n]


# Which questions


def test_disagreements_come_first_then_a_seeded_sample(files):
    kept = read_recording(files / "eval.parquet")
    policy = policy_for(kept, "round >= 1")
    prepared = prepared_for(kept, policy)
    stopped = Stopped.of(prepared, policy)
    differs = np.flatnonzero(stopped.differs)
    n = len(kept.question_ids)
    assert 0 < len(differs) < n - 5
    few = choose([stopped], n, len(differs) + 5, seed=1)
    assert set(differs) <= set(few.chosen.tolist())
    assert (few.disagreements, few.left_out) == (len(differs), n - len(differs) - 5)
    assert f"all {len(differs)} with another answer" in few.sentence(1)
    assert f"{n - len(differs) - 5} are left out" in few.sentence(1)
    assert choose([stopped], n, 10, seed=1).chosen.tolist() == choose([stopped], n, 10, seed=1).chosen.tolist()
    assert choose([stopped], n, 10, seed=1).chosen.tolist() != choose([stopped], n, 10, seed=2).chosen.tolist()
    assert set(choose([stopped], n, 10, seed=1).chosen) <= set(differs)
    assert choose([stopped], n, n, seed=1).sentence(1) == f"All {n} questions are here."
    last = kept.seen.sum(axis=1) - 1
    for q in range(n):
        first, full = kept.answers[q, 0], kept.answers[q, last[q]]
        assert stopped.differs[q] == (first.lower() != full.lower())


def test_a_trajectory_says_why_it_stopped_and_what_came_later(page, report):
    cell = report.cells[0]
    held = trajectories(page_data(page)["cells"][0])
    assert [item["id"] for item in held] == cell.prepared.recording.question_ids
    for q, item in enumerate(held):
        assert [one["round"] for one in item["rounds"]] == cell.prepared.recording.index[
            cell.prepared.recording.seen[q]
        ].tolist()
        for stopped, told in zip(cell.stopped, item["policies"], strict=True):
            assert told["stop"] == stopped.stops.rounds[q]
            assert (told["reason"] == "rule") == (told["fired"] is not None) == bool(stopped.stops.fired[q])
        assert item["golds"]
        seen, prepared = cell.prepared.recording.seen[q], cell.prepared
        assert [one["signals"]["p_correct"] for one in item["rounds"]] == pytest.approx(
            prepared.recording.column("p_correct")[q, seen], abs=1e-3
        )
        assert [one["metrics"]["f1"] for one in item["rounds"]] == pytest.approx(
            prepared.metrics["f1"][q, seen], abs=1e-5
        )


# The page


class Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.scripts, self.attributes, self._inside = [], [], [], False

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_data(self, data):
        if self._inside:
            self.scripts[-1] += data

    def handle_endtag(self, tag):
        self._inside = False


def test_a_page_shows_money_in_the_currency_of_its_log(tmp_path):
    kept = eur_recording(tmp_path, n=20)
    quick = Settings(metrics=("match",), resampling=Resampling(n_resamples=20))
    made = make_report({"log": kept}, [policy_for(kept, "spend > 0.004")], settings=quick)
    page = render_html(made)
    (cell,) = page_data(page)["cells"]
    assert cell["currency"] == "EUR"
    assert "money" in cell["sliders"][0]["outcomes"]
    assert "EUR per question" in json.dumps(cell["charts"]["pareto-money"])
    assert re.search(r'for="[^"]*cost-money">EUR</label>', page)
    assert "<dt>EUR</dt>" in page
    assert "USD" not in re.sub(r"<script\b.*?</script>", "", page, flags=re.DOTALL)
    assert made.to_dict()["cells"][0]["replay"]["currency"] == "EUR"


def test_no_text_of_a_recording_becomes_markup(files):
    kept = read_recording(files / "hostile.parquet")
    name = HOSTILE[1]
    made = make_report({name: kept}, [policy_for(kept, TASR, name=HOSTILE[3])], settings=Settings(command=HOSTILE[0]))
    page = render_html(made)
    found = Elements()
    found.feed(page)
    assert found.tags.count("script") == 5
    assert not {"img", "iframe", "object", "base"} & set(found.tags)
    assert not [attribute for attribute in found.attributes if attribute.startswith("on")]
    assert not [attribute for attribute in found.attributes if attribute == "src"]
    outside = re.sub(r"<script\b.*?</script>", "", page, flags=re.DOTALL)
    assert "<script" not in outside
    assert "\u2028" not in page.partition('id="data">')[2].partition("</script>")[0]
    data = page_data(page)
    assert data["cells"][0]["name"] == name
    assert {item["question"] for item in trajectories(data["cells"][0])} == set(HOSTILE)


def test_the_page_allows_only_its_own_scripts(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    found = Elements()
    found.feed(page)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in found.scripts[1:]]
    assert re.findall(r"sha256-([^']+)'", policy) == hashes
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "connect-src" not in policy  # falls back to 'none'


def test_a_report_is_the_same_bytes_each_time(files, page):
    kept = read_recording(files / "eval.parquet")
    made = [policy_for(kept, TASR, name="tasr"), policy_for(kept, "answer_stable")]
    assert render_html(make_report({"eval": kept}, made, prices={"eval": {"generator": PRICE}}, settings=QUICK)) == page


def test_long_texts_leave_out_trajectories_and_all_keeps_them(tmp_path, monkeypatch):
    largest = 1_500_000
    monkeypatch.setattr("suffice.presentation.html.LARGEST_PAGE", largest)
    rng = np.random.default_rng(0)
    listed = rows(80)
    for row in listed:
        row["text"] = rng.integers(33, 126, 4_000).astype(np.uint8).tobytes().decode("ascii")
    write_recording(tmp_path / "long.parquet", listed)
    kept = read_recording(tmp_path / "long.parquet")
    made = make_report(
        {"long": kept}, [policy_for(kept, "answer_stable")], settings=Settings(resampling=Resampling(n_resamples=50))
    )
    capped, whole = render_html(made), render_html(made, everything=True)
    assert largest < LARGEST_PAGE
    assert len(capped.encode()) <= largest < len(whole.encode())
    held = page_data(capped)["cells"][0]["browser"]
    shown = trajectories(page_data(capped)["cells"][0])
    assert 0 < len(shown) < 80
    assert held["left_out"] == 80 - len(shown)
    assert f"{80 - len(shown)} are left out" in held["scope"]
    assert len(trajectories(page_data(whole)["cells"][0])) == 80


def test_sliders_that_do_not_fit_are_counted_and_leave_nothing_behind(files, monkeypatch):
    kept = read_recording(files / "judged.parquet")
    made = make_report(
        {"judged": kept}, [policy_for(kept, JUDGED)], settings=Settings(resampling=Resampling(n_resamples=20))
    )
    whole = page_data(render_html(made))
    assert len(whole["cells"][0]["sliders"]) == 3
    monkeypatch.setattr("suffice.presentation.html._RESERVED", LARGEST_PAGE)
    page = render_html(made)
    few = page_data(page)
    assert len(few["cells"][0]["sliders"]) == 1
    assert "2 more thresholds do not fit" in page
    assert few["arrays"] == whole["arrays"][: len(few["arrays"])]
    assert len(render_html(made, everything=True)) > len(page)


def test_at_most_300_trajectories_unless_all_are_asked_for(tmp_path):
    recording(tmp_path / "many.parquet", n=340)
    kept = read_recording(tmp_path / "many.parquet")
    made = make_report(
        {"many": kept}, [policy_for(kept, "answer_stable")], settings=Settings(resampling=Resampling(n_resamples=50))
    )
    assert len(trajectories(page_data(render_html(made))["cells"][0])) == 300
    assert len(trajectories(page_data(render_html(made, everything=True))["cells"][0])) == 340


# The command


def test_the_command_writes_a_page_and_says_the_headline(files, tmp_path):
    out = tmp_path / "deep" / "r.html"
    done = cli("report", files / "eval.parquet", "-o", out, "--rule", "answer_stable", FEW, code=0)
    assert "On 30 questions, answer_stable reaches F1" in done.out
    assert str(out) in done.out
    assert "suffice report eval.parquet --rule answer_stable --set resamples=20" in out.read_text("utf-8")
    assert not list(out.parent.glob(".*"))


def test_json_says_what_replay_says(files, tmp_path):
    out = tmp_path / "r.html"
    told = cli("report", files / "eval.parquet", "-o", out, "--rule", TASR, FEW, "--json").json
    replayed_ = cli("replay", files / "eval.parquet", "--rule", TASR, FEW, "--json").json
    assert told["cells"][0]["replay"] == replayed_
    assert told["report"] == str(out)
    assert out.is_file()


@pytest.mark.parametrize("form", [*FORMATS, "json"])
def test_every_format_prints_the_same_tables(files, tmp_path, form):
    arguments = [
        "report",
        files / "eval.parquet",
        files / "judged.parquet",
        "--rule",
        "answer_stable",
        FEW,
        "--format",
        form,
    ]
    printed = cli(*arguments, code=0)
    cli(*arguments, "-o", tmp_path / "out.txt", code=0)
    text = (tmp_path / "out.txt").read_text("utf-8")
    if form == "json":
        assert json.loads(text)["cells"] == printed.json["cells"]
        assert [cell["name"] for cell in printed.json["cells"]] == ["eval", "judged"]
    else:
        assert printed.out == text
        assert "fixed" in text
        assert "judged" in text


def test_several_recordings_have_a_table_together_and_a_cell_each(files, tmp_path):
    out = tmp_path / "two.html"
    done = cli(
        "report",
        files / "eval.parquet",
        files / "judged.parquet",
        "-o",
        out,
        "--rule",
        "answer_stable",
        FEW,
        "--details",
    )
    assert done.code == 0, done
    page = out.read_text("utf-8")
    assert "All recordings" in page
    assert [cell["name"] for cell in page_data(page)["cells"]] == ["eval", "judged"]
    assert " ".join(done.out.split()).count("questions, answer_stable reaches") == 2


def test_another_models_policy_is_left_out_of_a_cell_or_refused(files, tmp_path):
    one = read_recording(files / "eval.parquet")
    listed = rows(20)
    write_recording(tmp_path / "other.parquet", listed, {"depends": {"model": "other"}})
    other = read_recording(tmp_path / "other.parquet")
    fitted = policy_for(other, "answer_stable", name="theirs")
    bound = policy_for(one, "answer_stable", name="ours", depends={"model": "mine"})
    both = make_report(
        {"one": one, "other": other}, [fitted, bound], settings=Settings(resampling=Resampling(n_resamples=50))
    )
    assert [[policy.label for policy in cell.policies] for cell in both.cells] == [["theirs", "ours"], ["theirs"]]
    with pytest.raises(ConfigMismatchError, match="model"):
        make_report({"other": other}, [bound])


def test_a_rule_that_needs_a_calibrator_is_fitted_on_the_tune_recording(files, tmp_path):
    listed = rows(60, seed=5)
    for row in listed:
        row["answer_margin"] = row.pop("p_correct") * 3
    write_recording(tmp_path / "e.parquet", listed)
    for row in listed:
        row |= {"question_id": f"t{row['question_id']}", "question": f"For tuning: {row['question']}"}
    write_recording(tmp_path / "t.parquet", listed)
    told = cli(
        "report", tmp_path / "e.parquet", "--tune", tmp_path / "t.parquet", "-o", tmp_path / "r.html", FEW, "--json"
    ).json
    rules = [row for row in told["cells"][0]["replay"]["rows"] if row["kind"] == "rule"]
    assert not any(row["selected_here"] for row in rules)
    labels = [row["label"] for row in rules]
    assert labels == ["tasr", "tasr_guarded", "answer_stable", "answer_stable_guarded"]
    titles = [table["title"] for table in told["cells"][0]["tables"]]
    assert any("p_correct" in title for title in titles)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--format", "pdf"], 2, "'pdf'"),
        (["--rule", "answer_stable and"], 2, ""),
        (["--rule", "tasr", "--metric", "bleu"], 2, "no metric 'bleu'"),
        (["--policy", "nothing.json"], 2, "does not exist"),
        (["--baseline", "random(x)"], 2, ""),
    ],
)
def test_wrong_input_is_said(files, arguments, code, message):
    done = cli("report", files / "eval.parquet", *arguments)
    assert done.code == code, done
    assert message in done.error


def test_a_place_that_cannot_be_written_is_said(files, tmp_path):
    (tmp_path / "file").write_text("")
    done = cli(
        "report", files / "eval.parquet", "-o", tmp_path / "file" / "r.html", "--rule", "answer_stable", FEW, code=1
    )
    assert "read or written" in done.error


def test_nothing_to_report_is_refused():
    with pytest.raises(DataError, match="and a policy"):
        make_report({}, [])
    kept = recording_of([["a"]])
    with pytest.raises(DataError, match="metric"):
        make_report({"x": kept}, [policy_for(kept, "round >= 1")], settings=Settings(metrics=()))


def test_one_question_and_all_right_and_all_wrong_make_a_page():
    for answers in ([["a", "a", "a"]], [["b", "b", "b"]] * 3, [["a", "a", "a"]] * 3):
        kept = recording_of(answers, answer_stable=[[None, 1.0, 1.0]] * len(answers))
        made = make_report(
            {"x": kept}, [policy_for(kept, "answer_stable")], settings=Settings(resampling=Resampling(n_resamples=20))
        )
        assert len(trajectories(page_data(render_html(made))["cells"][0])) == len(answers)


def test_a_page_holds_the_evidence_that_some_round_saw_and_no_other(tmp_path):
    recording(tmp_path / "eval.parquet", n=20)
    data = questions(tmp_path / "questions.jsonl", n=20)
    cli("report", tmp_path / "eval.parquet", "--questions", data, "-o", tmp_path / "page.html", FEW, code=0)
    for held in trajectories(page_data((tmp_path / "page.html").read_text())["cells"][0]):
        assert list(held["passages"]) == held["rounds"][-1]["passage_ids"]  # 8 were given, 5 at most revealed
        number = held["id"].removeprefix("q")
        assert held["passages"][f"q{number}#0"] == [f"{HOSTILE[0]} {number}.0", f"Text 0. {HOSTILE[1]}"]


def test_questions_that_are_not_there_are_refused(tmp_path):
    recording(tmp_path / "eval.parquet", n=5)
    told = cli("report", tmp_path / "eval.parquet", "--questions", "nowhere.jsonl", "-o", tmp_path / "page.html")
    assert told.code == 2
    assert "nowhere.jsonl" in told.err
    assert not (tmp_path / "page.html").exists()
