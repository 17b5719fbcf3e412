"""What never ran is unknown: no command prints a figure that takes it for zero, on real answers cut by a coin."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from suffice.errors import CensoredError, UnknownSignalError
from suffice.evaluation.replay import policy_for, replay
from suffice.evaluation.replay.replay_tables import stops_table
from suffice.evaluation.search import search
from suffice.evaluation.statistics import Resampling
from suffice.policy.session import stops
from suffice.recordings.recording import Recording, write_recording
from suffice.recordings.schema import build_table
from suffice.verdicts.certificates import Claim
from suffice.verdicts.certificates.losses import measure_losses
from tests.support import strategies as drawn
from tests.support.cli_tools import cli
from tests.support.coin import RULE, no_false_gain
from tests.support.replayed import assert_same_replay, replay_in_blocks
from tests.support.strategies import Trajectory

FULL = "full"


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_whatever_rule_cut_a_recording_the_truth_lies_within_the_bounds(data):
    whole = data.draw(drawn.recorded(max_questions=5))
    if int(whole.recording.index[-1]) < 1:
        return
    log = data.draw(drawn.policies(whole.recording))
    ours = data.draw(st.lists(drawn.policies(whole.recording), min_size=1, max_size=3))
    ours = [replace(policy, name=f"p{n}") for n, policy in enumerate(ours)]
    stopped = stops(log, whole.recording.rounds(log.raw_columns))
    trajectories = []
    for q, item in enumerate(whole.trajectories):
        end = int(stopped.rounds[q])
        cut = stopped.fired[q] and end < item.rounds[-1].index
        kept = tuple(one for one in item.rounds if one.index <= end) if cut else item.rounds
        trajectories.append(Trajectory(question_id=item.question_id, rounds=kept, end="rule" if cut else item.end))
    left = drawn.record(trajectories)
    if left.index[-1] != whole.recording.index[-1]:
        return  # the recording's highest round has gone, and nobody could tell that there was one
    try:
        truth = replay(whole.recording, ours, metrics=("f1", "em"), resampling=Resampling(n_resamples=2))
        result = replay(left, ours, metrics=("f1", "em"), resampling=Resampling(n_resamples=2))
    except UnknownSignalError:
        return  # nothing is left of a signal
    labels = {row.label for row in truth.rows}
    for row in result.rows:
        if row.label not in labels:
            continue
        if row.kind == "random" and any(item.end == "exhausted" for item in whole.trajectories):
            continue  # a question that was cut may have had fewer rounds than it is dealt
        known = truth.row(row.label)
        for name, value in known.metrics.items():
            low, high = row.bounds.get(name, (row.metrics[name], row.metrics[name]))
            assert low - 1e-12 <= value <= high + 1e-12
            assert row.censored or row.metrics[name] == pytest.approx(value)
        assert row.calls.mean <= known.calls.mean + 1e-12


def test_the_coin_would_win_if_what_never_ran_were_zero(cut):
    assert cut.truth < -4
    assert cut.false_gain > 14
    assert 100 * replay(cut.whole, [RULE], metrics=("em",), baseline=FULL).row(RULE).deltas[
        "em"
    ].delta == pytest.approx(cut.truth)


def test_replay_bounds_what_a_coin_kept_from_running(cut):
    result = replay(cut.cut, [RULE, FULL], metrics=("em",), resampling=Resampling(n_resamples=50))
    ours, full = result.rows[:2]
    truth = replay(cut.whole, [RULE, FULL], metrics=("em",), resampling=Resampling(n_resamples=50))
    assert ours.metrics["em"] == truth.row(RULE).metrics["em"]
    assert (ours.censored, ours.undecided) == (False, ("cheapest_match", "dominated_by"))
    for row in result.rows:
        known = truth.row(row.label) if row.label != "recorded" else truth.row(RULE)
        if not row.censored:
            assert row.label in (RULE, "closed_book", "recorded")
            continue
        low, high = row.bounds["em"]
        assert math.isnan(row.metrics["em"])
        assert low <= known.metrics["em"] <= high
        assert not row.deltas
        assert not row.margins
        assert row.dominated_by is None
        low, high = row.delta_bounds["em"]
        assert low <= known.metrics["em"] - ours.metrics["em"] <= high
    assert full.n_censored == cut.heads.sum()
    assert result.baseline == "recorded"


def test_a_gates_random_twin_on_its_own_log_is_unknown(cut):
    result = replay(cut.cut, [RULE, "p_known > 0.3"], metrics=("em",), resampling=Resampling(n_resamples=50))
    twin = result.row(f"random({RULE})")
    assert twin.n_censored == cut.heads.sum()
    share = float(cut.heads.mean())  # of the stops at round 0: a cut question is dealt round 1 as often as the others
    low, high = twin.bounds["em"]
    assert high - low == pytest.approx(share * (1 - share))
    assert twin.stop_rounds == pytest.approx({0: share, 1: (1 - share) ** 2})
    assert all("random(" not in str(row.dominated_by) for row in result.rows)
    beyond = stops_table(result).rows[[row.label for row in result.rows].index(twin.label)]
    assert sum(beyond[1:]) == pytest.approx(1.0)


@pytest.mark.parametrize("baseline", [FULL, "fixed_k(1)", "fixed_k(3)"])
def test_replay_refuses_a_baseline_that_never_ran(cut, baseline):
    with pytest.raises(CensoredError, match="'recorded'"):
        replay(cut.cut, [RULE], metrics=("em",), baseline=baseline, resampling=Resampling(n_resamples=10))


def test_the_command_marks_every_row_and_prints_no_false_gain(cut, cut_path):
    arguments = ("replay", cut_path, "--rule", RULE, "--rule", FULL, "--metric", "em", "--set=resamples=50")
    short, printed = cli(*arguments), cli(*arguments, "--details")
    assert short.code == printed.code == 0
    no_false_gain(cut, short.out)
    no_false_gain(cut, printed.out)
    assert "note: † censored" in short.out
    for line in printed.out.splitlines():
        if re.match(r"(full|fixed_k\(1\)|random\((full|fixed_k\(1\))\)|oracle_\w+)\S*\s", line):
            assert "†" in line.split("  ")[0]
    assert "full†: em 18.0 .. 71.2" in printed.out
    assert f"censored: unknown in {cut.heads.sum()} of {len(cut.heads)} questions" in printed.out


@pytest.mark.parametrize(("em", "unknown"), [((0.0, 1.0), 0), ((1.0, 0.0), 0), ((0.0, 0.5), 1)])
def test_an_oracle_that_is_right_already_is_known_though_cut(em, unknown):
    whole = [{"question_id": "q1", "round": r, "em": 0.0, "end": "max_rounds"} for r in (1, 2, 3)]
    cut = [{"question_id": "q2", "round": r, "em": value, "end": "rule"} for r, value in enumerate(em, start=1)]
    rows = [{"answer": "a", "cost.generator.calls": 1.0, **row} for row in [*whole, *cut]]
    result = replay(Recording(build_table(rows)), ["fixed_k(1)"], metrics=("em",), resampling=Resampling(n_resamples=2))
    assert {result.row(name).n_censored for name in ("oracle_earliest", "oracle_best")} == {unknown}


def test_a_stream_has_the_bounds_of_replay(cut, cut_path):
    how = {"metrics": ("em",), "resampling": Resampling(n_resamples=20)}
    streamed = replay_in_blocks(cut_path, [RULE, FULL], **how, block_rows=7)
    assert streamed.row(FULL).censored
    assert_same_replay(streamed, replay(cut.cut, [RULE, FULL], **how), apart=("data_hash",))
    with pytest.raises(CensoredError, match="past"):
        replay_in_blocks(cut_path, RULE, **how, baseline=FULL)
    printed = cli("replay", cut_path, "--rule", RULE, "--metric", "em", "--set=resamples=20", code=0)
    no_false_gain(cut, printed.out)


def test_certify_refuses_what_never_ran(cut, cut_path):
    with pytest.raises(CensoredError, match="past"):
        measure_losses(cut.cut, [policy_for(cut.cut, RULE)], Claim(epsilon=0.03, metric="em"))
    rules, out = cut_path.parent / "rules.txt", cut_path.parent / "policy.json"
    rules.write_text(f"{RULE}\n")
    refused = cli("certify", cut_path, "--rules", rules, "--max-loss", "0.03", "--metric", "em", "-o", out)
    assert (refused.code, out.exists()) == (1, False)
    assert "a rule ended" in refused.error
    no_false_gain(cut, refused.out)


@pytest.mark.parametrize("form", ["md", "latex", "csv"])
def test_a_report_marks_bounds_and_says_so_in_its_first_sentence(cut, cut_path, form):
    told = cli(
        "report", cut_path, "--rule", FULL, "--rule", RULE, "--metric", "em", "--set=resamples=20", "--format", form
    )
    assert told.code == 0, told.err
    no_false_gain(cut, told.out)
    assert "full†" in told.out
    assert "not dominated" not in told.out


def test_the_page_omits_points_that_never_ran_and_says_so(cut, cut_path):
    out = cut_path.parent / "report.html"
    told = cli("report", cut_path, "--rule", FULL, "--metric", "em", "--set=resamples=20", "-o", out, "--json")
    (cell,) = told.json["cells"]
    (headline,) = cell["headlines"]
    assert "full† reaches EM between 18.0 and 71.2 with at least 0.47 model calls" in headline["sentence"]
    assert "because some rounds never ran" in headline["sentence"]
    assert headline["caveats"][0].startswith(f"Censored (†): for {cut.heads.sum()} of {len(cut.heads)} questions")
    page = out.read_text()
    assert "Rows with † are not drawn" in page
    no_false_gain(cut, headline["sentence"])
    rows = {row["label"]: row for row in cell["replay"]["rows"]}
    assert rows["full"]["metrics"]["em"] is None
    assert rows["full"]["bounds"]["em"] == pytest.approx([0.1803, 0.7123], abs=1e-4)


def test_a_search_refuses_what_never_ran(cut, cut_path):
    with pytest.raises(CensoredError, match="stop later"):
        search(cut.cut, metric="em")
    refused = cli("search", cut_path, "--metric", "em", code=1)
    no_false_gain(cut, refused.out)


def test_a_certificate_on_a_cut_log_says_that_nobody_knows_what_dominates(cut, tmp_path, cut_path):
    family = tmp_path / "rules.txt"
    family.write_text(RULE)
    told = ("certify", cut_path, "--rules", family, "--metric", "em", "--max-loss", "0.1", "--baseline", "closed_book")
    printed = cli(*told, code=0)
    assert "whether a fixed or random policy dominates it here is unknown" in " ".join(printed.out.split())
    assert "here: none" not in printed.out
    member = json.loads(cli(*told, "--json").out)["sequence"][0]
    assert (member["dominated_by"], member["undecided"]) == (None, ["cheapest_match", "dominated_by"])


def test_a_log_with_an_unmarked_cut_is_reported_or_refused(cut, tmp_path):
    rows = [{**row, "end": "max_rounds"} for row in cut.cut.table.to_pylist()]
    path, family = tmp_path / "unmarked.parquet", tmp_path / "rules.txt"
    write_recording(path, build_table(rows, kinds={"p_known": "signal"}), cut.cut.metadata)
    family.write_text(RULE)
    told = f"{cut.heads.sum()} recorded questions ended before round 1 and not by a rule: no answer here"
    assert told in cli("replay", path, "--rule", RULE, "--metric", "em", "--set=resamples=20").out
    assert f"full: {told}" in cli("certify", path, "--rules", family, "--metric", "em", "--max-loss", "0.1").out
    refused = cli("gate", "compare", path, "--column", "p_known", "--no-questions", "--set=resamples=20")
    assert refused.code != 0
    assert "answered both ways" in refused.err


def test_agreement_on_a_cut_log_never_claims_the_full_budget(tmp_path):
    ends = {"q0": "rule", "q1": "max_rounds", "q2": "max_rounds"}
    rows = [
        {"question_id": q, "round": r, "end": end, "answer": f"a{r}", "cost.generator.calls": 1.0}
        for q, end in ends.items()
        for r in range(1, 3 if q == "q0" else 4)
    ]
    path, family = tmp_path / "r.parquet", tmp_path / "rules.txt"
    write_recording(path, build_table(rows))
    family.write_text("fixed_k(1)")
    how = ("--metric", "agreement", "--baseline", "fixed_k(2)")
    for command in (
        ("replay", path, "--rule", "fixed_k(1)", "--set=resamples=10"),
        ("replay", path, "--rule", "fixed_k(1)"),
        ("certify", path, "--rules", family, "--max-loss", "0.9"),
    ):
        printed = cli(*command, *how)
        assert "agreement measures sameness with the last recorded answer (in " in printed.out
