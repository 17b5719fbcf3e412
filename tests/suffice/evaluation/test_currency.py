"""Money is shown in the currency of its log, and rules on what was spent are compared in it alone."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from suffice import read_recording, search
from suffice.errors import ConfigMismatchError
from suffice.evaluation.replay import Price, calibrate, order_panel, policy_for, replay, round_costs
from suffice.evaluation.replay.replay_tables import costs_table
from suffice.evaluation.replay.replayer import Replayer
from suffice.evaluation.search.space import Block, Literal, Space
from suffice.evaluation.statistics import Resampling
from suffice.policy.session import Policy
from suffice.recordings import Recording, merge_recordings, write_recording
from tests.suffice.evaluation.test_panels import panel
from tests.support.cli_tools import cli
from tests.support.money_logs import eur_recording, money_recording, money_rows

PRICE = Price(uncached=1, cached=1, output=1)
TOKENS = {"input_tokens": 900, "cached_tokens": 0, "output_tokens": 100}
FEW = Resampling(n_resamples=20)
RULE = "spend > 0.004"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("money")


@pytest.fixture(scope="module")
def eur(folder):
    return eur_recording(folder, **TOKENS)


@pytest.fixture(scope="module")
def usd(tmp_path_factory):
    return money_recording(tmp_path_factory.mktemp("dollars"), money_rows(n=40, **TOKENS))


def shown_money(result):
    """Return the words of money on every screen of a replay: headline, title of costs, titles of the chart."""
    chart = json.dumps(result.plot("money").spec)
    return result.lead, costs_table(result).columns[-1].name, chart


@pytest.mark.parametrize("jobs", [None, 1])
def test_a_replay_shows_the_currency_of_its_log(eur, folder, jobs):
    source = eur if jobs is None else folder / "log.parquet"
    compared = Replayer(source, cost="money", resampling=FEW, jobs=jobs).compare(["answer_stable"])
    result = compared.result()
    lead, column, chart = shown_money(result)
    assert "; 0.0099 EUR; " in lead
    assert column == "EUR"
    assert "EUR per question" in chart
    assert "USD" not in lead + column + chart
    assert "dollars" not in chart
    assert result.to_dict()["currency"] == "EUR"


def test_a_log_without_a_currency_is_in_dollars(usd):
    result = replay(usd, ["answer_stable"], cost="money", resampling=FEW)
    lead, column, chart = shown_money(result)
    assert "; 0.006 USD; " in lead
    assert column == "USD"
    assert "US dollars per question" in chart
    assert "currency" not in result.to_dict()


def test_prices_are_dollars_and_a_note_names_both_currencies(eur, usd):
    result = replay(eur, [RULE], cost="money", prices=PRICE, resampling=FEW)
    assert result.currency == "USD"
    assert "USD" in result.lead
    (note,) = [note for note in result.notes if "EUR" in note]
    assert note.startswith("money is in USD, at the prices given; ")
    assert not [note for note in replay(usd, [RULE], prices=PRICE, resampling=FEW).notes if "USD" in note]


def test_prices_do_not_fill_what_another_currency_leaves_open(eur):
    spend = eur.table.column("spend").to_pylist()
    rows = [{**row, "spend": None if place == 0 else spend[place]} for place, row in enumerate(eur.table.to_pylist())]
    table = eur.table.from_pylist(rows, schema=eur.table.schema)
    compared = {}
    for name, metadata in (("EUR", eur.metadata), ("USD", {**eur.metadata, "currency": "USD"})):
        replayer = Replayer(Recording(table, metadata), prices=PRICE)
        compared[name] = replayer.whole.recording.column("spend")
    assert np.isnan(compared["EUR"]).sum() == 1
    assert compared["USD"][0].tolist() == pytest.approx([0.001, 0.002, 0.003])


def test_costs_of_rounds_are_in_that_currency(eur, usd):
    assert round_costs(eur).table().columns[-1].name == "EUR per 1,000"
    assert round_costs(eur).to_dict()["currency"] == "EUR"
    assert round_costs(eur, PRICE).table().columns[-1].name == "USD per 1,000"
    assert "currency" not in round_costs(usd).to_dict()


def test_prices_of_a_panel_are_in_the_currency_of_money():
    of_eur = panel()
    of_eur.metadata["currency"] = "EUR"
    assert order_panel(of_eur, metric="em").unit.startswith("EUR per ")
    prices = dict.fromkeys(("small", "middle", "large"), PRICE)
    assert order_panel(of_eur, metric="em", prices=prices).unit.startswith("USD per ")


def test_recordings_in_two_currencies_are_not_put_together(eur, tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    write_recording(parts / "part-1.parquet", eur.table, eur.metadata)
    other = money_recording(tmp_path, money_rows(n=40, first=100, **TOKENS))
    metadata = {**eur.metadata, "currency": None}
    del metadata["currency"]
    write_recording(parts / "part-2.parquet", other.table, metadata)
    with pytest.raises(ConfigMismatchError, match="currency: 'EUR'"):
        read_recording(parts)
    with pytest.raises(ConfigMismatchError, match="currency: 'EUR'"):
        merge_recordings(tmp_path / "all.parquet", sorted(parts.iterdir()))


def test_policies_on_spend_name_the_currency_of_their_log(eur, usd):
    space = Space(
        name="test",
        blocks=(Block(form="dnf", literals=(Literal(signal="spend", comparison=">", thresholds=(0.003,)),)),),
    )
    chosen = search(eur, space, metric="match", resampling=FEW).chosen
    for policy in (policy_for(eur, RULE), calibrate(eur, rule=RULE, target="match")[0], chosen.policy):
        assert policy.depends["currency"] == "EUR"
        assert Policy.from_dict(policy.to_dict()).depends["currency"] == "EUR"
    assert "currency" not in policy_for(usd, RULE).depends


def test_a_policy_on_spend_is_not_judged_in_another_currency(eur, usd):
    made = policy_for(eur, RULE)
    replay(eur, [made], resampling=FEW)
    with pytest.raises(ConfigMismatchError, match="in EUR"):
        replay(usd, [made], resampling=FEW)
    replay(usd, [replace(made, rule=policy_for(usd, "answer_stable").rule)], resampling=FEW)  # reads no money


def test_a_policy_without_a_currency_is_noted_on_another_log(eur, usd):
    bare = Policy(rule=policy_for(usd, RULE).rule, max_rounds=3)
    result = replay(eur, [bare], resampling=FEW)
    assert [note for note in result.rows[0].notes if "this recording's is EUR" in note]
    assert not [note for note in replay(usd, [bare], resampling=FEW).rows[0].notes if "currency" in note]


def test_commands_print_the_currency(folder, eur):
    path = folder / "log.parquet"
    shown = cli("replay", path, "--rule", RULE, "--cost", "money", "--set=resamples=20", "--details", code=0).out
    assert "EUR" in shown
    assert "USD" not in shown
    assert cli("data", "costs", path, "--json").json["currency"] == "EUR"
