"""Chains of thought in replay: which trial answers each policy pays for, against loops that ask for them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice.evaluation.replay import replay
from suffice.evaluation.replay.baselines import fixed_budget, oracle_earliest, run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.random_twins import random_stop
from suffice.evaluation.search import Block, Literal, Space, search
from suffice.evaluation.search.data import Questions
from suffice.evaluation.search.explore import Explorer
from suffice.evaluation.search.space import FORMS, thoughts
from suffice.evaluation.search.sums import RuleSums
from suffice.evaluation.statistics import Resampling
from suffice.policy.session import Policy
from suffice.recordings import bundled_recording
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table

STRETCH = 100.0
ANSWERS = ("4", "5", None)


def chain(name: str, trials: list[str | None], own: str = "4") -> list[dict]:
    """Return the rows of one chain: a checkpoint each 100 tokens, and its own end; trial r costs r tokens."""
    answers = [*trials, own]
    rows = []
    for r, answer in enumerate(answers, start=1):
        stable = float(answer == answers[r - 2] and answer is not None) if r > 1 else None
        rows.append(
            {
                "question_id": name,
                "round": r,
                "end": "exhausted",
                "answer": answer,
                "thinking_tokens": STRETCH * min(r, len(trials)),
                "answer_stable": stable,
                "trial_hesitates": 0.0 if r <= len(trials) else None,
                "cost.generator.calls": 0.0,
                "cost.generator.output_tokens": STRETCH if r <= len(trials) else 5.0,
                "cost.trial.calls": 1.0 if r <= len(trials) else 0.0,
                "cost.trial.output_tokens": float(r) if r <= len(trials) else 0.0,
                **{f"cost.{c}.{k}": 0.0 for c in ("generator", "trial") for k in ("uncached_tokens", "cached_tokens")},
                "em": float(answer == "4"),
            }
        )
    return rows


def recording(*chains: list[dict]) -> Recording:
    return Recording(build_table([row for rows in chains for row in rows]))


def paid(policy: Policy, *chains: list[dict]) -> list[float]:
    """Return the tokens of the trials that each chain pays for."""
    run, _ = run_policy(PreparedRecording.of(recording(*chains), metrics=("em",)), policy)
    return run.ledger.costs["trial"]["output_tokens"].tolist()


def policy(rule: str, **more) -> Policy:
    return Policy(rule=rule, max_rounds=9, **more)


class Live:
    """A loop that thinks, and asks for a trial answer when something needs it."""

    def __init__(self, rows: list[dict]) -> None:
        self.rows, self.asked = rows, set()

    def trial(self, r: int) -> str | None:
        self.asked.add(r)
        return self.rows[r - 1]["answer"]

    def returned(self, stop: int) -> float:
        """Return the latest answer, and the tokens of all trials that were asked for."""
        for r in range(stop, 0, -1):
            if self.trial(r) is not None:
                break
        return sum(self.rows[r - 1]["cost.trial.output_tokens"] for r in self.asked)


def by_budget(live: Live, tokens: float) -> float:
    stop = next((row["round"] for row in live.rows if row["thinking_tokens"] >= tokens), len(live.rows))
    return live.returned(stop)


def by_dynasor(live: Live, k: int) -> float:
    answers: list[str | None] = []
    for r in range(1, len(live.rows) + 1):
        answers.append(live.trial(r))
        if r >= k and len(set(answers[-k:])) == 1 and answers[-1] is not None and r < len(live.rows):
            return live.returned(r)
    return live.returned(len(live.rows))


def by_late_stability(live: Live, tokens: float) -> float:
    for r in range(2, len(live.rows) + 1):
        if live.rows[r - 1]["thinking_tokens"] >= tokens and live.trial(r) == live.trial(r - 1) is not None:
            return live.returned(r)
    return live.returned(len(live.rows))


trials = st.lists(st.sampled_from(ANSWERS), min_size=2, max_size=6)
chains = st.lists(trials, min_size=1, max_size=4)


@settings(max_examples=60)
@given(chains, st.integers(1, 6))
def test_a_token_budget_pays_one_trial_at_its_end(drawn, budget):
    made = [chain(f"q{i}", answers) for i, answers in enumerate(drawn)]
    expected = [by_budget(Live(rows), STRETCH * budget) for rows in made]
    assert paid(policy(f"token_budget({STRETCH * budget:g})"), *made) == expected


@settings(max_examples=60)
@given(chains, st.integers(2, 4))
def test_a_rule_of_answers_pays_all_trials_up_to_its_stop(drawn, k):
    made = [chain(f"q{i}", answers) for i, answers in enumerate(drawn)]
    assert paid(policy(f"dynasor({k})"), *made) == [by_dynasor(Live(rows), k) for rows in made]


@settings(max_examples=60)
@given(chains, st.integers(1, 6))
def test_a_rule_that_reads_late_pays_from_there_on(drawn, budget):
    made = [chain(f"q{i}", answers) for i, answers in enumerate(drawn)]
    rule = f"(thinking_tokens >= {STRETCH * budget:g}) & (answer_stable >= 1)"
    assert paid(policy(rule), *made) == [by_late_stability(Live(rows), STRETCH * budget) for rows in made]


def test_a_chain_that_is_never_stopped_pays_no_trial():
    made = [chain("a", ["5", "4"]), chain("b", ["5", None, "4"])]
    run = fixed_budget(PreparedRecording.of(recording(*made), metrics=("em",)), 9)
    assert run.ledger.costs["trial"]["output_tokens"].tolist() == [0, 0]
    assert run.ledger.costs["generator"]["output_tokens"].tolist() == [205, 305]


def test_a_vote_over_checkpoints_pays_for_every_trial():
    made = chain("a", ["5", "4", "4", "4"])
    assert paid(policy("token_budget(300)", selector="majority"), made) == [1 + 2 + 3]


def test_an_oracle_pays_the_trial_that_it_returns():
    prepared = PreparedRecording.of(recording(chain("a", ["5", "5", "4"]), chain("b", ["5", "5"])), metrics=("em",))
    run = oracle_earliest(prepared, prepared.metrics["em"])
    assert run.ledger.costs["trial"]["output_tokens"].tolist() == [3, 0]


def test_random_stops_pay_one_trial_where_they_stop():
    made = [chain("a", ["4"] * 3), chain("b", ["4"] * 3)]
    prepared = PreparedRecording.of(recording(*made), metrics=("em",))
    budget = policy("token_budget(200)")
    _, stopped = run_policy(prepared, budget)
    twin = random_stop(prepared, budget, stopped)
    assert math.isclose(float(np.mean(twin.ledger.costs["trial"]["output_tokens"])), 2.0)


def test_replay_shows_the_price_of_asking_apart():
    made = [chain(f"q{i}", ["5", "4", "4"]) for i in range(30)]
    result = replay(recording(*made), policy("dynasor(2)"), metrics="em", resampling=Resampling(n_resamples=20))
    rows = {row.kind: row for row in result.rows}
    assert rows["rule"].costs["output_tokens"] == 300 + 1 + 2 + 3
    assert [row.costs["output_tokens"] for row in result.rows if row.label == "fixed_k(4)"] == [305]


def literals(signals: dict[str, tuple[str, tuple[float, ...]]]) -> tuple[Literal, ...]:
    return tuple(Literal(signal=name, comparison=sign, thresholds=values) for name, (sign, values) in signals.items())


READ = literals(
    {
        "thinking_tokens": (">=", (200.0, 300.0)),
        "answer_stable": (">=", (1.0,)),
        "trial_hesitates": ("<", (1.0,)),
        "round": ("<=", (3.0,)),
    }
)


@settings(max_examples=12, deadline=None)
@given(chains, st.sampled_from(FORMS), st.permutations(READ), st.sampled_from([(), (2, 9)]))
def test_a_search_charges_each_rule_what_replay_does(drawn, form, order, highest):
    made = recording(*[chain(f"q{i}", answers) for i, answers in enumerate([*drawn, ["5", "4", "4", None, "4", "5"]])])
    block = Block(form=form, literals=tuple(order))
    space = Space(name="all", blocks=(block,), patience=(1, 3), max_rounds=highest)
    reads_all = policy(" & ".join(f"({literal.signal} > 0)" for literal in READ))
    questions = Questions.of({"": made}, {"": reads_all}, metric="em", baseline="fixed_k(3)")
    explorer, numbers = Explorer(space, questions), np.arange(space.count)
    means = explorer.means(numbers)
    sums = RuleSums.zero(space.count, tokens=True)
    sums.add_questions(space, questions)
    prepared = PreparedRecording.of(made, metrics=("em",))
    paid = {}
    for number, rule, most in zip(numbers, explorer.rules(numbers), explorer.settings(numbers)[1], strict=True):
        run, stopped = run_policy(prepared, Policy(rule=rule, max_rounds=most))
        calls, tokens = (
            sum(run.ledger.costs[c][kind] for c in ("generator", "trial")) for kind in ("calls", "output_tokens")
        )
        if not highest:
            assert explorer.of_rule(rule, "")[1] == sums.hashes[number], str(rule)
        paid[stopped.position.tobytes(), calls.tobytes(), tokens.tobytes()] = number
        assert means["calls"][number] == pytest.approx(calls.mean()), str(rule)
        assert means["tokens"][number] == pytest.approx(tokens.mean()), str(rule)
    for name in ("calls", "tokens"):
        assert sums.means(numbers)[name] == pytest.approx(means[name])
    assert len(explorer.distinct_by(sums.hashes)) == len(paid)


def test_a_search_of_thoughts_reports_the_costs_of_replay():
    made = bundled_recording("thoughts_test")
    found = search(made, tune=bundled_recording("thoughts_tune"), budget=6.0, resampling=Resampling(n_resamples=20))
    assert found.chosen is not None
    baseline = Policy(rule="fixed_k(3)", max_rounds=found.chosen.policy.max_rounds)
    replayed = replay(made, [found.chosen.policy, baseline], resampling=Resampling(n_resamples=20))
    rows = {row.label: row for row in replayed.rows}
    row = rows[found.chosen.policy.label]
    assert found.chosen.estimate.calls == pytest.approx(row.costs["calls"])
    ((_, calls),) = found.baselines.values()
    assert calls == pytest.approx(rows["fixed_k(3)"].costs["calls"])


def probed(name: str) -> list[dict]:
    """Return the rows of a chain whose states a probe read at each checkpoint."""
    rows = chain(name, ["5", "4", "4", "4"])
    for row in rows:
        is_own = row["round"] == len(rows)
        row["p_settled"] = None if is_own else row["round"] / 5
        row |= {f"cost.prober.{kind}": 0.0 for kind in ("calls", "cached_tokens", "output_tokens")}
        row["cost.prober.uncached_tokens"] = 0.0 if is_own else 100.0 * row["round"]
    return rows


def test_a_search_says_that_a_probe_is_charged_by_replay():
    read = recording(*[probed(f"q{i}") for i in range(8)])
    none = Resampling(n_resamples=0)
    notes = {}
    for signal in ("p_settled", "thinking_tokens", "answer_stable"):
        block = Block(form="and", literals=(Literal(signal=signal, thresholds=(0.5,)),))
        result = search(read, metric="em", space=Space(name="s", blocks=(block,)), budget=1e9, resampling=none)
        notes[signal] = [note for note in result.notes if "charged by replay" in note]
    assert notes["thinking_tokens"] == notes["answer_stable"] == []
    (note,) = notes["p_settled"]
    assert "what p_settled costs" in note


def test_what_needs_no_trial_is_searched_before_what_does():
    order = [
        literal.signal for literal in thoughts({"thinking_tokens", "answer_stable", "p_settled"}).blocks[0].literals
    ]
    assert order == ["thinking_tokens", "p_settled", "answer_stable"]
