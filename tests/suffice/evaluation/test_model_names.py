"""Names of models with a provider or a date find the entry of a price list that is theirs, and no other."""

from __future__ import annotations

import json

import pytest

from suffice.errors import DataError
from suffice.evaluation.replay import Price, PriceFile, component_prices, list_price, list_prices
from suffice.evaluation.replay.price_lists import listed_name, price_in
from tests.support.cli_tools import cli

BUNDLED = {name: listed.price for name, listed in list_prices().items()}
CHEAP, DEAR = Price(uncached=1, cached=1, output=1), Price(uncached=9, cached=9, output=9)


@pytest.mark.parametrize(
    ("model", "entry"),
    [
        ("gpt-4o", "gpt-4o"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),  # the first snapshot kept its higher price
        ("openai/gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("azure/gpt-4.1", "gpt-4.1"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-3-haiku@20240307", "claude-3-haiku"),
        ("claude-3-5-haiku-20241022", "claude-3-5-haiku-latest"),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4-5"),
        ("bedrock/anthropic.claude-3-haiku-20240307-v1:0", "claude-3-haiku"),
        ("openrouter/anthropic/claude-opus-4-5", "claude-opus-4-5"),
        ("gpt-oss-120b", "openai/gpt-oss-120b"),
    ],
)
def test_a_provider_and_a_date_are_left_out(model, entry):
    assert listed_name(model, BUNDLED) == entry
    taken = price_in(BUNDLED, model)
    assert taken == BUNDLED[entry]
    assert taken.taken == ("" if model == entry else f"{entry!r} for {model!r}")


@pytest.mark.parametrize(
    "model",
    [
        *("gpt-4o-audio-preview", "gpt-4o-0806", "ft:gpt-4o-2024-08-06:me::1", "me/gpt-4o", "gpt-4", "gpt-4o:free"),
        *("claude-sonnet-4-20250514", "mistral-large", "mistral-small-2501", "gemini-2.0-flash-lite", ""),
    ],
)
def test_another_model_is_never_taken(model):
    assert listed_name(model, BUNDLED) is None


def test_an_entry_of_another_date_is_another_model():
    dated = {"gpt-4o-2024-05-13": DEAR}
    assert listed_name("gpt-4o-2024-08-06", dated) is None
    assert listed_name("gpt-4o", dated) is None
    assert listed_name("openai/gpt-4o-2024-05-13", dated) == "gpt-4o-2024-05-13"
    assert listed_name("gpt-4o-2024-05-13", {**dated, "gpt-4o": CHEAP}) == "gpt-4o-2024-05-13"


def test_entries_that_fit_equally_well_are_refused_if_their_prices_differ(tmp_path):
    several = {"openai/gpt-4o": CHEAP, "azure/gpt-4o": DEAR}
    with pytest.raises(DataError, match="an entry 'gpt-4o-2024-08-06'"):
        listed_name("gpt-4o-2024-08-06", several)
    assert listed_name("gpt-4o", {**several, "azure/gpt-4o": CHEAP}) == "openai/gpt-4o"
    entry = {"uncached": 1, "cached": 1, "output": 1}
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"openai/m": entry, "azure/m": {**entry, "output": 2}}), "utf-8")
    with pytest.raises(DataError, match="give the file"):
        component_prices(path, {"generator": "m"})
    path.write_text(json.dumps({"openai/m": entry, "azure/m": {**entry, "output": 2}, "m": entry}), "utf-8")
    assert component_prices(path, {"generator": "m"})["generator"] == CHEAP
    assert PriceFile(path, "m-2026-01-01").price.taken == "'m' for 'm-2026-01-01'"


def test_the_command_says_which_entry_was_taken():
    shown = cli("data", "prices", "gpt-4o-2024-08-06")
    assert (shown.code, "that of 'gpt-4o' for 'gpt-4o-2024-08-06'" in " ".join(shown.out.split())) == (0, True)
    assert list_price("gpt-4o-2024-08-06").model == "gpt-4o"
