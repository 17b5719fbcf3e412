"""Logs whose rows or items may be in another order than it seems: equal times, shifted numbers, samples without a name."""

from __future__ import annotations

import random

import numpy as np
import pytest

from suffice import diagnose, replay, report, search
from suffice.errors import UnsettledError
from suffice.importers.rounds.facts import OrderSigns
from suffice.recordings import read_recording
from tests.support.cli_tools import CITIES
from tests.support.logs import by_round, imported, offered, written


def drawn(n=40, rounds=4, shares=(0.3, 0.5, 0.7, 0.9)):
    chance = random.Random(7)
    for q in range(n):
        gold = CITIES[q % 4]
        yield q, gold, [gold if chance.random() < shares[r] else chance.choice(CITIES) for r in range(rounds)]


def timed(q, gold, said, places):
    return [
        {"id": q, "created_at": f"2025-01-01T10:{q:02d}:0{r // 2}", "output": said[r], "gold": gold} for r in places
    ]


@pytest.mark.parametrize("places", [(0, 1, 2, 3), (3, 2, 1, 0)])
def test_equal_times_leave_a_note(tmp_path, places):
    rows = [row for q, gold, said in drawn() for row in timed(q, gold, said, places)]
    summary = imported(written(tmp_path, rows))
    scores = [means.em for means in summary.by_round]
    assert scores == sorted(scores)
    assert any("is equal in rows of 40 of 40 trajectories" in note for note in summary.notes)


def test_equal_durations_order_no_rows(tmp_path):
    rows = [
        {"id": q, "time": (q + 1) * (1.5 + (3 * r) % 2), "output": own, "gold": gold}
        for q, gold, said in drawn()
        for r, own in enumerate(said)
    ]
    summary = imported(written(tmp_path, rows))
    assert not any("'time' is equal" in note for note in summary.notes)


@pytest.mark.parametrize("shift", [-1, 1])
def test_scores_numbered_otherwise_belong_to_answers(tmp_path, shift):
    low = max(0, -shift)
    rows = [
        {
            "id": q,
            **{f"answer_{r + low}": own for r, own in enumerate(said)},
            **{f"score_{r + low + shift}": int(own == gold) for r, own in enumerate(said)},
        }
        for q, gold, said in drawn()
    ]
    summary = imported(written(tmp_path / "log.csv", rows))
    right = [np.mean([said[r] == gold for _, gold, said in drawn()]) for r in range(4)]
    assert [means.scores["score"] for means in summary.by_round] == pytest.approx(right)
    assert any("belong to them in this order" in note for note in summary.notes)


@pytest.mark.parametrize("name", ["is_ok", "label", "hit"])
def test_flags_of_rounds_are_offered_as_scores(tmp_path, name):
    rows = [
        {"id": q, "round": r, "output": own, name: int(own == gold)}
        for q, gold, said in drawn()
        for r, own in enumerate(said, start=1)
    ]
    path = written(tmp_path, rows)
    assert any(f"--metric-column {name}={name}" in note for note in imported(path).notes)
    if name != "hit":
        return
    assert imported(path, metrics={name: name}).by_round[-1].scores[name] > 0.8
    rows = [{**row, "gold": "Oslo"} for row in rows]
    assert not any("--metric-column" in note for note in imported(written(tmp_path, rows)).notes)


def lists(name, shares):
    return [{"id": q, "question": f"Where is {q}?", "gold": gold, name: said} for q, gold, said in drawn(shares=shares)]


@pytest.mark.parametrize("name", ["pred", "responses", "prediction", "answers", "model_answers", "extracted_answers"])
def test_answers_in_no_order_are_asked_about(tmp_path, name):
    path = written(tmp_path, lists(name, (0.6,) * 4))
    assert offered(path)[:2] == ["--samples", "--expected sample-list"]


