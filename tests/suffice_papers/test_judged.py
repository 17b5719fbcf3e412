"""Choosing among drafts with few judge calls: plain loops, calls counted once, thresholds never on their own fold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice.errors import DataError, UnknownSignalError
from suffice.evaluation.replay import policy_for
from suffice.policy.rounds import Rounds
from suffice.policy.rules import parse_selector
from suffice.policy.rules.registered_selectors import DISTANCES
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from suffice_papers.choosing.judged import compare_judged, select_variants, whole_folds
from suffice_papers.choosing.judging import (
    Halving,
    JudgeAll,
    JudgeDistinct,
    JudgeUntil,
    Unjudged,
    draft_families,
    rank_rounds,
    usable_selectors,
)

NAN = math.nan
ROUNDS = 5
MARKS = st.sampled_from([0.0, 0.25, 0.5, 1.0, NAN])
ANSWERS = st.sampled_from([None, " ", "a", "b", "c", "d"])
NEAR = st.sampled_from([0.0, 0.1, 0.5, NAN])
QUESTIONS = st.tuples(
    st.lists(ANSWERS, min_size=ROUNDS, max_size=ROUNDS),
    st.lists(st.lists(MARKS, min_size=3, max_size=3), min_size=ROUNDS, max_size=ROUNDS),
    st.lists(NEAR, min_size=25, max_size=25),
    st.integers(0, ROUNDS - 1),
)


def view_of(answers, distances) -> Rounds:
    columns = {
        name: [NAN if r < b else distances[5 * (b - 1) + r] for r in range(ROUNDS)]
        for b, name in enumerate(DISTANCES, 1)
    }
    return Rounds.from_columns({name: [column] for name, column in columns.items()}, answers=[answers])


def shared(answers, marks, seen):
    """Marks by round: those of the earliest seen equal draft."""
    return [marks[next((j for j in seen if answers[j] == answers[i]), i)] for i in range(ROUNDS)]


def best(marks, asked, seen) -> int:
    known = [i for i in asked if not math.isnan(marks[i])]
    return max(known, key=lambda i: (marks[i], i), default=max(seen, default=-1))


def distinct_calls(answers, asked) -> int:
    return len({answers[i] for i in asked})


def seen_in(answers, stop) -> list[int]:
    return [i for i in range(stop + 1) if answers[i] is not None and answers[i].strip()]


@settings(deadline=None, max_examples=50)
@given(QUESTIONS)
def test_judging_all_asks_about_each_distinct_draft_once_and_returns_the_best(question):
    answers, marks, distances, stop = question
    seen = seen_in(answers, stop)
    said = [m[0] for m in shared(answers, marks, seen)]
    choice = JudgeAll().choose(view_of(answers, distances), np.array([stop]), np.array([[m[0] for m in marks]]))
    assert choice.position[0] == best(said, seen, seen)
    assert choice.calls.sum() == distinct_calls(answers, seen)
    assert not choice.calls[0, stop + 1 :].any()


@settings(deadline=None, max_examples=50)
@given(QUESTIONS, st.sampled_from([0.0, 0.2, 0.6]))
def test_drafts_near_one_that_was_asked_about_are_not_asked_about(question, eps):
    answers, marks, distances, stop = question
    seen = seen_in(answers, stop)
    said = [m[0] for m in shared(answers, marks, seen)]
    asked: list[int] = []
    for i in reversed(seen):
        near = [distances[5 * (j - i - 1) + j] < eps or answers[i] == answers[j] for j in asked]
        if not any(near):
            asked.append(i)
    choice = JudgeDistinct(eps).choose(view_of(answers, distances), np.array([stop]), np.array([[m[0] for m in marks]]))
    assert choice.position[0] == best(said, asked, seen)
    assert sorted(np.flatnonzero(choice.calls[0]).tolist()) == sorted(asked)


@settings(deadline=None, max_examples=50)
@given(QUESTIONS, st.sampled_from(["last", "first", "centroid"]), st.sampled_from([0.5, 1.0]))
def test_asking_ends_with_the_first_mark_that_is_good_enough(question, order, enough):
    answers, marks, distances, stop = question
    seen, view = seen_in(answers, stop), view_of(answers, distances)
    said = [m[0] for m in shared(answers, marks, seen)]
    asked: list[int] = []
    for i in order_of(order, view, answers, seen):
        asked.append(i)
        if said[i] >= enough:
            break
    choice = JudgeUntil(parse_selector(order), enough).choose(view, np.array([stop]), np.array([[m[0] for m in marks]]))
    assert choice.position[0] == best(said, asked, seen)
    assert choice.calls.sum() == distinct_calls(answers, asked)


@settings(deadline=None, max_examples=50)
@given(QUESTIONS, st.sampled_from(["last", "first", "centroid"]), st.integers(1, 3))
def test_halving_is_the_plain_loop(question, order, repeats):
    answers, marks, distances, stop = question
    seen, view = seen_in(answers, stop), view_of(answers, distances)
    said = shared(answers, marks, seen)
    ranked = order_of(order, view, answers, seen)
    left, heard = ranked[: math.ceil(len(ranked) / 2)], {i: [] for i in ranked}
    calls = dict.fromkeys(ranked, 0)
    for stage in range(repeats):
        if len(left) > 1:
            for i in left:
                calls[i] += 1
                if not math.isnan(said[i][stage]):
                    heard[i].append(said[i][stage])
        mean = {i: sum(heard[i]) / len(heard[i]) if heard[i] else -math.inf for i in left}
        left = sorted(left, key=lambda i: (-mean[i], ranked.index(i)))
        left = left[: 1 if stage == repeats - 1 else math.ceil(len(left) / 2)]
    choice = Halving(parse_selector(order)).choose(view, np.array([stop]), np.array([[m[:repeats] for m in marks]]))
    assert choice.position[0] == (left[0] if left else -1)
    most: dict[str, int] = {}
    for i, n in calls.items():
        most[answers[i]] = max(most.get(answers[i], 0), n)
    assert choice.calls.sum() == sum(most.values())


def order_of(order, view, answers, seen) -> list[int]:
    left, ranked = list(seen), []
    while left:
        only = [answers[i] if i in left else None for i in range(ROUNDS)]
        hidden = Rounds(view.columns, view.index, view.seen, np.array([only], dtype=object))
        chosen = int(parse_selector(order).select(hidden, np.array([ROUNDS - 1]))[0])
        ranked.append(chosen)
        left.remove(chosen)
    return ranked


def test_ranks_put_what_is_no_candidate_last():
    view = Rounds.from_columns({"x": [[1.0, 2.0, 3.0]]}, answers=[["a", None, "c"]])
    ranks = rank_rounds(parse_selector("first"), view, np.array([[True, False, True]]))
    assert ranks.tolist() == [[0, 3, 1]]


def test_marks_of_another_shape_are_refused():
    view = Rounds.from_columns({"x": [[1.0, 2.0]]}, answers=[["a", "b"]])
    with pytest.raises(DataError, match="each round"):
        JudgeAll().choose(view, np.array([1]), np.zeros((1, 3)))


# The comparison


def rows(n: int, *, costs: bool = True) -> list[dict]:
    """Drafts whose second is best; the third is near it; distances tell the fourth as an outlier."""
    rng = np.random.default_rng(0)
    made = []
    for q in range(n):
        good = [0.4, 0.9, 0.8, 0.3]
        vectors = [np.array(v) + rng.normal(0, 0.02, 3) for v in ([1, 0.5, 0], [1, 0.1, 0], [1, 0, 0], [0, 0, 1])]
        for r in range(4):
            row = {"question_id": f"q{q}", "round": r + 1, "end": "max_rounds", "answer": f"draft {r}"}
            row |= {"mark": float(rng.random() < good[r]), "answer_length": float(r), "draft_tokens": 10.0}
            row |= {name: cosine(vectors, r, b) for b, name in enumerate(DISTANCES, 1)}
            row |= {"cost.writer.calls": 1.0}
            row |= {"cost.judge:mark.calls": 1.0, "cost.judge:mark.output_tokens": 5.0} if costs else {}
            made.append(row)
    return made


def cosine(vectors, r, back) -> float | None:
    if r < back:
        return None
    a, b = vectors[r], vectors[r - back]
    return float(1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def recording(n: int = 60, **options) -> Recording:
    return Recording(build_table(rows(n, **options), {"mark": "metric"}))


def test_figures_are_those_of_plain_sums():
    made = recording()
    mark = made.column("mark")
    found = compare_judged(
        made, policy_for(made, "full"), {"all": [JudgeAll()], "last": [Unjudged(parse_selector("last"))]}, metric="mark"
    )
    row = found.row("all")
    assert row.quality == found.oracle == mark.max(axis=1).mean()
    assert found.last == mark[:, -1].mean()
    assert row.calls == 4
    assert row.tokens == 4 * (10 + 5)
    assert row.gap[0] == pytest.approx(1)
    assert row.gap_per_call == pytest.approx((1 / 4,) * 3)
    assert row.gap_per_1000 == pytest.approx((1000 / 60,) * 3)
    assert found.row("last").gap[0] == 0
    assert math.isnan(found.row("last").gap_per_call[0])
    assert any("by construction" in note for note in found.notes)
    assert any("instructions" in note for note in found.notes)
    assert found.table().texts()[1][-1] == "-"
    with pytest.raises(DataError, match="row of 'x'"):
        found.row("x")


def test_an_outlier_is_avoided_without_a_judge():
    made = recording(120)
    found = compare_judged(made, policy_for(made, "full"), draft_families(made), metric="mark")
    assert found.row("centroid").delta[1] > 0
    assert found.row("judge_distinct").calls < found.row("judge_all").calls
    assert set(found.row("judge_until(centroid)").gap) <= {1.0}


def test_a_fold_s_threshold_is_selected_on_the_other_folds():
    made = recording(40)
    folds = whole_folds(made, 2)
    eps = (0.0, 0.01, 0.1, 0.5)
    family = {"x": [JudgeDistinct(e) for e in eps]}
    whole = compare_judged(made, policy_for(made, "full"), family, metric="mark", n_folds=2)
    expected, asked = np.zeros(40), np.zeros(40)
    for fold in (0, 1):
        chosen = select_variants(made.select(folds != fold), policy_for(made, "full"), family, metric="mark")["x"][0]
        assert str(chosen) in whole.row("x").variants
        here = made.select(folds == fold)
        alone = compare_judged(here, policy_for(made, "full"), {"x": [chosen]}, metric="mark").row("x")
        expected[fold], asked[fold] = alone.quality * here.shape[0], alone.calls * here.shape[0]
    assert whole.row("x").quality == pytest.approx(expected.sum() / 40)
    assert whole.row("x").calls == pytest.approx(asked.sum() / 40)


def test_what_suits_a_fold_alone_is_not_selected_for_it():
    made = recording(40)
    folds = whole_folds(made, 2)
    listed = rows(40)
    for row in listed:  # the first draft is right in one fold, the last one in the other
        right = 1 if folds[int(row["question_id"][1:])] == 0 else 4
        row["mark"] = float(row["round"] == right)
    split = Recording(build_table(listed, {"mark": "metric"}))
    family = {"x": [Unjudged(parse_selector("first")), Unjudged(parse_selector("last"))]}
    assert compare_judged(split, policy_for(split, "full"), family, metric="mark", n_folds=2).row("x").quality == 0


def test_only_what_was_recorded_is_offered():
    plain = Recording(build_table([{"question_id": "q", "round": r, "answer": str(r), "mark": 1.0} for r in (1, 2)]))
    assert usable_selectors(plain) == ["last", "first", "majority"]
    assert "longest_run" not in draft_families(plain)
    assert [str(item) for item in draft_families(plain)["judge_distinct"]] == ["judge_distinct(0)"]
    assert not any("judge" in name for name in draft_families(plain, judged=False))


@pytest.mark.parametrize(
    ("options", "families", "words"),
    [
        ({}, {}, "to compare"),
        ({}, {"x": []}, "to compare"),
        ({"n_folds": 1}, {"x": [JudgeAll(), JudgeAll()]}, "two folds"),
        ({"n_folds": 50}, {"x": [JudgeAll(), JudgeAll()]}, "folds empty"),
        ({"marks": "missing"}, {"x": [JudgeAll()]}, "'missing'"),
    ],
)
def test_what_cannot_be_compared_is_refused(options, families, words):
    made = recording(8)
    with pytest.raises(DataError, match=words):
        compare_judged(made, policy_for(made, "full"), families, metric="mark", **options)


def test_a_procedure_that_reads_what_was_not_recorded_is_refused():
    plain = Recording(build_table([{"question_id": "q", "round": r, "answer": str(r), "mark": 1.0} for r in (1, 2)]))
    with pytest.raises(UnknownSignalError, match="semantic_distance"):
        compare_judged(plain, policy_for(plain, "full"), {"x": [JudgeDistinct(0.1)]}, metric="mark")


def test_unknown_tokens_stay_unknown():
    made = recording(costs=False)
    kept = made.table.drop_columns(["draft_tokens"])
    found = compare_judged(Recording(kept), policy_for(made, "full"), {"x": [JudgeAll()]}, metric="mark")
    assert math.isnan(found.row("x").tokens)
    assert math.isnan(found.row("x").gap_per_1000[0])
    assert found.row("x").gap_per_call[0] == pytest.approx(1 / 4)
