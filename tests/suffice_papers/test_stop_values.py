"""The value of stopping, learned from recorded rounds, against the dynamic programme and plain loops over its targets."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.errors import CensoredError, DataError, SufficeError, UnknownSignalError
from suffice.evaluation.replay import calibrate, replay
from suffice.policy.rounds import Round, Rounds
from suffice.policy.session import Policy, Session
from suffice.recordings.recording import Recording, write_recording
from suffice.recordings.schema import build_table
from suffice_papers.rivals.stop_values import learn_stop
from tests.support.cli_tools import cli

# A chain of three states: what a round's answer is worth there, and where the next round leads, round by round.
WORTH = np.array([[0.1, 0.5, 0.7], [0.2, 0.6, 0.9], [0.3, 0.5, 0.8], [0.4, 0.7, 0.6]])
MOVES = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]])
HIGHEST = len(WORTH)


def chain(n: int, seed: int = 0, **columns) -> Recording:
    """Walks through the chain: the state is two recorded signals, the metric its worth with a coin's noise."""
    rng = np.random.default_rng(seed)
    rows = []
    for q in range(n):
        state = rng.integers(3)
        for r in range(1, HIGHEST + 1):
            rows.append(
                {
                    "question_id": f"q{seed}-{q}",
                    "round": r,
                    "end": "max_rounds",
                    "question": f"Question {seed} {q}?",
                    "answer": "a",
                    "f1": float(rng.random() < WORTH[r - 1, state]),
                    "middle": float(state == 1),
                    "high": float(state == 2),
                    "cost.generator.calls": 1.0,
                    **{name: value(q, r, rng) for name, value in columns.items()},
                }
            )
            state = rng.choice(3, p=MOVES[state])
    kinds = dict.fromkeys(["middle", "high", *columns], "signal")
    return Recording(build_table(rows, kinds))


def learned_values(values, position: int) -> np.ndarray:
    """Return Q(stop) and Q(continue) in the three states at one round, shape ``(3, 2)``."""
    item = values.rounds[position]
    inputs = {"middle": [0, 1, 0], "high": [0, 0, 1]}
    table = np.column_stack([*(inputs[name] for name in item.signals), np.ones(3)])
    return np.column_stack([table @ item.stop, table @ item.go_on])


def empirical_programme(recording: Recording) -> np.ndarray:
    """Solve the chain of the recorded frequencies backwards, question by question; shape ``(rounds, 3, 2)``."""
    f1 = recording.column("f1")
    states = (recording.column("middle") + 2 * recording.column("high")).astype(int)
    q_values = np.zeros((HIGHEST, 3, 2))
    best = f1[:, -1]
    for t in reversed(range(HIGHEST - 1)):
        for state in range(3):
            here = [q for q in range(len(f1)) if states[q, t] == state]
            q_values[t, state] = np.mean([f1[q, t] for q in here]), np.mean([best[q] for q in here])
        best = np.array([q_values[t, state].max() for state in states[:, t]])
    return q_values


def test_the_values_of_a_planted_chain_are_those_of_the_dynamic_programme():
    recording = chain(4000)
    _, values = learn_stop(recording, ["middle", "high"], ridge=1e-9)
    expected = empirical_programme(recording)
    for t in range(HIGHEST - 1):
        np.testing.assert_allclose(learned_values(values, t), expected[t], atol=1e-8)
    true, best = np.zeros((HIGHEST, 3, 2)), WORTH[-1]
    for t in reversed(range(HIGHEST - 1)):
        true[t] = np.column_stack([WORTH[t], MOVES @ best])
        best = true[t].max(axis=1)
    assert np.abs(np.stack([learned_values(values, t) for t in range(HIGHEST - 1)]) - true[:-1]).max() < 0.07


