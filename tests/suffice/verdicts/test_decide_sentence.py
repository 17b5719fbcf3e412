"""What the sentence of a decision rests on, and what it must admit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from suffice.cli.advice import in_plain_words
from suffice.errors import ConfigMismatchError, DataError, NotFittedError, UnsettledError
from suffice.evaluation.replay import replay
from suffice.evaluation.replay.selected import seen_in
from suffice.presentation.data import advice_part
from suffice.recordings import write_recording
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from suffice.verdicts.decisions import Advice, decide
from tests.suffice.verdicts.test_decide import converged_at_2, log_of
from tests.suffice.verdicts.test_decide_later import unscored
from tests.support.cli_tools import cli


def test_a_loop_that_is_always_right_may_save_with_a_note():
    advice = decide(log_of(400, lambda q, r: 1.0), metric="quality")
    assert advice.verdict == "do it"
    assert any("quality is 1 for every answer" in note for note in advice.notes)
    assert "+0.0 [-" in advice.sentence  # no negative zero


def scored_twice(first: str, second: str) -> Recording:
    """Return a log with two scores, of which the second one is worse where the first is better."""
    rows = [
        {name: value for name, value in row.items() if name != "quality"}
        | {first: row["quality"], second: 1 - row["quality"]}
        for row in log_of(100, converged_at_2).table.to_pylist()
    ]
    return Recording(build_table(rows, kinds={first: "metric", second: "metric"}))


def test_the_sentence_says_how_the_metric_is_read_and_names_others():
    notes = decide(scored_twice("bertscore_precision", "bertscore_f1")).notes
    assert "a higher bertscore_f1 counts as better" in notes
    assert any(note.startswith("judged by bertscore_f1; the log also has bertscore_precision") for note in notes)
    both = scored_twice("quality", "errors")
    assert not any(note.startswith("judged by ") for note in decide(both, metric="errors").notes)
    assert not any("counts as better" in note for note in decide(unscored(log_of(100, converged_at_2))).notes)


@pytest.mark.parametrize("names", [("rouge1", "bertscore_f1"), ("bertscore_precision", "bertscore_recall")])
def test_no_verdict_chooses_between_scores_of_the_logs_own(names, tmp_path):
    log = scored_twice(*names)
    with pytest.raises(UnsettledError, match="several scores") as error:
        decide(log)
    assert [*error.value.choices] == [f"--metric {name}" for name in names]
    assert decide(log, metric=names[1]).trial.metric == names[1]
    path = tmp_path / "log.parquet"
    write_recording(path, log.table)
    refused = cli("decide", path, code=2)
    assert f"suffice decide {path} --metric {names[0]}" in refused.err


def test_the_sentence_names_what_it_compares_with():
    advice = decide(log_of(400, converged_at_2), metric="quality", baseline="fixed_k(4)")
    assert advice.sentence.startswith("Lower the cap to 2: it saves 50 % of the calls")
    assert "points against fixed_k(4) (selected here" in advice.sentence
    assert advice.table().rows[0][0] == "baseline: fixed_k(4)"


def test_agreement_bounds_the_loss_of_metrics_only_against_the_last_answer():
    log = unscored(log_of(100, converged_at_2))
    bound = "at most the share of answers that differ"
    assert any(bound in note for note in decide(log).notes)
    for options in ({"selector": "majority"}, {"baseline": "fixed_k(4)"}, {"metric": "agreement_f1"}):
        assert not any(bound in note for note in decide(log, **options).notes)


def test_one_question_is_one_question():
    advice = decide(log_of(41, converged_at_2), metric="quality", tune=log_of(40, converged_at_2))
    assert "1 question does not rule out" in advice.sentence


def last_round_helps(share: float):
    """Return scores by which the last round alone is right in a share of the questions, as any other round is in the rest."""
    return lambda q, r: float(r == 5 or q % 100 >= 100 * share)


@pytest.mark.parametrize(("n", "judges"), [(60, "60 questions"), (1, "1 question")])
def test_few_questions_on_which_all_seems_to_lose_do_not_settle_it(n, judges):
    tune = log_of(200, last_round_helps(0.05), first=200)
    advice = decide(log_of(n, last_round_helps(0.05)), metric="quality", tune=tune)
    said = f"Not enough data: nothing tested that saves calls lost less than 2 points of quality on {judges}, too few to settle it."
    assert advice.sentence == f"{said} Record more questions."
    assert in_plain_words(advice.sentence, "quality") == advice.sentence


def test_an_untested_rule_does_not_keep_a_verdict_open():
    scores = last_round_helps(0.6)
    never = {"answer_stable": lambda q, r: 0.0}
    seldom = {"answer_stable": lambda q, r: float(r == 4 and q % 50 == 49)}
    tune = log_of(200, scores, first=200, **never)
    advice = decide(log_of(100, scores, **seldom), metric="quality", tune=tune)
    states = {item.state for item in advice.figures if item.tested}
    untested = [item.saving for item in advice.figures if not item.tested and item.state == "not tested"]
    assert (states, max(untested) > 0) == ({"loses more"}, True)
    assert advice.verdict == "keep what you have"
    assert advice.sentence == (
        "Keep what you have: everything tested that would save calls loses more than 2 points of quality, as 100 questions show."
    )


def test_small_savings_are_named_where_larger_ones_lose():
    log = log_of(60, lambda q, r: float(r >= 4 or q % 100 >= 5))
    advice = decide(log, metric="quality", min_saving=0.3, tune=log_of(200, last_round_helps(0.05), first=200))
    said = "nothing tested that would save 30 % of the calls or more lost less than 2 points of quality on these 60 questions"
    assert advice.sentence == f"Keep what you have: {said}; of what lost less, fixed_k(4) saved most, 20.0 %."


@pytest.mark.parametrize(("n", "is_said"), [(80, True), (200, False)])
def test_a_range_with_smaller_losses_than_shown_is_explained(n, is_said):
    def values(q: int, r: int) -> float:
        return float(q % 100 >= 4 * (5 - r))

    advice = decide(log_of(n, values), metric="quality", tune=log_of(200, values, first=1000))
    ends = [item.change[2] for item in advice.figures if item.state == "loses more"]
    assert (max(ends) > -0.02) == is_said
    notes = [note for note in advice.table().notes if note.startswith("a range may include")]
    assert [("below 2 points" in note) for note in notes] == [True] * is_said
    assert not any("a range is" in note for note in advice.to_dict()["notes"])


def test_a_fixed_budget_that_dominates_is_named_whatever_the_verdict():
    # The rule stops at round 3 or later; two rounds are as good, and on tune questions they seemed to lose.
    stable = {"answer_stable": lambda q, r: math.nan if r == 1 else float(r > 2)}
    tune = log_of(200, lambda q, r: float(r >= 3 or q % 10 > 0), **stable)
    for n, verdict in ((150, "not enough data"), (500, "do it")):
        advice = decide(log_of(n, lambda q, r: float(r >= 2), first=200, **stable), metric="quality", tune=tune)
        assert advice.verdict == verdict
        assert "Here at most 2 rounds scored as well for less, but that was not tested" in advice.sentence
        assert any(row[0] == "fixed_k(2)" for row in advice.table().rows)
        assert advice.to_dict()["dominated_by"] == "fixed_k(2)"


# Stopping at random as often


def drafts(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return from which round on each question is right, and numbers that know nothing of it, ``(n,)`` and ``(n, 6)``."""
    rng = np.random.default_rng(0)
    return rng.choice([1, 2, 3, 4], n, p=[0.6, 0.2, 0.1, 0.1]), rng.random((n, 6))


