"""Panels of models: the order in which to ask them, and the best single model as a baseline.

Samples of one model have no order, but the models of a panel differ, so their order is part of the policy.  It is
chosen on tune questions, by the price of an answer or by accuracy.  The best single model, also chosen there, is
reported with every figure of a panel: a vote is not worth its calls if one of its voters alone is better and cheaper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.common.results import Displayed
from suffice.common.tables import Column, Table, counted
from suffice.errors import DataError
from suffice.evaluation.replay.baselines import Run, single_answer
from suffice.evaluation.replay.outcomes import default_metrics, has_outcome, outcome
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.price_lists import price_in
from suffice.evaluation.replay.prices import Price, currency_of
from suffice.evaluation.replay.selected import dividing_names, seen_from
from suffice.evaluation.statistics import hash_places
from suffice.policy.rounds import PRICED_KINDS, Floats, Mask
from suffice.recordings.recording import Recording
from suffice.recordings.runs import member_columns
from suffice.recordings.schema import cost_column

BEST_SINGLE = "best_single"
"""The label of the row of the best single model."""

_PANEL_SALT = "panel:"
_HALVES_SALT = "best single model:"
_HALF = 0.5
_METRIC = "metric: "

Names = npt.NDArray[np.object_]


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelMember:
    """One model of a panel on tune questions.

    Attributes:
        name: Name of the model.
        score: The model's mean metric; a missing answer counts as 0.
        price: Price of 1,000 answers, or of a million generated tokens if tokens were not recorded; NaN if
            unknown.
    """

    name: str
    score: float
    price: float


@dataclass(frozen=True, kw_only=True)
class OrderedPanel(Displayed):
    """A panel in the order that was chosen on tune questions.

    Attributes:
        recording: The questions that are not tune questions, with their rounds in this order.
        members: The models in this order.
        by: `accuracy` or `price`.
        metric: The metric by which the best single model was chosen.
        best: The best single model on tune questions.
        n_tune: Number of tune questions.
        unit: Unit of the prices.
    """

    recording: Recording
    members: tuple[PanelMember, ...]
    by: str
    metric: str
    best: str
    n_tune: int
    unit: str

    def tables(self) -> list[Table]:
        """Return the models in their order."""
        columns = (
            Column("place", ".0f"),
            Column("model"),
            Column(f"{self.metric}, %", ".1f", scale=100),
            Column(self.unit, ".3g"),
        )
        rows = tuple((place, item.name, item.score, item.price) for place, item in enumerate(self.members, 1))
        return [
            Table(
                title=f"The panel by {self.by}, on {counted(self.n_tune, 'tune question')}", columns=columns, rows=rows
            )
        ]


def panel_members(recording: Recording) -> Names | None:
    """Return the model of each answer, from the column `member` or `model`; None if no question has several models.

    The column may be nested in another column of the log.
    """
    if not recording.independent:
        return None
    return _members_of({name: recording.objects(name) for name in member_columns(recording.table.column_names)})


def _members_of(columns: Mapping[str, Names]) -> Names | None:
    for name in member_columns(columns):
        if any(len(set(row) - {None}) > 1 for row in columns[name].tolist()):
            return columns[name]
    return None


def panel_columns(recording: Recording, metrics: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the columns that `best_single_note_of` reads: the model and the metrics of each answer.

    Return no columns if the rounds are not independent samples.
    """
    listed = member_columns(recording.table.column_names)
    if not recording.independent or not listed:
        return {}
    values = {_METRIC + name: outcome(recording, name) for name in metrics if has_outcome(recording, name)}
    return {**{name: recording.objects(name) for name in listed}, **values}


