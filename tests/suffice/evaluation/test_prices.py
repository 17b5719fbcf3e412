"""Money: bundled list prices, and what each round costs with and without prefix reuse."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings

from suffice.cli.main import run
from suffice.errors import DataError
from suffice.evaluation.replay import Price, list_price, list_prices, load_prices, policy_for, replay
from suffice.evaluation.replay.costs_by_round import round_costs
from suffice.evaluation.replay.price_lists import price_table
from suffice.evaluation.statistics import Resampling
from suffice.recordings.recording import Recording, write_recording
from suffice.recordings.schema import build_table
from tests.support import strategies as drawn

PRICE = Price(uncached=1.0, cached=0.1, output=2.0)


def test_every_list_price_has_date_source_page_and_sane_numbers():
    listed = list_prices()
    assert 20 <= len(listed) <= 60
    for model, entry in listed.items():
        assert entry.model == model
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", entry.price.as_of)
        assert entry.source
        assert entry.page.startswith("https://")
        assert 0 < entry.price.cached <= entry.price.uncached <= entry.price.output <= 200
        if not entry.cached_listed:
            assert entry.price.cached == entry.price.uncached


def test_a_model_without_a_list_price_is_told_similar_ones():
    with pytest.raises(DataError, match="similar: gpt-4o-mini"):
        list_price("gpt-4o-mni")
    with pytest.raises(DataError, match="suffice data prices"):
        list_price("zzzzzz")


def test_a_price_may_be_nothing_but_not_negative_or_unknown():
    assert Price(uncached=0.0, cached=0, output=0.0).in_batches.output == 0.0
    for wrong in (-0.1, math.nan, math.inf, True, "1"):
        with pytest.raises(DataError, match="price"):
            Price(uncached=wrong, cached=0.0, output=0.0)


def test_a_price_table_shows_its_date_and_unlisted_cached_input():
    table = price_table([list_price("gpt-4o-mini"), list_price("mistral-nemo")])
    assert table.texts()[1][3] == "-"
    assert "as of" in table.notes[0]
    assert "override with --prices" in table.notes[0]
    assert "uncached" in table.notes[1]


def test_a_price_table_shows_what_writing_to_a_cache_costs():
    opus, mini = list_price("claude-opus-4-5"), list_price("gpt-4o-mini")
    assert price_table([opus]).texts()[0][-2:] == ["6.25", "10"]
    assert [column.name for column in price_table([opus, mini]).columns][-2:] == ["cache write", "for an hour"]
    assert price_table([opus, mini]).texts()[1][-2:] == ["-", "-"]
    assert len(price_table([mini]).columns) == 5


def test_list_means_bundled_prices_unless_a_file_has_that_name(tmp_path):
    assert load_prices("list")["gpt-4o-mini"] == list_price("gpt-4o-mini").price
    own = tmp_path / "own.toml"
    own.write_text('["gpt-4o-mini"]\nuncached = 9.0\ncached = 8.0\noutput = 7.0\n')
    assert load_prices(own) == {"gpt-4o-mini": Price(uncached=9.0, cached=8.0, output=7.0)}


def recording(**changes) -> Recording:
    """Two questions of three and two rounds; prompts of 100, 150, 230 tokens."""
    rows = []
    for q, rounds in (("a", 3), ("b", 2)):
        for r in range(1, rounds + 1):
            prompt = {1: 100.0, 2: 150.0, 3: 230.0}[r]
            cached = 0.0 if r == 1 else 64.0
            row = {
                "question_id": q,
                "round": r,
                "end": "max_rounds" if r == 3 else "exhausted",
                "answer": "x",
                "f1": 1.0,
                "cost.generator.calls": 1.0,
                "cost.generator.uncached_tokens": prompt - cached,
                "cost.generator.cached_tokens": cached,
                "cost.generator.output_tokens": 10.0 * r,
                "cost.generator.seconds": 0.5,
                "cost.judge:own.calls": 1.0,
            }
            rows.append({**row, **changes})
    return Recording(build_table(rows))


def test_rounds_are_billed_without_reuse_and_with_shared_prefixes_cached():
    result = round_costs(recording(), PRICE)
    found = {
        (row.round_index, row.billing): (row.uncached_tokens, row.cached_tokens, row.output_tokens, row.money * 1e6)
        for row in result.rows
    }
    expected = {
        (1, "as recorded"): (100, 0, 10, 120),
        (1, "no prefix reuse"): (100, 0, 10, 120),
        (1, "full prefix reuse"): (100, 0, 10, 120),
        (2, "as recorded"): (86, 64, 20, 86 + 6.4 + 40),
        (2, "no prefix reuse"): (150, 0, 20, 190),
        (2, "full prefix reuse"): (50, 100, 20, 50 + 10 + 40),
        (3, "as recorded"): (166, 64, 30, 166 + 6.4 + 60),
        (3, "no prefix reuse"): (230, 0, 30, 290),
        (3, "full prefix reuse"): (80, 150, 30, 80 + 15 + 60),
    }
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key] == pytest.approx(values), key
    assert [row.n for row in result.rows] == [2] * 6 + [1] * 3
    assert {row.billing for row in result.rows if row.modelled} == {"no prefix reuse", "full prefix reuse"}
    assert all(math.isnan(row.seconds) == row.modelled for row in result.rows)  # nobody measured those
    assert any("judge:own" in note for note in result.notes)


@settings(max_examples=20)
@given(drawn.recorded(start=1, complete=True))
def test_rounds_as_recorded_add_up_to_the_full_budget(data):
    rows = [row for row in round_costs(data.recording, PRICE).rows if row.billing == "as recorded"]
    full = replay(data.recording, ["full"], resampling=Resampling(n_resamples=5), prices=PRICE).row("full")
    for mine, kind in (("calls", "calls"), ("uncached_tokens",) * 2, ("output_tokens",) * 2, ("seconds",) * 2):
        assert sum(getattr(row, mine) for row in rows) == pytest.approx(full.costs[kind])
    assert sum(row.money for row in rows) == pytest.approx(full.costs["money"])


def test_the_first_passage_is_uncached_even_after_a_closed_book_round():
    rows = recording().table.to_pylist()
    shifted = Recording(build_table([{**row, "round": row["round"] - 1} for row in rows]))
    full = {row.round_index: row for row in round_costs(shifted).rows if row.billing == "full prefix reuse"}
    assert [full[r].cached_tokens for r in (0, 1, 2)] == [0, 0, 150]


def test_what_is_unknown_stays_unknown_and_modelled_counts_are_labelled():
    unknown = round_costs(recording(**{"cost.generator.cached_tokens": None}))
    assert all(math.isnan(row.cached_tokens) for row in unknown.rows if row.billing == "as recorded")
    assert all(math.isnan(row.money) for row in unknown.rows)
    assert unknown.to_dict()["rows"][0]["money"] is None
    parallel = Recording(recording().table, {"cache_state": "unknown"})
    result = round_costs(parallel, PRICE)
    assert all(row.modelled for row in result.rows)
    by = {(row.round_index, row.billing): row.money for row in result.rows}
    assert by[2, "as recorded"] == by[2, "full prefix reuse"]


def test_one_question_without_answers_costs_what_it_costs():
    one = recording(answer=None).select(np.array([True, False]))
    assert round_costs(one).n == 1
    with pytest.raises(DataError, match="failed"):
        round_costs(recording(end="failed"))


def test_a_replay_with_list_prices_prints_their_date():
    result = replay(
        recording(),
        ["full"],
        metrics=("f1",),
        resampling=Resampling(n_resamples=5),
        prices=list_price("gpt-4o-mini").price,
    )
    assert any(note.startswith("list price as of 20") and "--prices" in note for note in result.notes)
    own = replay(recording(), ["full"], metrics=("f1",), resampling=Resampling(n_resamples=5), prices=PRICE)
    assert not any("list price" in note for note in own.notes)


def invoked(*arguments: str) -> None:
    with pytest.raises(SystemExit) as left:
        run(list(arguments))
    assert left.value.code == 0


def test_the_commands_show_prices_and_costs(tmp_path, capsys):
    path = tmp_path / "r.parquet"
    write_recording(path, recording().table)
    invoked("data", "prices", "gpt-4o-mini", "--json")
    assert json.loads(capsys.readouterr().out)["prices"][0]["price"]["output"] == 0.6
    invoked("data", "prices")
    assert "genai-prices" in capsys.readouterr().out
    invoked("data", "costs", str(path), "--model", "gpt-4o-mini")
    assert "no prefix reuse (modelled)" in capsys.readouterr().out
    own = tmp_path / "p.toml"
    own.write_text("[generator]\nuncached = 1.0\ncached = 0.1\noutput = 2.0\n[m]\nuncached=0\ncached=0\noutput=0\n")
    with pytest.raises(SystemExit) as left:
        run(["data", "costs", str(path), "--prices", str(own), "--model", "gpt-4o-mini"])
    assert left.value.code == 2
    capsys.readouterr()
    invoked("data", "costs", str(path), "--json")
    assert json.loads(capsys.readouterr().out)["n"] == 2


@pytest.mark.parametrize(
    ("cost", "dominating"), [("calls", "fixed_k(2)"), ("tokens", None), ("seconds", None), ("money", None)]
)
def test_verdict_and_cheapest_match_follow_the_requested_cost(cost, dominating):
    """Three questions ask three tiny prompts, one stops after a tiny one where the fixed budget pays for two large."""
    rows = []
    for q in range(4):
        easy = q == 3
        for r in range(3):
            large = 100.0 if easy and r > 0 else 1.0
            rows.append(
                {
                    "question_id": f"q{q}",
                    "round": r,
                    "end": "max_rounds",
                    "answer": "x",
                    "enough": float(r == (0 if easy else 2)),
                    "f1": 1.0 if r == 2 or easy else 0.0,
                    "cost.generator.calls": 1.0,
                    "cost.generator.uncached_tokens": large,
                    "cost.generator.cached_tokens": 0.0,
                    "cost.generator.output_tokens": 0.0,
                    "cost.generator.seconds": large,
                }
            )
    data = Recording(build_table(rows, kinds={"enough": "signal"}))
    policy = policy_for(data, "enough > 0", start_round=0, name="mine")
    result = replay(data, [policy], metrics=("f1",), resampling=Resampling(n_resamples=5), prices=PRICE, cost=cost)
    row = result.row("mine")
    assert row.metrics["f1"] == 1
    assert (row.cheapest_match, row.dominated_by) == ("fixed_k(2)", dominating)
    assert row.costs["tokens"] < result.row("fixed_k(2)").costs["tokens"]
    unit = {"calls": "calls", "tokens": "tokens", "seconds": " s", "money": "USD"}[cost]
    assert unit in result.headline("mine")


def test_a_cost_that_is_unknown_gives_no_verdict():
    with pytest.raises(DataError, match="prices"):
        replay(recording(), ["full"], metrics=("f1",), resampling=Resampling(n_resamples=5), cost="money")
    with pytest.raises(DataError, match="'time'"):
        replay(recording(), ["full"], metrics=("f1",), resampling=Resampling(n_resamples=5), cost="time")


@pytest.mark.parametrize("cost", ["calls", "money"])
def test_the_command_judges_by_the_cost(tmp_path, capsys, cost):
    path, own = tmp_path / "r.parquet", tmp_path / "p.toml"
    own.write_text("[generator]\nuncached = 1.0\ncached = 0.1\noutput = 2.0\n")
    command = [
        "replay",
        str(path),
        "--rule",
        "fixed_k(2)",
        "--metric",
        "f1",
        "--set=resamples=9",
        "--cost",
        cost,
        "--json",
    ]
    table = recording().table
    write_recording(path, table.drop_columns(["cost.judge:own.calls"]))
    invoked(*command, "--prices", str(own))
    assert json.loads(capsys.readouterr().out)["cost"] == cost