def test_an_uninformed_rule_does_not_beat_its_twin_and_says_so():
    right_from, blind = drafts(1500)
    log = log_of(1500, lambda q, r: float(r >= right_from[q]), critic_approved=lambda q, r: float(blind[q, r] < 0.5))
    advice = decide(log, metric="quality", max_loss=0.2)
    assert advice.policy is not None
    assert advice.policy.label == "critic_only"
    assert "It is not shown to beat stopping at random as often: " in advice.sentence
    assert [table.title for table in advice.tables()][
        -1
    ] == "Tested rules beside their own stops, dealt out to the questions at random"
    assert advice_part(advice).folded["Every candidate"][-1] == advice.tables()[-1]  # in a report, too


def test_the_title_of_the_table_accounts_for_every_question():
    advice = decide(log_of(500, lambda q, r: 1.0), metric="quality")
    others = len(advice.trial.tune.ids)
    assert advice.n + others == 500
    assert advice.table().title.endswith(f": {advice.n} questions judge, {others} others fitted the candidates")


@pytest.mark.parametrize("runs", [1, 2])
def test_runs_of_a_question_count_once_in_the_title(runs):
    log = log_of(150 * runs, converged_at_2)
    rows = log.table.to_pylist()
    for row in rows:
        q = int(row["question_id"][1:])
        row |= {"question_id": f"c{q // runs}@{q % runs}", "cluster": f"c{q // runs}", "question": None}
    advice = decide(Recording(build_table(rows, kinds={"quality": "metric"})), metric="quality")
    title = Advice.from_dict(advice.to_dict()).table().title
    others = int(title.split(" judge, ")[1].split()[0])
    assert advice.n + others == 150