def order_panel(
    recording: Recording,
    *,
    by: str = "accuracy",
    metric: str | None = None,
    tune_share: float = 0.3,
    prices: Mapping[str, Price] | None = None,
) -> OrderedPanel:
    """Choose the order of a panel on tune questions, and return the other questions in that order.

    Args:
        recording: Answers of several models to each question, named by a column `member` or `model`.
        by: `accuracy` for the most accurate model first, or `price` for the cheapest first.
        metric: The metric of accuracy; None = the recording's default metric.
        tune_share: Share of the questions that become tune questions, by the hash of their names, in (0, 1).
        prices: Prices by model; needed for `price`.

    Raises:
        DataError: One model gave all answers, `by` is unknown, a model has no price, or there are too few questions.
    """
    names = panel_members(recording)
    if names is None:
        raise DataError(
            "this recording is no panel: a column 'member' or 'model' must name several models that answered the same question, "
            "and its rounds must be independent (import it with --samples)"
        )
    if by not in ("accuracy", "price"):
        raise DataError(f"a panel has no order by {by!r}; allowed: accuracy, price")
    if not 0 < tune_share < 1:
        raise DataError(f"tune_share must lie between 0 and 1, both excluded, not {tune_share!r}")
    metric = metric or default_metrics(recording)[0]
    tune: Mask = hash_places(dividing_names(recording), salt=_PANEL_SALT) < tune_share
    if tune.all() or not tune.any():
        raise DataError(f"too few to divide: {counted(len(tune), 'question')}. Record at least 20")
    scores = _scores(names[tune], outcome(recording, metric)[tune])
    costs, unit = _prices_of(recording, names, tune, prices)
    unpriced = [name for name in scores if math.isnan(costs[name])]
    if by == "price" and unpriced:
        raise DataError(f"no price of {', '.join(unpriced)}: give one for each model (prices=..., --prices FILE)")
    # A model without an answer to a tune question comes last.
    order = sorted(scores, key=lambda name: (costs[name], -scores[name]) if by == "price" else (-scores[name], name))
    order += sorted({name for row in names.tolist() for name in row if name is not None} - set(order))
    best = max(scores, key=lambda name: scores[name])
    seen = seen_from(recording.select(tune))
    rest = _placed(recording.select(~tune), names[~tune], order)
    metadata: dict[str, Any] = {name: value for name, value in recording.metadata.items() if name != "exchangeable"}
    metadata |= {
        "independent": True,
        "panel": {"order": order, "by": by, "metric": metric, BEST_SINGLE: best, "n_tune": int(tune.sum())},
        "depends": {**(recording.metadata.get("depends") or {}), "panel": " > ".join(order)},
        "fitted": {**(recording.metadata.get("fitted") or {}), "panel": seen.to_dict()},
    }
    members = [
        PanelMember(name=name, score=scores.get(name, math.nan), price=costs.get(name, math.nan)) for name in order
    ]
    return OrderedPanel(
        recording=Recording(rest.table, metadata),
        members=tuple(members),
        by=by,
        metric=metric,
        best=best,
        n_tune=int(tune.sum()),
        unit=unit,
    )


def _scores(names: Names, metric: Floats) -> dict[str, float]:
    """Return each model's metric, averaged first over the model's answers to a question, then over questions.

    A missing answer counts as 0.
    """
    known = np.nan_to_num(metric)
    listed = sorted({name for row in names.tolist() for name in row if name is not None})
    own = {name: names == name for name in listed}
    return {name: float(((known * at).sum(axis=1) / np.maximum(at.sum(axis=1), 1)).mean()) for name, at in own.items()}


def _prices_of(
    recording: Recording, names: Names, tune: Mask, prices: Mapping[str, Price] | None
) -> tuple[dict[str, float], str]:
    """Return the price of each model's answers on tune questions, and the unit of the prices.

    Without recorded tokens, the price is that of a million generated tokens.
    """
    tokens = {kind: _all_tokens(recording, kind) for kind in PRICED_KINDS}
    unknown = all(np.isnan(column[tune]).all() for column in tokens.values())
    costs = {}
    for name in {name for row in names.tolist() for name in row if name is not None}:
        price = price_in(prices or {}, name)
        if price is None:
            costs[name] = math.nan
        elif unknown:
            costs[name] = price.output
        else:
            at = (names == name) & tune[:, None]
            costs[name] = (
                1000 * float(price.of(*(np.nan_to_num(tokens[kind][at]) for kind in PRICED_KINDS)).mean())
                if at.any()
                else math.nan
            )
    return costs, f"{currency_of(recording, prices)} per {'million generated tokens' if unknown else '1,000 answers'}"


