"""Several models that answer each question, either as attempts in turn or as separate loops.

An example of attempts is a cheap model that is followed by an expensive one if its answer is rejected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from suffice.common.tables import cut_list
from suffice.errors import UnsettledError
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import places_of
from suffice.importers.rows.parallel_files import of_files
from suffice.importers.words.choices import Choices, of_options
from suffice.importers.words.names import last_name
from suffice.recordings.runs import LOOP_NAMES, MODEL_NAMES, is_of_judge

_MOST, _ENOUGH, _NEARLY_ALL = 8, 10, 0.95
_LONGEST = 120
"""The most models, the fewest questions with several rows, the least share of them, and the most letters of an order that is offered."""


def refuse_models_in_turn(table: TableColumns, key: str, used: Collection[str], listed: str = "") -> None:
    """Raise if models may be the attempts of one loop, or may each have a loop of their own.

    This is in doubt if each question has one row for each model, prompt or temperature, in an order that a column or list gives.

    Args:
        table: The rows; no recognised column counts them.
        key: The column of questions.
        used: Columns that the user has named.
        listed: The field whose lists have the rows as their items; "" for rows of a file.
    """
    ids = [*map(str, table.column(key))]
    counting = [] if listed else [name for name in table.names if name != key and table.counts(name)]
    for model in _loop_columns(table, used):
        for name in ["", *counting]:
            numbers = table.whole_numbers(name) if name else _places_in(ids) if listed else []
            models = [] if name == model else _models_by_number(table, ids, model, numbers)
            if not models or (listed and len({*models}) == len(models)):  # a list with an item of each system has runs
                continue
            one = (
                f"the items of {listed!r} are the rounds of one loop"
                if listed
                else f"{name!r} counts the rounds of one loop"
            )
            rows = of_options(one, columns={model: ""} if listed else {"round": name})
            orders = in_turn(model, models) if last_name(model) in MODEL_NAMES and not listed else {}
            own = of_options(f"each {model} is a loop of its own", columns={"run": model})
            counts = f"the order in {listed!r}" if listed else repr(name)
            raise UnsettledError(
                f"{counts} counts the rows of every question, and each of its numbers has one {model} ({cut_list(models)}): are these "
                "asked in turn, until an answer is accepted, or is each a loop of its own?",
                "options",
                (orders or rows) | own,
            )


def in_turn(model: str, models: Sequence[str]) -> Choices:
    """Return the option that reads each model as an attempt, in the order of `models`.

    Empty if the option cannot express the order: a name occurs twice or has a comma, or the list is too long.
    """
    order = ",".join(models)
    if len({*models}) < len(models) or any("," in name for name in models) or len(order) > _LONGEST:
        return {}
    return of_options("they are asked in turn, in this order", columns={"round": f"{model}:{order}"})


def turns_hint(
    table: TableColumns, key: str, runs: Collection[str], costs_of: Callable[[str], Mapping[str, float]]
) -> str:
    """Return a hint on how to read models as attempts or as a panel, or files as rounds; "" if neither applies.

    The hint on models is given if each model is a run of one row.  It lists the models from the cheapest call to the dearest, if
    costs are known.

    Args:
        table: The rows.
        key: The column with the ids of questions.
        runs: The columns that distinguish runs.
        costs_of: Takes a column of models; returns the average cost of a call of each model, or nothing if costs are unknown.
    """
    ids = [*map(str, table.column(key))]
    for model in [name for name in _model_columns(table, ()) if name in runs]:
        values = [*dict.fromkeys(map(str, table.column(model)))]
        pairs = [*zip(ids, map(str, table.column(model)), strict=True)]
        if 1 < len(values) <= _MOST and len({*pairs}) == len(pairs) > len({*ids}):
            costs = costs_of(model)
            values = sorted(values, key=costs.__getitem__) if costs.keys() == {*values} else values
            options = [f"asked in turn: {option}" for option in in_turn(model, values)]
            return f"if the models are {'; if they are '.join([*options, 'put to a vote: --samples'])}"
    return "if each file is a round: --file-is round" if "--file-is round" in of_files(table.rows) else ""


def _model_columns(table: TableColumns, used: Collection[str]) -> Iterator[str]:
    for name in table.names:
        if last_name(name) in MODEL_NAMES and not is_of_judge(name) and name not in used:
            yield name


def _loop_columns(table: TableColumns, used: Collection[str]) -> Iterator[str]:
    """Yield the columns that distinguish runs by default, those with models first."""
    yield from _model_columns(table, used)
    for name in table.names:
        if last_name(name) in LOOP_NAMES - MODEL_NAMES and not is_of_judge(name) and name not in used:
            yield name


def _places_in(ids: Sequence[str]) -> list[int]:
    """Return the position of each row among the rows of its question, counted from 1."""
    seen = Counter[str]()
    result = []
    for own in ids:
        seen[own] += 1
        result.append(seen[own])
    return result


def _models_by_number(table: TableColumns, ids: Sequence[str], model: str, numbers: Sequence[int]) -> list[str]:
    """Return the model of each number, in the order of the numbers.

    Empty unless each number has exactly one model, and nearly all questions number their rows without gaps.
    """
    pairs = {*zip(numbers, map(str, table.column(model)), strict=True)} if numbers else set()
    if not 1 < len(pairs) <= _MOST or len(pairs) != len({n for n, _ in pairs}) or len({own for _, own in pairs}) == 1:
        return []
    several = [sorted(numbers[place] for place in own) for own in places_of(ids).values() if len(own) > 1]
    lowest = min(numbers)
    whole = sum(rows == [*range(lowest, lowest + len(rows))] for rows in several)
    if lowest > 1 or len(several) < _ENOUGH or whole < _NEARLY_ALL * len(several):
        return []
    return [text for _, text in sorted(pairs)]