def test_the_random_twin_is_that_of_replay_and_of_plain_loops():
    right_from, _ = drafts(900)

    def values(q: int, r: int) -> float:
        return float(r >= right_from[q])

    log = log_of(
        900,
        values,
        rounds=lambda q: 5 - q % 2,
        end=lambda q, r: "exhausted" if q % 2 else "max_rounds",
        critic_approved=lambda q, r: float(r >= right_from[q]),
    )
    advice = decide(log, metric="quality", max_loss=0.1)
    assert advice.policy is not None
    assert advice.policy.label == "critic_only"
    assert "at random" not in advice.sentence  # it beats that
    twin = next(item for item in advice.to_dict()["candidates"] if item["policy"] == "critic_only")["random_twin"]

    judged = log.select(seen_in(log, advice.trial.counted))
    row = next(row for row in replay(judged, "critic_only", metrics="quality").rows if row.kind == "random")
    assert math.isclose(twin["quality"], row.metrics["quality"], rel_tol=1e-9)

    expected, gains, varying = {}, [], []
    questions = [int(name[1:]) for name in judged.question_ids]
    stop = {q: min(max(2, right_from[q]), 5 - q % 2) for q in questions}  # the rule asks from round 2 on
    for q in questions:
        alike = [other for other in questions if other % 2 == q % 2]  # those with as many rounds
        expected[q] = sum(values(q, stop[other]) for other in alike) / len(alike)
        gains.append(values(q, stop[q]) - expected[q])
        mean = {r: sum(values(other, r) for other in alike) / len(alike) for r in range(1, 6)}
        shares = sum(mean[stop[other]] for other in alike) / len(alike)
        varying.append(gains[-1] - (mean[stop[q]] - shares))  # another question is also dealt to the others
    assert math.isclose(twin["quality"], sum(expected.values()) / len(questions), rel_tol=1e-9)
    assert math.isclose(twin["gain"], np.mean(gains), rel_tol=1e-9)
    n = len(gains)
    half = 1.959964 * math.sqrt((sum(each**2 for each in varying) / (n - 1) - np.mean(gains) ** 2) / (n - 1))
    np.testing.assert_allclose(twin["interval"], [np.mean(gains) - half, np.mean(gains) + half], rtol=1e-6)


def test_what_is_unknown_is_no_gain_over_chance():
    right_from, _ = drafts(600)

    def values(q: int, r: int) -> float | None:
        return None if r == 2 and q % 3 == 0 else float(r >= right_from[q])

    log = log_of(600, values, critic_approved=lambda q, r: float(r >= right_from[q]))
    known = log_of(600, lambda q, r: float(r >= right_from[q]), critic_approved=lambda q, r: float(r >= right_from[q]))
    gains = []
    for recording in (log, known):
        advice = decide(recording, metric="quality", max_loss=0.3)
        twins = [item["random_twin"] for item in advice.to_dict()["candidates"] if item["policy"] == "critic_only"]
        gains.append(twins[0]["gain"])
    assert gains[0] < gains[1]


def test_files_keep_random_twins_of_rules_and_caps_have_none():
    right_from, _ = drafts(600)
    log = log_of(600, lambda q, r: float(r >= right_from[q]), critic_approved=lambda q, r: float(r >= right_from[q]))
    advice = decide(log, metric="quality", max_loss=0.1)
    twins = {item["policy"]: item["random_twin"] for item in advice.to_dict()["candidates"]}
    assert [name for name, twin in twins.items() if twin] == ["critic_only"]
    again = Advice.from_dict(advice.to_dict())
    assert again.to_dict() == advice.to_dict()
    assert again.sentence == advice.sentence


# Which questions, and against what


def test_clusters_that_share_a_text_stay_on_one_side():
    rows = [
        {"question_id": f"{name}{i}", "cluster": f"{cluster}{i}", "question": f"what is {text} {i}?", "round": r}
        | {"answer": "x", "quality": float(r >= 2)}
        for i in range(60)
        for name, cluster, text in (("a", "late", "one"), ("b", "late", "two"), ("c", "early", "two"))
        for r in (1, 2, 3)
    ]
    trial = decide(Recording(build_table(rows, kinds={"quality": "metric"})), metric="quality").trial
    assert not trial.tune.ids & trial.counted.ids
    assert not trial.tune.texts & trial.counted.texts


