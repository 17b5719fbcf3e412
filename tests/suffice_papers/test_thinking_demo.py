"""`suffice demo thinking`, and the laws of the chains that it judges."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from suffice.common.tables import render
from suffice.evaluation.replay import Replayer, policy_for
from suffice.policy.session import stops
from suffice.recordings import Recording, bundled_recording
from suffice.recordings.bundled import BUNDLED_THOUGHTS
from suffice_papers.thinking import thinking_demo
from suffice_papers.thinking.lines import MOST_PRICE, NEVER, Lines
from suffice_papers.thinking.thinking_demo import RULES, ThinkingFigures, overlap_table
from tests.support.cli_tools import cli
from tests.support.files import ROOT

EVERY = 16


@pytest.fixture(scope="module")
def chains() -> Recording:
    return bundled_recording("thoughts_test")


@pytest.fixture(scope="module")
def lines(chains) -> Lines:
    return Lines(chains, RULES)


def test_bundled_chains_are_small_and_no_puzzle_is_in_both_sets():
    folder = Path(importlib.util.find_spec("suffice").origin).parent / "data"
    files = [folder / "recorded" / f"{name}.parquet" for name in BUNDLED_THOUGHTS]
    assert sum(file.stat().st_size for file in files) < 1_000_000
    data = (folder / "DATA.md").read_text("utf-8")
    assert all(f"recorded/{file.name}" in data for file in files)
    tune, test = (set(bundled_recording(name).objects("question")[:, 0]) for name in BUNDLED_THOUGHTS)
    assert (len(tune), len(test)) == (300, 700)
    assert not tune & test


@pytest.mark.parametrize("name", BUNDLED_THOUGHTS)
def test_each_checkpoint_has_its_stretch_and_its_trial(name):
    chains = bundled_recording(name)
    seen, ended = chains.seen, chains.column("thinking_ended")
    tokens, output = chains.column("thinking_tokens"), chains.column("cost.generator.output_tokens")
    last = seen & ~np.roll(seen, -1, axis=1)
    last[:, -1] = seen[:, -1]
    own = last & (chains.ends == "exhausted")[:, None]  # the others reached the highest round
    thought = seen & ~own
    assert (np.cumsum(np.where(thought, output, 0), axis=1)[thought] == tokens[thought]).all()
    assert (output[thought & (ended == 0)] == EVERY).all()
    assert own.sum() > 0.99 * len(own)
    assert (ended[own] == 1).all()
    trials = np.nan_to_num(chains.column("cost.trial.calls"))
    assert (trials[thought] == 1).all()
    assert (trials[own] == 0).all()
    cached = chains.column("cost.trial.cached_tokens")
    assert (cached[thought] >= tokens[thought]).all()


def test_charges_are_those_of_plain_loops_over_the_rounds(chains):
    chain = sum(np.nan_to_num(chains.column(f"cost.generator.{kind}_tokens")) for kind in ("uncached", "output"))
    trial = sum(np.nan_to_num(chains.column(f"cost.trial.{kind}_tokens")) for kind in ("uncached", "output"))
    rules = ("deer(0.9)", "dynasor(2)", "token_budget(64)", "fixed_k(20)")
    compared = Replayer(chains, metrics="em").compare(rules)
    for rule in rules:
        policy = policy_for(chains, rule)
        stopped = stops(policy, chains.rounds(policy.raw_columns))
        run = next(run for run in compared.runs if run.label == rule)
        for q in range(0, len(stopped.rounds), 7):
            at, returned = int(stopped.rounds[q]) - 1, int(stopped.answer_rounds[q]) - 1
            # A rule that reads answers asks at every checkpoint, any other where it stops, and back to an answer.
            asked = range(at + 1) if rule in ("deer(0.9)", "dynasor(2)") else range(max(returned, 0), at + 1)
            spent = {name: run.ledger.costs[name] for name in ("generator", "trial")}
            paid = {name: kinds["uncached_tokens"][q] + kinds["output_tokens"][q] for name, kinds in spent.items()}
            assert paid["generator"] == chain[q, : at + 1].sum()
            assert paid["trial"] == sum(trial[q, r] for r in asked)


def test_a_chain_that_ends_by_itself_pays_no_trial(chains, lines):
    assert lines.whole.trials <= (chains.ends != "exhausted").mean()
    assert lines.whole.tokens["cached"] == pytest.approx(lines.whole.tokens["free"], abs=0.2)


@pytest.mark.parametrize("rule", RULES.values())
def test_a_stop_reads_nothing_that_comes_after_it(chains, rule):
    policy = policy_for(chains, rule)
    stopped = stops(policy, chains.rounds(policy.raw_columns))
    for last in (2, 5):
        table = chains.table.filter(pc.less_equal(chains.table["round"], last))
        cut = Recording(table, chains.metadata)
        again = stops(policy, cut.rounds(policy.raw_columns))
        before = stopped.rounds <= last
        fired = stopped.fired & before
        assert (again.rounds[fired] == stopped.rounds[fired]).all()
        assert not again.fired[~before].any()


def test_checking_again_helps_arithmetic_and_harms_lists(chains):
    right, thinking = chains.column("em"), chains.objects("thinking")
    kinds = np.array([name.split("-")[0] for name in chains.question_ids])
    own = np.array([row[seen][-1] for row, seen in zip(right, chains.seen, strict=True)])
    golds = [golds[0] for golds in chains.objects("golds")[:, 0]]
    texts = ["".join(text or "" for text in row) for row in thinking]
    first = np.array([text.split(" So ")[1].split()[0] == gold for text, gold in zip(texts, golds, strict=True)])
    arithmetic = kinds == "arithmetic"
    assert own[arithmetic].mean() > first[arithmetic].mean() + 0.1
    assert own[~arithmetic].mean() < first[~arithmetic].mean() - 0.1


def parts(run) -> tuple[float, float, float]:
    """Return a run's mean tokens for the chain, for trial answers, and of prefixes that they would read again."""
    chain, trial = (run.ledger.costs[name] for name in ("generator", "trial"))
    sums = [costs["uncached_tokens"] + costs["output_tokens"] for costs in (chain, trial)]
    return (*(float(values.mean()) for values in sums), float(trial["cached_tokens"].mean()))


