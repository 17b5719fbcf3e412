"""Tokens that were written to a cache cost what the price list says, in imports, replays and live."""

from __future__ import annotations

import json
import math
from dataclasses import replace as replace_price

import pytest

from suffice.evaluation.replay import Price, list_price, load_prices, replay
from suffice.evaluation.replay.costs import CostTable
from suffice.evaluation.replay.costs_by_round import round_costs
from suffice.evaluation.replay.price_lists import prices_of
from suffice.evaluation.replay.prices import with_priced_spend
from suffice.evaluation.statistics import Resampling
from suffice.hosts import QuestionRun
from suffice.hosts.usage import usage_cost
from suffice.importers import import_recording
from suffice.importers.calls.payloads import usage_in
from suffice.policy.rounds import Cost, Round
from suffice.recordings import read_recording
from suffice.verdicts.decisions.losses import prices_text
from tests.support.cli_tools import cli

MODEL = "claude-haiku-4-5-20251001"
HAIKU = list_price(MODEL).price
"""USD per million: 1 and 0.1 for input, 5 for output, 1.25 and 2 for writes to a cache."""

USAGE = {
    "input_tokens": 100,
    "cache_creation_input_tokens": 3000,
    "cache_read_input_tokens": 20_000,
    "output_tokens": 500,
    "cache_creation": {"ephemeral_5m_input_tokens": 2000, "ephemeral_1h_input_tokens": 1000},
}
PAID = (100 * 1 + 2000 * 1.25 + 1000 * 2 + 20_000 * 0.1 + 500 * 5) / 1e6
WITHOUT_WRITES = (3100 * 1 + 20_000 * 0.1 + 500 * 5) / 1e6
COST = Cost(
    calls=1, uncached_tokens=3100, cached_tokens=20_000, output_tokens=500, written_tokens=2000, written_1h_tokens=1000
)


@pytest.fixture
def recording(tmp_path):
    """Two sessions of Claude Code, of two steps each, imported."""
    for name in ("one", "two"):
        shared = {"sessionId": name, "parentUuid": None}
        lines = [{"type": "user", **shared, "message": {"role": "user", "content": f"Mend {name}."}}]
        for n in range(2):
            call = {"type": "tool_use", "id": f"c{n}", "name": "Bash", "input": {"command": f"echo {n} > a.py"}}
            said = {"id": f"{name}{n}", "role": "assistant", "model": MODEL, "content": [call], "usage": USAGE}
            done = {"type": "tool_result", "tool_use_id": f"c{n}", "content": "", "is_error": False}
            lines += [
                {"type": "assistant", **shared, "message": said},
                {"type": "user", **shared, "message": {"role": "user", "content": [done]}},
            ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    import_recording(tmp_path, out=tmp_path / "run.parquet")
    return read_recording(tmp_path / "run.parquet")


def money(recording, prices, rule="full"):
    result = replay(recording, [rule], metrics=("agreement",), prices=prices, resampling=Resampling(n_resamples=5))
    return result.rows[0].costs["money"], " ".join(result.notes)


def test_an_import_charges_cache_writes_at_their_two_prices(recording):
    assert recording.column("cost.generator.written_1h_tokens")[0].tolist() == [1000, 1000]
    spent, notes = money(recording, prices_of("list", recording))
    assert spent == pytest.approx(2 * PAID)
    assert f"that of 'claude-haiku-4-5' for '{MODEL}'" in notes
    assert "written to a cache" not in notes
    assert money(recording, prices_of("list", recording), "fixed_k(1)")[0] == pytest.approx(PAID)
    priced = with_priced_spend(recording, HAIKU)
    assert priced.column("spend")[0] == pytest.approx([PAID, 2 * PAID])


def test_cache_writes_without_a_price_are_charged_as_input_with_a_note(recording):
    spent, notes = money(recording, Price(uncached=1, cached=0.1, output=5))
    assert spent == pytest.approx(2 * WITHOUT_WRITES)
    assert "generator: 12,000 tokens were written to a cache, and the prices have none for that" in notes
    half, notes = money(recording, Price(uncached=1, cached=0.1, output=5, written=1.25))
    assert half == pytest.approx(2 * (WITHOUT_WRITES + 2000 * 0.25 / 1e6))
    assert "generator: 4,000 tokens were written" in notes


def test_costs_by_round_charge_writes_only_where_there_is_a_cache(recording):
    rows = {(row.round_index, row.billing): row.money for row in round_costs(recording, HAIKU).rows}
    assert rows[1, "as recorded"] == pytest.approx(PAID)
    assert rows[1, "no prefix reuse"] == pytest.approx((23_100 * 1 + 500 * 5) / 1e6)


def test_decide_says_which_prices_it_took_and_what_they_leave_out(recording):
    some = {"generator": Price(uncached=1, cached=0.1, output=5, taken="'m' for 'm-2026-01-01'")}
    notes = " ".join(CostTable(recording, some).price_notes)
    assert "12,000 tokens were written to a cache" in notes
    assert "that of 'm' for 'm-2026-01-01'" in notes
    assert "list price as of" in " ".join(CostTable(recording, prices_of("list", recording)).price_notes)
    assert CostTable(recording, None).price_notes == ()


def test_decisions_about_other_prices_of_writes_are_told_apart():
    plain = Price(uncached=1, cached=0.1, output=5)
    assert (
        prices_text({"generator": plain}) == "generator: Price(uncached=1, cached=0.1, output=5, as_of='', batch=0.5)"
    )
    written = [replace_price(plain, written=price, taken="x") for price in (1.25, 2, None)]
    assert len({prices_text(price) for price in written}) == 3
    assert prices_text(written[2]) == prices_text(plain)


def test_costs_of_rounds_name_writes_that_prices_leave_out(recording, tmp_path):
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({MODEL: {"uncached": 1, "cached": 0.1, "output": 5}}), "utf-8")
    shown = cli("data", "costs", str(tmp_path / "run.parquet"), "--prices", str(prices), code=0)
    assert "12,000 tokens were written to a cache" in " ".join((shown.out + shown.err).split())