def _all_tokens(recording: Recording, kind: str) -> Floats:
    """Return the tokens of one kind in each round, over all components; NaN where none were recorded."""
    components = {name.split(".", 1)[1].rsplit(".", 1)[0] for name in recording.names("cost")}
    present = [cost_column(component, kind) for component in sorted(components)]
    columns = [recording.column(name) for name in present if name in recording.table.column_names]
    if not columns:
        return np.full(recording.shape, np.nan)
    unknown = np.logical_and.reduce([np.isnan(column) for column in columns])
    return np.where(unknown, np.nan, np.sum(np.nan_to_num(columns), axis=0))


def _placed(recording: Recording, names: Names, order: list[str]) -> Recording:
    """Return the recording with each question's rounds in an order of models; rounds without a model come last."""
    rank = {name: place for place, name in enumerate(order)}
    ranks = np.array([[rank.get(name, len(order)) for name in row] for row in names.tolist()], dtype=np.float64)
    ranks[~recording.seen] = np.inf
    if int(recording.index[0]) == 0:
        ranks[:, 0] = -1.0
    return recording.reordered(np.argsort(np.argsort(ranks, axis=1, kind="stable"), axis=1))


def best_single_run(prepared: PreparedRecording) -> Run | None:
    """Return the run of the model that was best on tune questions; None if the recording does not name it."""
    recording = prepared.recording
    panel = recording.metadata.get("panel") or {}
    chosen, column = panel.get(BEST_SINGLE), next(iter(member_columns(recording.table.column_names)), None)
    if chosen is None or column is None or not recording.independent:
        return None
    names = panel_members(recording)
    names = recording.objects(column) if names is None else names  # some questions may have answers of only one model
    note = f"{chosen}, the best single model on {counted(panel['n_tune'], 'tune question')} of the panel"
    at = names == chosen
    return single_answer(prepared, at & (at.cumsum(axis=1) == 1), BEST_SINGLE, note)


def best_single_note(recording: Recording, metric: str) -> list[str]:
    """Return the note on the best single model of a panel; see `best_single_note_of`."""
    columns, panel = panel_columns(recording, [metric]), recording.metadata.get("panel") or {}
    return best_single_note_of(columns, panel, dividing_names(recording), metric) if columns else []


def best_single_note_of(
    columns: Mapping[str, npt.NDArray[Any]], panel: Mapping[str, Any], divided: Sequence[str], metric: str
) -> list[str]:
    """Return a note with the score of the best single model.

    If the recording does not name the best model, it is chosen on one half of the questions and scored on the other.

    Args:
        columns: Result of `panel_columns`.
        panel: The recording's metadata on its panel.
        divided: The names whose hashes divide the questions, see `dividing_names`.
        metric: The metric by which the best model is chosen.
    """
    names, values = _members_of(columns), columns.get(_METRIC + metric)
    if names is None or values is None:
        return []
    if BEST_SINGLE in panel:
        best = panel[BEST_SINGLE]
        score = _scores(names, values).get(best, 0.0)
        return [f"the best single model on tune questions, {best}, has {100 * score:.1f} {metric} with one answer each"]
    single = _best_single_of(names, values, divided)
    if single is None:
        return []
    said = (
        f"the best single model, {single.model}, chosen on half of the questions, has {100 * single.score:.1f} {metric} on the other "
        "half with one answer each; in which order to ask a panel is part of the policy (`suffice sample order`)"
    )
    return [said]


@dataclass(frozen=True, slots=True, kw_only=True)
class BestSingle:
    """The model of a panel that was best on one half of the questions, with its score on the other half.

    Attributes:
        score: The model's mean metric on the other half; a missing answer counts as 0.
        half: Mask of the other half, shape ``(n_questions,)``.
    """

    model: str
    score: float
    half: Mask


def best_single(recording: Recording, metric: str) -> BestSingle | None:
    """Return the best single model of a panel.

    Return None if the recording has no panel, or if one half of the questions has no answer with a model's name.
    """
    names = panel_members(recording)
    return None if names is None else _best_single_of(names, outcome(recording, metric), dividing_names(recording))


def _best_single_of(names: Names, values: Floats, divided: Sequence[str]) -> BestSingle | None:
    tune: Mask = hash_places(divided, salt=_HALVES_SALT) < _HALF
    scores = {} if tune.all() else _scores(names[tune], values[tune])
    if not scores:
        return None
    best = max(scores, key=lambda name: scores[name])
    return BestSingle(model=best, score=_scores(names[~tune], values[~tune]).get(best, 0.0), half=~tune)