def test_what_is_said_of_an_order_is_read(tmp_path):
    path = written(tmp_path, lists("pred", (0.6,) * 4))
    assert imported(path, samples=True).samples
    assert imported(path, columns={"rounds": "pred"}).rounds == 4
    assert by_round(written(tmp_path, lists("pred", (0.3, 0.5, 0.7, 0.9))))[-1] > 0.8
    assert imported(written(tmp_path, lists("attempts", (0.6,) * 4))).rounds == 4


def test_a_walk_shows_that_answers_follow_one_another():
    signs, samples, chance = OrderSigns(), OrderSigns(), random.Random(1)
    for _ in range(80):
        at = chance.randrange(3)
        walk = [at := at if chance.random() < 0.7 else chance.randrange(3) for _ in range(6)]
        signs.add(walk, None)
        samples.add(chance.sample(walk, 6), None)
    assert signs.are_clear
    assert not samples.are_clear


def test_no_figure_is_a_mean_over_models(tmp_path):
    rows = [
        {"id": q, "model": model, "round": r, "answer": own, "gold": gold}
        for model in ("small", "large")
        for q, gold, said in drawn(30)
        for r, own in enumerate(said, start=1)
    ]
    recording = read_recording(imported(written(tmp_path, rows)).path)
    for judge in (lambda r: replay(r, ["round >= 2"]), search, diagnose, lambda r: report(r, ["full"])):
        with pytest.raises(UnsettledError, match="judge one at"):
            judge(recording)
        judge(recording.where(model="small"))


def test_a_stored_recording_of_models_is_refused(tmp_path):
    rows = [{"id": q, "model": m, "round": r, "answer": "Oslo"} for q in range(9) for m in "ab" for r in (1, 2)]
    with pytest.raises(UnsettledError, match="judge one at"):
        replay(imported(written(tmp_path, rows)).path, ["round >= 2"], metrics=["agreement"])


@pytest.mark.parametrize("share", [(0.5, 0.5, 0.5, 0.5), (0.1, 0.4, 0.7, 0.9)])
def test_trials_are_asked_about_unless_scores_rise(tmp_path, share):
    chance = random.Random(3)
    rows = [
        {"task_id": q, "trial": r, "reward": float(chance.random() < share[r])} for q in range(60) for r in range(4)
    ]
    path = written(tmp_path, rows)
    if len({*share}) == 1:
        assert offered(path)[:2] == ["--samples", "--column round=trial"]
    else:
        assert imported(path).by_round[-1].scores["reward"] > 0.7


def test_samples_are_asked_about_though_the_answer_is_named(tmp_path):
    records = [
        {"id": q, "gold": gold, "solutions": said, "rewards": [1] * 4} for q, gold, said in drawn(shares=(0.6,) * 4)
    ]
    assert "--samples" in offered(written(tmp_path, records), columns={"answer": "solutions"})


def scored(score):
    return [
        {"id": q, "round": r, "output": f"draft {q * r % 7}", "score": score(q, r)}
        for q in range(30)
        for r in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    "score",
    [lambda q, r: 0.5 * (q < 2 and r == 2), lambda q, r: random.Random(100 * q + r).random() ** 3],
)
def test_a_score_that_falls_by_chance_is_no_doubt(tmp_path, score):
    summary = imported(written(tmp_path, scored(score)))
    assert not [alarm for alarm in summary.alarms if alarm.name == "falling-scores"]


def test_a_list_of_rising_answers_has_an_order(tmp_path):
    rows = [
        {"id": q, "gold": 10 + 4 * q if q % 3 else 7, "rounds": [{"answer": str(10 + q + q * r)} for r in range(4)]}
        for q in range(1, 41)
    ]
    imported(written(tmp_path, rows))


def test_sequences_of_one_length_were_not_cut(tmp_path):
    draw = lambda *seed: "".join(random.Random(str(seed)).choices("ACGT", k=300))  # noqa: E731
    rows = [
        {"id": q, "round": r, "answer": draw(q, (q + r) % 3 > 0), "gold": draw(q, q % 7 == 0)}
        for q in range(30)
        for r in (1, 2, 3)
    ]
    summary = imported(written(tmp_path, rows))
    assert not [alarm for alarm in summary.alarms if alarm.name == "cut-texts"]
