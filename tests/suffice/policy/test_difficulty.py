"""Difficulty-adaptive self-consistency: what is allocated, and where the rule stops, against plain loops."""

from __future__ import annotations

import asyncio
import json
import math

import numpy as np
import pytest

from suffice import Policy, Round, SamplingLoop, Session, calibrate, replay
from suffice.errors import DataError, ModelError, NotFittedError
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.policy.rounds import Rounds
from suffice.policy.session import stops
from suffice.policy.signals import Allocation, KnownDifficulty, compute_signals, state_from_dict
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from tests.suffice.policy.test_votes import beats
from tests.support.endpoint import Endpoint
from tests.support.sampling import TOWER, models_of
from tests.support.strategies import NAN

WIDTH = 20


def plain_allocation(difficulty, agree, needed, *, window, judged, similar):
    """What the authors do with a ranking from easy to hard, read as plainly as can be."""
    ranked = sorted(range(len(difficulty)), key=lambda q: difficulty[q])
    one_sample = [False] * len(ranked)
    for start in range(len(ranked) - 1, -1, -1):  # from the hardest down
        run = ranked[start : start + judged]
        if len(run) == judged and all(agree[q] for q in run):
            one_sample[: start + judged] = [True] * (start + judged)
            break
    for place in range(max(0, len(ranked) - judged), len(ranked)):
        one_sample[place] = False
    sizes = []
    for place in range(len(ranked) + 1):
        if place < similar:
            sizes.append(window)
        else:
            mean = sum(needed[q] for q in ranked[place - similar : place]) / similar
            sizes.append(max(1, round(mean / window)) * window)
    easy = [difficulty[q] for q, one in zip(ranked, one_sample, strict=True) if one]
    return [difficulty[q] for q in ranked], sizes, max(easy) if easy else None


def test_an_allocation_is_what_plain_loops_make_of_the_tune_questions():
    rng = np.random.default_rng(4)
    kinds = set()
    for _ in range(400):
        n, judged, similar = int(rng.integers(1, 30)), int(rng.integers(1, 6)), int(rng.integers(1, 6))
        difficulty = rng.integers(0, 40, n) / 4
        agree = rng.random(n) < 0.9 - difficulty / 20
        needed = rng.integers(4, 40, n)
        fitted = Allocation.fit(difficulty, agree, needed, judged=judged, similar=similar)
        plain = plain_allocation(
            difficulty.tolist(), agree.tolist(), needed.tolist(), window=4, judged=judged, similar=similar
        )
        assert (list(fitted.difficulties), list(fitted.sizes), fitted.easy) == plain
        assert state_from_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted
        asked = np.append(rng.integers(-2, 50, 8) / 4, math.nan)
        for value, size in zip(asked, fitted.apply(asked), strict=True):
            if math.isnan(value):
                assert math.isnan(size)
            else:
                easier = sum(other < value for other in difficulty)
                expected = 1 if fitted.easy is not None and value <= fitted.easy else fitted.sizes[easier]
                assert size == expected
                kinds.add(int(size))
    assert {1, 4, 8, 36} <= kinds


def plain_stop(answers, allocated):
    """One sample; or a first window, the allocated samples and windows after them, until the leading answer is sure."""
    if allocated == 1:
        return 1
    for n in range(1, len(answers) + 1):
        if n == 4 or (n >= allocated and (n - allocated) % 4 == 0):
            texts = [text for text in answers[:n] if text is not None]
            counts = [*sorted(map(texts.count, set(texts)), reverse=True), 0, 0]
            if texts and beats(counts[0], counts[1]) >= 0.95:
                return n
    return len(answers)


def test_dsc_stops_where_a_plain_reading_of_its_paper_does():
    rng = np.random.default_rng(1)
    n = 20_000
    likely = rng.random(n)
    size = (n, WIDTH)
    drawn = np.where(rng.random(size) < likely[:, None], 0, rng.integers(1, 4, size))
    drawn[rng.random(size) < 0.05] = -1
    texts = np.array([None, *"abcd"], dtype=object)[drawn + 1]
    state = Allocation(tuple(map(float, range(4))), (4, 4, 8, 12, 16), 0.0)
    difficulty = rng.integers(-1, 5, n) + 0.5
    view = Rounds(
        {"difficulty": np.repeat(difficulty[:, None], WIDTH, axis=1)},
        np.arange(1, WIDTH + 1),
        np.ones(size, dtype=bool),
        texts,
    )
    policy = Policy(rule="dsc", selector="majority_of_samples", max_rounds=WIDTH, state={"allocated": state})
    stopped = stops(policy, view).rounds
    allocated = state.apply(difficulty).astype(int).tolist()
    assert stopped.tolist() == [plain_stop(row, given) for row, given in zip(texts.tolist(), allocated, strict=True)]
    assert set(stopped.tolist()) == {1, 4, 8, 12, 16, 20}


def recorded(n: int = 60) -> Recording:
    rng = np.random.default_rng(2)
    rows = []
    for q in range(n):
        right = rng.random(8) < 1.05 - q / n
        for r in range(8):
            answer = "a" if right[r] else "bcd"[rng.integers(3)]
            rows.append(
                {
                    "question_id": f"q{q}",
                    "round": r + 1,
                    "answer": answer,
                    "match": float(right[r]),
                    "difficulty": q / n,
                }
            )
    return Recording(build_table(rows, {"match": "metric"}), {"exchangeable": True})