def test_how_questions_are_told_apart_is_noted_where_it_may_mislead():
    rows = log_of(60, converged_at_2).table.to_pylist()
    nameless = [{name: value for name, value in row.items() if name != "question"} for row in rows]
    twice = rows + [{**row, "question_id": f"{row['question_id']}b"} for row in rows]
    samples = Recording(build_table(twice, kinds={"quality": "metric"}), {"exchangeable": True})
    known, unknown, repeated = (
        decide(Recording(build_table(table, kinds={"quality": "metric"})), metric="quality").notes
        for table in (rows, nameless, twice)
    )
    assert any("no texts of questions" in note for note in unknown)
    assert not any("no texts of questions" in note for note in known)
    assert "60 of 120 rows repeat a question: each question counts once, with its mean" in repeated
    of_samples = decide(samples, metric="quality").notes
    assert "60 of 120 questions repeat another: each question counts once, with its mean" in of_samples


def test_tune_questions_of_another_cap_are_refused():
    log = log_of(100, converged_at_2)
    for rounds in (2, 8):
        with pytest.raises(ConfigMismatchError, match=f"cap of {rounds}"):
            decide(log, metric="quality", tune=log_of(40, converged_at_2, first=100, rounds=rounds))


def test_every_smaller_cap_is_a_candidate_despite_short_tune_questions():
    tune = log_of(100, converged_at_2, first=400, rounds=lambda q: 1 + q % 2, end="rule")
    log = log_of(400, converged_at_2, rounds=lambda q: 1 + q % 5, end="rule")
    labels = [policy.label for policy in decide(log, metric="quality", tune=tune).trial.candidates]
    assert labels == ["fixed_k(1)", "fixed_k(2)", "fixed_k(3)", "fixed_k(4)"]


def test_a_baseline_that_nobody_ran_is_refused():
    with pytest.raises(DataError, match=r"'fixed_k\(9\)'"):
        decide(log_of(100, converged_at_2), metric="quality", baseline="fixed_k(9)")
    assert decide(log_of(100, converged_at_2), metric="quality", baseline="full").n
    with pytest.raises(NotFittedError, match="calibrator"):
        decide(
            log_of(100, converged_at_2, answer_margin=lambda q, r: float(r), answer_stable=lambda q, r: float(r > 2)),
            metric="quality",
            baseline="tasr",
        )


def test_answers_of_the_loops_gate_at_round_0_are_the_baselines():
    rows = [
        {"question_id": f"q{q}", "question": f"what is number {q}?", "round": r, "answer": f"{q} {r}"}
        | {"quality": float(q % 2 == 0 or r >= 2), "p_known": 0.9 - 0.8 * (q % 2) if r == 0 else math.nan}
        | {"end": "max_rounds" if q % 2 else "rule"}
        for q in range(1000)
        for r in range(4 if q % 2 else 1)
    ]
    log = Recording(build_table(rows, kinds={"quality": "metric", "p_known": "signal"}))
    advice = decide(log, metric="quality")
    assert advice.trial.totals.values[-1] == advice.n  # all of them are right in the end
    assert advice.sentence.startswith("Lower the cap from 3 to 2")
    gates = [item for item in advice.figures if item.policy.startswith("p_known")]
    assert gates
    assert all(item.change[0] <= 0 for item in gates)
    assert Advice.from_dict(advice.to_dict()).trial.loop.start_round == 0
    with pytest.raises(ConfigMismatchError, match="round 0"):
        decide(log, previous=decide(log_of(60, converged_at_2, rounds=3, first=2000), metric="quality"))


def test_a_selector_that_reads_what_judges_is_noted():
    log = log_of(60, converged_at_2)
    note = "the selector reads quality, which also judges: a live loop must measure it in every round"
    assert note in decide(log, metric="quality", selector="max_quality").notes
    assert note not in decide(log, metric="quality").notes


def test_one_question_cannot_be_divided():
    rows = [{**row, "cluster": "one"} for row in log_of(60, converged_at_2).table.to_pylist()]
    with pytest.raises(DataError, match="too few"):
        decide(Recording(build_table(rows, kinds={"quality": "metric"})), metric="quality")