@pytest.mark.parametrize(
    ("usage", "uncached", "written", "hour"),
    [
        (USAGE, 3100, 2000, 1000),
        ({"input_tokens": 10, "cache_creation_input_tokens": 7, "output_tokens": 3}, 17, 7, 0),
        # LiteLLM, mini-swe-agent: the prompt holds what was written
        (
            {
                "prompt_tokens": 1000,
                "completion_tokens": 50,
                "total_tokens": 1050,
                "cache_creation_input_tokens": 900,
                "cache_read_input_tokens": 0,
            },
            1000,
            900,
            0,
        ),
        # OpenHands
        (
            {"prompt_tokens": 1000, "completion_tokens": 5, "cache_read_tokens": 300, "cache_write_tokens": 600},
            700,
            600,
            0,
        ),
        # Inspect
        (
            {
                "input_tokens": 10,
                "output_tokens": 5,
                "total_tokens": 355,
                "input_tokens_cache_write": 40,
                "input_tokens_cache_read": 300,
            },
            50,
            40,
            0,
        ),
        # LangChain
        (
            {
                "input_tokens": 1000,
                "output_tokens": 5,
                "total_tokens": 1005,
                "input_token_details": {"cache_read": 300, "cache_creation": 600, "ephemeral_1h_input_tokens": 100},
            },
            700,
            500,
            100,
        ),
        (
            {
                "input_tokens": 1000,
                "output_tokens": 5,
                "total_tokens": 1005,
                "input_token_details": {
                    "cache_read": 300,
                    "cache_creation": 0,
                    "ephemeral_5m_input_tokens": 500,
                    "ephemeral_1h_input_tokens": 100,
                },
            },
            700,
            500,
            100,
        ),
    ],
    ids=["anthropic", "total alone", "litellm", "openhands", "inspect", "langchain", "langchain by time"],
)
def test_each_provider_says_what_was_written(usage, uncached, written, hour):
    used = usage_in(usage)
    assert (used.uncached, used.written, used.written_1h) == (uncached, written, hour)
    cost = usage_cost(usage)
    assert (cost.uncached_tokens, cost.written_tokens, cost.written_1h_tokens) == (uncached, written, hour)


def test_live_spend_charges_what_a_reply_wrote(caplog):
    body = {"type": "message", "content": [{"type": "text", "text": "Oslo"}], "usage": USAGE}
    observed = Round.from_response(body, index=1)
    assert observed.costs["generator"].written_1h_tokens == 1000
    run = QuestionRun("(spend > 1) | (round >= 5)", price=HAIKU)
    run.observe("Oslo", cost=COST)
    assert run.session.rounds[0].signals["spend"] == pytest.approx(PAID)
    assert not caplog.records


@pytest.mark.parametrize(
    ("usage", "written"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cache_write_tokens": 5}}, (5, 0)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 1,
                "cache_creation_input_tokens": 7,
                "prompt_tokens_details": {"cache_creation_token_details": {"ephemeral_1h_input_tokens": 3}},
            },
            (4, 3),
        ),
    ],
)
def test_gateways_say_what_was_written(usage, written):
    body = {"choices": [{"message": {"content": "Oslo"}, "finish_reason": "stop"}], "usage": usage}
    cost = Round.from_response(body).costs["generator"]
    assert (cost.uncached_tokens, cost.written_tokens, cost.written_1h_tokens) == (9, *written)


def test_live_spend_says_once_that_writes_have_no_price(caplog):
    run = QuestionRun("(spend > 1) | (round >= 5)", price=Price(uncached=1, cached=0.1, output=5))
    for _ in range(2):
        run.observe("Oslo", cost=COST)
    assert run.session.rounds[1].signals["spend"] == pytest.approx(2 * WITHOUT_WRITES)
    assert [line.getMessage()[:52] for line in caplog.records] == [
        "3000 tokens of round 1 were written to a cache, and "
    ]


def test_a_cost_round_trips_with_its_cache_writes():
    assert Cost.from_dict(json.loads(json.dumps(COST.to_dict()))) == COST
    assert "written_tokens" not in Cost(calls=1).to_dict()
    assert (COST + COST).written_tokens == 4000


def test_batches_and_files_have_prices_of_writes(tmp_path):
    assert (HAIKU.in_batches.written, HAIKU.in_batches.written_1h) == (0.625, 1.0)
    assert Price(uncached=1, cached=1, output=1).in_batches.written is None
    path = tmp_path / "prices.toml"
    path.write_text("[m]\nuncached = 1.0\ncached = 0.1\noutput = 5.0\nwritten = 1.25\n", "utf-8")
    assert load_prices(path)["m"].of_cost(COST) == pytest.approx(PAID - 1000 * (2 - 1) / 1e6)
    assert math.isnan(load_prices(path)["m"].of_cost(Cost(uncached_tokens=math.nan)))


def test_more_written_than_given_was_given_apart():
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 2000, "output_tokens": 5, "total_tokens": 15}
    used = usage_in(usage)
    assert (used.uncached, used.written) == (2010, 2000)