def best_coin(points: list[tuple[float, float]], budget: float) -> float:
    """Return how often the best coin between two points of tokens and accuracy is right within a budget: try all pairs."""
    best = max((right for tokens, right in points if tokens <= budget), default=0.0)
    for cheap, low in points:
        for dear, high in points:
            if cheap <= budget < dear:
                best = max(best, low + (high - low) * (budget - cheap) / (dear - cheap))
    return best


def test_coins_and_break_even_prices_are_those_of_trying_all_pairs(lines):
    runs = {run.label: run for run in lines.compared.runs}
    fixed = [(parts(run), run.values["em"].mean()) for run in runs.values() if run.kind == "fixed"]

    def coin(line, price: float) -> float:
        points = [(chain + price * trial, right) for (chain, trial, _), right in fixed]
        chain, trial, _ = parts(runs[line.label])
        return best_coin(points, chain + price * trial)

    for line in lines.rules:
        chain, trial, again = parts(runs[line.label])
        assert line.tokens == pytest.approx({"free": chain, "cached": chain + trial, "reread": chain + trial + again})
        assert line.coins["free"].quality == pytest.approx(coin(line, 0))
        assert line.coins["cached"].quality == pytest.approx(coin(line, 1))
        assert line.above["cached"].delta == pytest.approx(line.accuracy - coin(line, 1))
        forced = [(chain + trial, right) for (chain, trial, _), right in fixed]
        assert line.coins["reread"].quality == pytest.approx(best_coin(forced, chain + trial + again))
        price = lines.pays_up_to(line)
        assert price > 0
        assert coin(line, 0.98 * price) < line.accuracy
        assert price == MOST_PRICE or coin(line, 1.02 * price) >= line.accuracy - 1e-9


def test_a_coin_of_the_fewest_tokens_is_right_so_often(lines):
    for line in lines.rules:
        tokens = lines.tokens_of_coin(line.accuracy)
        points = [(budget.tokens["cached"], budget.accuracy) for budget in lines.budgets]
        if tokens is None:
            assert line.accuracy > max(right for _, right in points)
        else:
            assert best_coin(points, tokens) == pytest.approx(line.accuracy)


def test_few_chains_certify_nothing_and_the_sentences_say_so(chains):
    few = pc.is_in(chains.table["question_id"], pa.array(chains.question_ids[:20]))
    found = ThinkingFigures(
        tune=bundled_recording("thoughts_tune"), test=Recording(chains.table.filter(few), chains.metadata)
    )
    assert found.certified == {}
    assert found.proof.startswith("Of no rule")
    assert f"{found.chosen.label} (not certified) is right on" in found.sentence
    assert found.chosen.tokens["cached"] == min(line.tokens["cached"] for line in found.lines.rules)


def test_the_demo_gives_one_sentence_two_tables_and_json(tmp_path, monkeypatch):
    found = cache(
        lambda: ThinkingFigures(tune=bundled_recording("thoughts_tune"), test=bundled_recording("thoughts_test"))
    )
    monkeypatch.setattr(thinking_demo, "ThinkingFigures", lambda **_: found())
    page = tmp_path / "thinking.md"
    arguments = ("demo", "thinking", f"--set=markdown={page}")
    told = cli(*arguments, "--json").json
    rules = {rule["label"]: rule for rule in told["rules"]}
    assert set(rules) == set(RULES)
    assert told["chosen"] in told["headline"]
    assert told["never_stop"]["trials"] < 0.01
    assert rules["dynasor(3)"]["trials"] > rules[told["chosen"]]["trials"] > 0
    assert all(0 <= share <= 0.06 for share in told["boundary"].values())
    assert told["chosen"] in told["certified"]
    assert all(0 < p <= 0.05 for p in told["certified"].values())
    assert "dynasor(2)" not in told["certified"]
    text = page.read_text("utf-8")
    assert "The price of asking" in text
    assert NEVER in text
    assert page.with_suffix(".svg").read_text("utf-8").startswith("<svg")
    shown = cli(*arguments, code=0)
    assert told["headline"] in shown.words
    assert "The price of asking" in shown.out


def test_the_demo_refuses_a_page_in_no_folder(tmp_path):
    assert "create it first" in cli("demo", "thinking", f"--set=markdown={tmp_path / 'missing' / 'x.md'}").error


def test_going_on_beside_trials_is_measured_against_waiting_for_them():
    table = overlap_table()
    rows = [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows]
    assert [(row["slots"], row["the chain"]) for row in rows] == [
        (n, way) for n in (1, 2) for way in ("waits", "goes on")
    ]
    for waits, goes_on in (rows[:2], rows[2:]):
        assert waits["thought beyond"] == waits["read beyond, at most"] == waits["stopped beside, %"] == 0
        assert 0 < goes_on["thought beyond"] <= EVERY
        assert goes_on["stopped beside, %"] > 0.9
        assert goes_on["tokens"] >= waits["tokens"] - 1
    page = (ROOT / "docs" / "results" / "thinking.md").read_text("utf-8")
    assert render([table], "md").strip() in page
