"""Define the usual names of columns of tokens, seconds and calls, and detect columns that are running totals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from suffice.importers.rounds.round_columns import RoundColumns
from suffice.importers.words.names import last_name, words
from suffice.importers.words.number_forms import FORMS, UNITS
from suffice.recordings.runs import MODEL_NAMES
from suffice.recordings.schema import DOLLAR

INPUT_COLUMNS = words(
    "prompt_tokens input_tokens tokens_in input_token_count prompt_token_count n_prompt_tokens in_tokens "
    "tokens_input num_input_tokens n_input_tokens in_tok tok_in input_tok prompt_tok in_toks input_toks "
    "prompt_toks"
)
OUTPUT_COLUMNS = words(
    "completion_tokens output_tokens tokens_out output_token_count candidates_token_count "
    "n_completion_tokens generated_tokens out_tokens tokens_output num_output_tokens n_output_tokens "
    "out_tok tok_out output_tok completion_tok out_toks output_toks completion_toks"
)
CACHED_COLUMNS = ("cached_tokens", "cached_input_tokens", "cached_content_token_count", "prompt_cache_hit_tokens")
CACHE_READ, CACHE_WRITTEN = "cache_read_input_tokens", "cache_creation_input_tokens"
SECONDS = {
    "seconds": 1.0,
    "latency_s": 1.0,
    "latency_seconds": 1.0,
    "duration_s": 1.0,
    "duration_seconds": 1.0,
    "elapsed_s": 1.0,
    "elapsed_seconds": 1.0,
    "time_s": 1.0,
    "latency_ms": 1e-3,
    "duration_ms": 1e-3,
    "elapsed_ms": 1e-3,
    "time_ms": 1e-3,
}
DOLLARS = ("cost_usd", "cost_in_usd", "usd", "price_usd", "cost")
CALLS = ("calls", "n_calls", "num_calls", "llm_calls", "api_calls")


OF_CALLS = "money of each call, added up"
"""The reading of a column of dollars as the signal `spend`."""

_ENOUGH = 20
"""The least number of steps from a round to the next that show that a count never falls."""

_AS_MUCH = 0.5
"""The least that rounds add on average, as a share of the first one."""

_WRITTEN, _TOKENS = ".output_tokens", "_tokens"


def dollar_columns(columns: Mapping[str, str]) -> Sequence[str]:
    """Return usual names of columns with the dollars of a call, if rounds are attempts of several models.

    Otherwise return no names, since tokens give the cost.

    Args:
        columns: The file's column for each of this library's names.
    """
    in_turn = last_name(columns.get("round", "").removesuffix(" (number)")) in MODEL_NAMES
    return DOLLARS if in_turn else ()


def running_totals(columns: RoundColumns) -> list[str]:
    """Return the token columns that are running totals: they rise in every round, by about as many tokens as the first round needs.

    Output tokens of single calls do not rise like this.  Input tokens may, because prompts grow.  So input tokens count as running
    totals only if the output tokens are running totals, too.
    """
    names = [name for name in columns.costs if name.endswith(_TOKENS) and _is_total(columns, name)]
    components = {name.removesuffix(_WRITTEN) for name in names if name.endswith(_WRITTEN)}
    return [name for name in names if name.rpartition(".")[0] in components]


def _is_total(columns: RoundColumns, name: str) -> bool:
    values, steps = columns.costs[name], np.flatnonzero(columns.place > 0)
    added = values[steps] - values[steps - 1]
    first = values[columns.starts].mean()
    return len(steps) >= _ENOUGH and bool((added > 0).all()) and bool(added.mean() >= _AS_MUCH * first)


def subtract_totals(columns: RoundColumns, names: Sequence[str]) -> None:
    """Subtract the previous round's total from each running total."""
    steps = columns.place > 0
    for name in names:
        values = columns.costs[name]
        columns.costs[name] = np.where(steps, values - np.roll(values, 1), values)


def totals_note(theirs: Sequence[str]) -> str:
    """Return the note on running totals, with their names in the log."""
    return f"never falling within a question, so read as running totals, of which a round costs what it adds: {', '.join(theirs)}"


def dollars_note(theirs: str, currency: str) -> str:
    """Return the note on a column of the dollars (or amounts in another currency) that each call costs."""
    name = without_form(theirs)
    unit = theirs.removeprefix(f"{name} (").removesuffix(")")
    whole = "dollar" if currency == DOLLAR else currency
    what = f"{unit} of each call, {UNITS[unit]:,} a {whole}" if unit in UNITS else "dollars of each call"
    what = what if currency == DOLLAR or unit in UNITS else f"amounts of each call, in {currency}"
    return f"{name!r} is read as the {what}; if it is something else, --column spend= leaves it out"


def without_form(name: str) -> str:
    """Return the log's name of a column, without a form such as "(each)"; other words in brackets are part of the name.

    >>> without_form("cost (each)"), without_form("cost (EUR)")
    ('cost', 'cost (EUR)')
    """
    return re.sub(rf" \((?:{'|'.join(FORMS)})\)$", "", name)


def add_up(columns: RoundColumns, name: str) -> None:
    """Replace a signal by its running totals within each question; from an unknown value on, the totals are unknown."""
    values = columns.signals[name]
    columns.signals[name] = np.concatenate([np.cumsum(values[own]) for _, own in columns.by_question()])