@pytest.mark.parametrize("trace", [0.0, 0.4, 1.0])
def test_targets_are_the_sum_over_all_n_step_returns(trace):
    recording = chain(300, seed=3)
    policy, values = learn_stop(recording, ["middle", "high"], ridge=1e-9, trace=trace)
    f1 = recording.column("f1")
    states = (recording.column("middle") + 2 * recording.column("high")).astype(int)
    end = HIGHEST - 1
    for t in range(end):
        targets = []
        for q in range(len(f1)):
            # G(n) is the best value n rounds later, or the quality of the last round, which stops anyway.
            returns = [learned_values(values, t + n)[states[q, t + n]].max() for n in range(1, end - t)] + [f1[q, end]]
            shares = [(1 - trace) * trace ** (n - 1) for n in range(1, end - t)] + [trace ** (end - t - 1)]
            targets.append(sum(share * value for share, value in zip(shares, returns, strict=True)))
        for state in range(3):
            mean = np.mean([target for q, target in enumerate(targets) if states[q, t] == state])
            assert learned_values(values, t)[state, 1] == pytest.approx(mean, abs=1e-7)
    if trace == 1.0:  # then going on is worth what the last round gives
        assert learned_values(values, 0)[0, 1] == pytest.approx(f1[states[:, 0] == 0, end].mean(), abs=1e-7)
    assert policy.rule == values.rule


def test_the_rule_stops_where_stopping_is_worth_no_less():
    recording = chain(500, seed=1)
    policy, values = learn_stop(recording, ["middle", "high"])
    states = (recording.column("middle") + 2 * recording.column("high")).astype(int)
    wanted = []
    for row in states:
        stops = (t for t in range(HIGHEST - 1) if np.subtract(*learned_values(values, t)[row[t]]) >= 0)
        wanted.append(next(stops, HIGHEST - 1) + 1)
    found = []
    for q in range(len(states)):
        session = Session(policy)
        for t in range(HIGHEST):
            signals = {"middle": float(states[q, t] == 1), "high": float(states[q, t] == 2)}
            if session.observe(Round(index=t + 1, answer="a", signals=signals)).stop:
                break
        found.append(session.decision.stop_round)
    assert found == wanted
    assert len(set(wanted)) > 1
    row = replay(recording, policy, metrics="f1").rows[0]
    assert row.calls.mean == pytest.approx(np.mean(wanted))


def test_what_comes_later_changes_no_decision():
    recording = chain(500, seed=1)
    policy, _ = learn_stop(recording, ["middle", "high"])
    raw = recording.rounds(policy.raw_columns)
    fires = policy.rule.fires(policy.view(raw))
    for r in range(HIGHEST - 1):
        changed = {name: column.copy() for name, column in raw.columns.items()}
        for name in ("middle", "high"):
            changed[name][:, r + 1 :] = 1 - changed[name][:, r + 1 :]
        later = policy.rule.fires(policy.view(Rounds(changed, raw.index, raw.seen, raw.answers)))
        assert (later[:, : r + 1] == fires[:, : r + 1]).all()
        assert (later[:, r + 1 : -1] != fires[:, r + 1 : -1]).any() or r == HIGHEST - 2


def test_a_policy_keeps_what_it_learned_and_from_which_questions(tmp_path):
    recording = chain(200, seed=5)
    policy, values = learn_stop(recording, ["middle", "high"], name="learned")
    policy.save(tmp_path / "policy.json")
    loaded = Policy.load(tmp_path / "policy.json")
    assert (loaded.rule, loaded.name, loaded.digest) == (policy.rule, "learned", policy.digest)
    assert loaded.provenance["fit"]["metric"] == values.metric == "f1"
    assert any("selected here" in note for note in replay(recording, loaded, metrics="f1").notes)
    assert not any("selected here" in note for note in replay(chain(200, seed=6), loaded, metrics="f1").notes)
    assert "Q(continue)" in str(values.tables()[0].columns)


def test_where_a_signal_is_undefined_the_loop_goes_on():
    recording = chain(400, seed=2, margin=lambda q, r, rng: None if q % 5 == 0 and r == 2 else rng.random())
    policy, values = learn_stop(recording, ["middle", "high", "margin"])
    assert [item.n_undefined for item in values.rounds] == [0, 80, 0]
    assert any("round 2" in note and "80 of 400" in note for note in values.notes)
    view = policy.view(recording.rounds(policy.raw_columns))
    assert not policy.rule.fires(view)[::5, 1].any()


def test_a_signal_is_not_read_at_rounds_where_it_does_not_exist():
    recording = chain(300, seed=2, stable=lambda q, r, rng: None if r == 1 else float(rng.random() < 0.5))
    _, values = learn_stop(recording, ["high", "stable"])
    assert [item.signals for item in values.rounds] == [("high",), ("high", "stable"), ("high", "stable")]
    assert all(item.n == 300 for item in values.rounds)


