"""Read tables with one row for each prefix of a chain of thought.

A row has the cost of thinking and of a trial answer, or the share of the finished chain.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from suffice.common.json_text import as_number
from suffice.common.tables import CAUTION
from suffice.errors import DataError
from suffice.importers.columns.grid import Grid, number_or_nan
from suffice.importers.columns.table_columns import ColumnMap, TableColumns
from suffice.importers.files.records import places_of
from suffice.importers.guesses.unread import UNCOUNTED
from suffice.importers.rounds.round_columns import RoundColumns
from suffice.importers.words.names import last_name, plain_name
from suffice.policy.rounds import Floats, Mask
from suffice.policy.signals import TRIAL
from suffice.recordings.schema import CHECKPOINTS, cost_column

THINKING_TOKENS = "thinking_tokens"
_OF_PREFIXES = re.compile(
    r"(?:prefix|thought|think(?:ing)?|reasoning|chain|cot|checkpoint)_?(?:n_?|num_?)?(?:tokens?|len(?:gth)?)(?:_so_far|_used)?"
    r"|(?:n_|num_)(?:prefix|thought|thinking|reasoning|chain|cot)_tokens|(?:prefix|thinking|chain|cot)_(?:token_count|end|position)"
)
"""Names of the number of tokens of a chain of thought up to a checkpoint."""
_OF_TRIALS = re.compile(
    r"(?:trial|forced|forced_answer|probe|answer)_(?:n_)?tokens?(?:_used)?|n_(?:trial|forced|probe|answer)_tokens"
)
"""Names of the number of tokens of the answer that was forced there."""
_QUESTIONS = 10
_LOGPROB = "answer_logprob_mean"
_SHARES = {"fraction", "share", "decile", "percent", "percentage", "percentile", "pct", "proportion", "progress"}
"""Names of the share of a finished chain that a prefix has."""
_OF_CHAINS = re.compile(r"decile|chain|thought|thinking|reasoning|cot(?![a-z])")
"""Parts of names that say of what a column is a share, if the table has no numbers of tokens."""
_WHOLE = (1.0, 10.0, 100.0)
_MOST = 0.9
"""The least share of questions whose last row is the whole chain."""
_OPTION = re.compile(r"(?:p|probs?|probability|probabilities|option_probs)[_.](?P<option>[^_.]+)")


class Prefixes:
    """Reads a table of prefixes part by part, and keeps the facts that all parts must share.

    Args:
        trial_cost: Tokens of a trial answer, given by the user; None = unknown.
    """

    def __init__(self, trial_cost: float | None) -> None:
        if trial_cost is not None and not 0 <= trial_cost < math.inf:
            raise DataError(f"trial_cost is {trial_cost!r}; expected a number of tokens, at least 0")
        self._trial_cost, self._share, self._options = trial_cost, "", False
        self._of_trials: str | None = None
        self._is_charged: bool | None = None

    def read(self, columns: RoundColumns, grid: Grid, plan: ColumnMap) -> Grid:
        """Add the costs of thinking and of trial answers to the rounds of some questions, if these rounds are prefixes of chains.

        Args:
            columns: All rounds of these questions.
            grid: The settings for reading the table.
            plan: The meaning of the table's columns; the note that no tokens are counted is removed from it.

        Returns:
            The settings.  Unless the user gives an end reason, shorter chains count as ended by themselves.

        Raises:
            DataError: Tokens rise in some questions but not in all, or a trial cost is given for rows that are not prefixes.
        """
        self._share = self._share or _share_of(columns)
        is_charged = _rises(columns) and not columns.costs
        if self._is_charged not in (None, is_charged):
            raise DataError(
                f"the tokens in {THINKING_TOKENS} rise in the questions that come first, and not in all others: --column {THINKING_TOKENS}= ignores them"
            )
        self._is_charged = is_charged
        if not is_charged and self._trial_cost is not None:
            raise DataError(
                f"--trial-cost is for a table of prefixes: a column {THINKING_TOKENS} that rises within each question, and no columns of costs. "
                f"Leave it out, or name the tokens: --column {THINKING_TOKENS}=COLUMN"
            )
        if is_charged:
            self._charge(columns)
            self._options |= _read_options(columns)
            plan.notes[:] = [note for note in plan.notes if not note.endswith(UNCOUNTED)]
        if grid.ended is not None or not (is_charged or self._share):
            return grid
        columns.ends = ["exhausted" if lost else end for end, lost in zip(columns.ends, columns.assumed, strict=True)]
        columns.assumed = [False] * len(columns.assumed)
        return replace(grid, ended="exhausted")

    def _charge(self, columns: RoundColumns) -> None:
        place, tokens = columns.place, columns.signals[THINKING_TOKENS]
        is_last = place == columns.spread(columns.lengths) - 1
        thought = np.where(place == 0, tokens, tokens - np.roll(tokens, 1))
        if self._of_trials is None:
            self._of_trials = _trial_column(columns) if self._trial_cost is None else ""
        price: Floats = np.full(len(columns), math.nan if self._trial_cost is None else self._trial_cost)
        if self._of_trials:
            price = np.array([*map(number_or_nan, columns.extras[self._of_trials])])
        nothing, unknown = np.zeros(len(columns)), np.full(len(columns), math.nan)
        for component, calls, output in (
            ("generator", place == 0, thought),
            (TRIAL, ~is_last, np.where(is_last, 0.0, price)),
        ):
            kinds = {"calls": calls.astype(np.float64), "uncached_tokens": nothing, "cached_tokens": nothing}
            kinds |= {"output_tokens": output, "seconds": unknown}
            columns.costs |= {cost_column(component, kind): values for kind, values in kinds.items()}

    @property
    def depends(self) -> dict[str, str]:
        """The reason why policies that are fitted on this table cannot be deployed; empty if they can be."""
        return {CHECKPOINTS: f"{self._share!r}, a share of the finished chain"} if self._share else {}

    @property
    def notes(self) -> list[str]:
        """Notes on the costs, and on shares of finished chains."""
        notes = []
        if self._share:
            notes.append(
                f"{CAUTION}not deployable: {self._share!r} is a share of the finished chain, which is known only when it has ended. What could be saved is "
                "shown, and no rule that stops there can run live; record checkpoints that count from the beginning"
            )
        if self._is_charged:
            price = (
                f"{CAUTION}what a trial answer costs is not in the table: tokens and money of early stops are unknown until --trial-cost N says how many "
                "tokens one takes (its cue and answer on a server that caches prefixes, else the chain, too)"
            )
            if self._trial_cost is not None:
                price = f"a trial answer costs {self._trial_cost:g} tokens, as --trial-cost says"
            elif self._of_trials:
                price = f"a trial answer costs the tokens in {self._of_trials!r}, as on a server that caches prefixes (--trial-cost N: N tokens each)"
            chain = (
                f"each row is a prefix of a chain of thought: thinking costs what {THINKING_TOKENS} adds from row to row, and the last row of a "
                "question is the end of its chain, which needs no trial answer"
            )
            notes += [chain, price]
        if self._options:
            notes.append(f"{_LOGPROB} is the log of the answer's option probability")
        return notes


def _rises(columns: RoundColumns) -> bool:
    """Return whether the number of thinking tokens rises within each question; the last two rows may have the same number."""
    tokens = columns.signals.get(THINKING_TOKENS)
    if tokens is None or not np.isfinite(tokens).all() or columns.lengths.max() < 2:  # noqa: PLR2004 - one row shows nothing
        return False
    place = columns.place
    is_last: Mask = place == columns.spread(columns.lengths) - 1
    added: Floats = tokens - np.roll(tokens, 1)
    return bool(np.where(place == 0, tokens >= 0, (added > 0) | is_last & (added == 0)).all())


def prefix_columns(table: TableColumns, ids: Sequence[Any], number: str, names: Sequence[str]) -> list[str]:
    """Return the columns that are named like tokens of a prefix and rise from round to round in each question.

    Args:
        table: The rows.
        ids: The question of each row.
        number: The column of round numbers; "" if the rows of a question are in the order of its rounds.
        names: The columns that may be read.
    """
    numbers = [*map(number_or_nan, table.column(number))] if number else [*range(len(ids))]
    several = [sorted(own, key=numbers.__getitem__) for own in places_of(map(str, ids)).values() if len(own) > 1]
    result = []
    for name in [name for name in names if _OF_PREFIXES.fullmatch(last_name(name))]:
        tokens = [*map(number_or_nan, table.column(name))]
        steps = [[tokens[after] - tokens[before] for before, after in pairwise(own)] for own in several]
        rises = all(all(step > 0 for step in own[:-1]) and own[-1] >= 0 for own in steps)
        if rises and len(several) >= _QUESTIONS and not any(map(math.isnan, tokens)):
            result.append(name)
    return result


def _trial_column(columns: RoundColumns) -> str:
    """Return the column with the tokens of each trial answer; "" if there is no such column."""
    for name, cells in columns.extras.items():
        if _OF_TRIALS.fullmatch(last_name(name)):
            tokens = np.array([*map(number_or_nan, cells)])
            if (tokens >= 0).all():
                return name
    return ""


def _share_of(columns: RoundColumns) -> str:
    """Return the column that says which share of the finished chain a prefix is; "" if there is no such column."""
    values = {**columns.extras, **{name: own.tolist() for name, own in columns.signals.items()}}
    for name, cells in values.items():
        parts = set(last_name(name).split("_"))
        if not parts & _SHARES or not (THINKING_TOKENS in columns.signals or _OF_CHAINS.search(plain_name(name))):
            continue
        shares = np.array([as_number(cell) for cell in cells], dtype=np.float64)
        lasts = shares[columns.starts + columns.lengths - 1]
        rises = (np.diff(shares, prepend=math.nan) > 0) | (columns.place == 0)
        if rises.all() and any(np.mean(lasts == whole) >= _MOST for whole in _WHOLE):
            return name
    return ""


def _read_options(columns: RoundColumns) -> bool:
    """Add the log-probability of the answer as a signal, if the table has a probability for each option; return whether it was added."""
    named = {
        match["option"].casefold(): name for name in columns.extras if (match := _OPTION.fullmatch(plain_name(name)))
    }
    answers = [(text or "").strip().casefold() for text in columns.texts["answer"]]
    if _LOGPROB in columns.signals or len(named) < 2 or not {*answers} - {""} <= named.keys():  # noqa: PLR2004 - one option is none
        return False
    cells = {option: columns.extras[name] for option, name in named.items()}
    chosen = [as_number(cells[answer][i]) if answer else math.nan for i, answer in enumerate(answers)]
    with np.errstate(divide="ignore", invalid="ignore"):
        columns.signals[_LOGPROB] = np.log(np.array(chosen, dtype=np.float64))
    return True