def test_an_allocation_is_fitted_saved_and_the_same_live_and_replayed(tmp_path):
    recording = recorded()
    policy, summary = calibrate(recording, rule="dsc")
    assert (summary.target, summary.state, summary.fits) == ("match", ("allocated",), ())
    path = tmp_path / "dsc.json"
    policy.save(path)
    loaded = Policy.load(path)
    assert loaded == policy
    assert policy.raw_signals == ("difficulty",)
    fitted = policy.state["allocated"]
    assert isinstance(fitted, Allocation)
    assert set(fitted.sizes) > {4}
    stopped = PreparedRecording.of(recording, samples=True).stops(loaded)
    for q in range(0, 60, 7):
        session = Session(loaded)
        for r in range(8):
            signals = {"difficulty": q / 60}
            decision = session.observe(Round(index=r + 1, answer=recording.answers[q][r], signals=signals))
            if decision.stop:
                break
        assert decision.stop_round == stopped.rounds[q]
    rows = replay(recording, loaded, metrics="match", orders=5).rows
    assert rows[0].calls.mean < 8


def test_easy_questions_have_one_sample():
    state = Allocation.fit([0.1, 0.2, 0.3, 0.9], [True, True, True, False], [4, 4, 4, 8], judged=1, similar=1)
    policy = Policy(rule="dsc", selector="majority_of_samples", max_rounds=8, state={"allocated": state})
    rounds = [Round(index=r, answer="x", signals={"difficulty": 0.2}) for r in range(1, 9)]
    assert policy.decide(rounds).stop_round == 1
    hard = [Round(index=r, answer="x", signals={"difficulty": 0.5}) for r in range(1, 9)]
    assert policy.decide(hard).stop_round == 4  # the first window agrees
    values = [compute_signals(rounds[:1], ["allocated"], state=policy.state)["allocated"]]
    values.append(compute_signals([Round(index=1)], ["allocated"], state=policy.state)["allocated"])
    np.testing.assert_array_equal(values, [1, NAN])


def test_what_cannot_be_allocated_is_refused():
    with pytest.raises(NotFittedError, match="'allocated'"):
        Policy(rule="dsc", selector="majority_of_samples").check()
    with pytest.raises(DataError, match="rule dsc"):
        calibrate(recorded(), rule="allocated <= 1")
    for wrong in ([], [NAN]):
        with pytest.raises(DataError, match="finite difficulty"):
            Allocation.fit(wrong, [True] * len(wrong), [4] * len(wrong))
    for fields in (((2.0, 1.0), (4, 4, 4), None), ((1.0,), (4,), None), ((1.0,), (4, 0), None), ((1.0,), (4, 4), NAN)):
        with pytest.raises(DataError, match="ascending"):
            Allocation(*fields)
    with pytest.raises(DataError, match="be lists"):
        state_from_dict({"type": "allocation", "difficulties": "x", "sizes": [4], "easy": None})


def test_without_a_difficulty_a_question_stops_after_one_window_or_never():
    recording = recorded()
    rows = recording.table.to_pylist()
    for row in rows:
        if row["question_id"] == "q0":
            row["difficulty"] = None
    other = Recording(build_table(rows, {"match": "metric"}), {"exchangeable": True})
    policy, summary = calibrate(other, rule="dsc(0.9)")
    assert any("1 questions without difficulty" in note for note in summary.notes)
    stopped = PreparedRecording.of(other, samples=True).stops(policy)
    place = (
        other.question_ids.index("q0") if isinstance(other.question_ids, list) else list(other.question_ids).index("q0")
    )
    assert stopped.rounds[place] in (4, 8)


def test_an_easy_question_gets_one_sample_live_and_replayed():
    state = Allocation.fit([1, 2, 3, 9], [True, True, True, False], [4, 4, 4, 8], judged=1, similar=1)
    difficulty = {TOWER: 2.0, "Where is the other tower?": 5.0}
    for known in (KnownDifficulty(difficulty), KnownDifficulty(difficulty.__getitem__)):
        with Endpoint("Answer: Oslo") as endpoint:
            asks = SamplingLoop(
                model=models_of(endpoint),
                policy=Policy(rule="dsc", selector="majority_of_samples", max_rounds=8, state={"allocated": state}),
                enrichers=(known,),
            )
            outcomes = [asks.run(question) for question in difficulty]
            assert [outcome.decision.stop_round for outcome in outcomes] == [1, 4]
            assert len(endpoint.requests) == 5
        assert outcomes[1].rounds[2].signals["difficulty"] == 5
        assert outcomes[1].cost.calls == 4  # knowing costs nothing
    assert KnownDifficulty(difficulty).fingerprint() == KnownDifficulty(dict(difficulty)).fingerprint()
    assert KnownDifficulty(difficulty).fingerprint() != KnownDifficulty({TOWER: 1.0}).fingerprint()
    assert KnownDifficulty(len).fingerprint() == {"function": "len"}
    assert "KnownDifficulty(<built-in function len>)" in repr(KnownDifficulty(len))
    reply = asyncio.run(KnownDifficulty({}).measure("?", Round(index=1)))
    assert math.isnan(reply.signals["difficulty"])
    with pytest.raises(ModelError, match=r"KnownDifficulty"), Endpoint("Answer: Oslo") as endpoint:
        SamplingLoop(model=models_of(endpoint), policy=asks.policy).run(TOWER)