def test_dearer_rounds_end_the_loop_sooner():
    recording = chain(400, seed=4)
    calls = []
    for price in (0.0, 0.05, 0.3, 1.0):
        policy, _ = learn_stop(recording, ["middle", "high"], price=price)
        calls.append(replay(recording, policy, metrics="f1").rows[0].calls.mean)
    assert calls == sorted(calls, reverse=True)
    assert calls[0] > calls[-1] == 1.0


def test_trajectories_that_ended_early_have_nothing_to_decide_after_their_end():
    recording = chain(300, seed=7)
    rows = recording.table.to_pylist()
    short = [row for row in rows if not (row["question_id"].endswith("0") and row["round"] > 2)]
    short = [{**row, "end": "exhausted"} if row["question_id"].endswith("0") else row for row in short]
    cut = Recording(build_table(short, {"middle": "signal", "high": "signal"}))
    _, values = learn_stop(cut, ["middle", "high"], ridge=1e-9)
    assert [item.n for item in values.rounds] == [300, 270, 270]
    f1, high = cut.column("f1"), cut.column("high")
    full = ~np.isnan(f1[:, 3])
    assert learned_values(values, 2)[2, 1] == pytest.approx(f1[full & (high[:, 2] == 1), 3].mean(), abs=1e-7)


def test_a_calibrated_signal_is_fitted_on_the_same_questions():
    recording = chain(300, seed=8, answer_margin=lambda q, r, rng: float(rng.exponential()))
    policy, _ = learn_stop(recording, ["p_correct", "high"], target="f1 > 0.5")
    expected, _ = calibrate(recording, rule="p_correct > 0.5", target="f1 > 0.5")
    assert policy.calibrators == expected.calibrators


def test_what_cannot_be_learned_is_refused():
    recording = chain(60)
    rows = recording.table.to_pylist()
    kinds = {"middle": "signal", "high": "signal"}

    def changed(**values) -> Recording:
        return Recording(build_table([{**row, **values} for row in rows], kinds))

    wrong: list[tuple[type[SufficeError], str, Recording, list[str], dict]] = [
        (DataError, "signals to read", recording, [], {}),
        (DataError, "named once", recording, ["high", "high"], {}),
        (DataError, "trace lies", recording, ["high"], {"trace": 1.5}),
        (DataError, "price", recording, ["high"], {"price": -1.0}),
        (DataError, "ridge", recording, ["high"], {"ridge": 0.0}),
        (DataError, "at all rounds", changed(f1=1.0), ["high"], {}),
        (UnknownSignalError, "no such column", recording, ["hihg"], {}),
        (CensoredError, "a rule ended", _cut(rows, kinds), ["high"], {}),
        (DataError, "unknown", _without(rows, kinds, 7), ["high"], {}),
    ]
    for error, words, data, signals, settings in wrong:
        with pytest.raises(error, match=words):
            learn_stop(data, signals, **settings)


def test_the_command_learns_shows_and_saves_the_same_policy(tmp_path):
    recording, path = chain(80), tmp_path / "tune.parquet"
    write_recording(path, recording.table)
    out = tmp_path / "policy.json"
    asked = ("calibrate", path, "-o", out, "--learn-stop", "middle, high", "--target", "f1")
    shown = cli(*asked, "--set=trace=0.5", "--set=round-price=0.01", "--json").json
    policy, values = learn_stop(recording, ["middle", "high"], metric="f1", trace=0.5, price=0.01)
    assert Policy.load(out).rule == policy.rule
    assert shown["rounds"][0]["stop"] == pytest.approx(values.rounds[0].stop)
    assert "Q(continue)" in cli(*asked).out
    for wrong in (["--rule", "tasr", "--learn-stop", "high"], ["--set=trace=0.5"], ["--set=round-price=1"]):
        assert cli("calibrate", path, "-o", out, *wrong).code == 2


def _without(rows: list[dict], kinds: dict[str, str], place: int) -> Recording:
    return Recording(build_table([{**row, "f1": None} if i == place else row for i, row in enumerate(rows)], kinds))


def _cut(rows: list[dict], kinds: dict[str, str]) -> Recording:
    kept = [row for row in rows if row["round"] < 3 or row["question_id"] != "q0-5"]
    return Recording(
        build_table([{**row, "end": "rule"} if row["question_id"] == "q0-5" else row for row in kept], kinds)
    )
