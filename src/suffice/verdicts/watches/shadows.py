"""The decisions of shadow policies on the same requests, with their losses where these are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from suffice.common.tables import Column, Table
from suffice.policy.rounds import Floats
from suffice.recordings.schema import SHADOW
from suffice.verdicts.watches.losses import LossClaim, full_run_losses, reference_stops
from suffice.verdicts.watches.requests import Requests

_NORMAL_95 = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowFigures:
    """The figures of one shadow policy, compared with the policy that decides.

    Attributes:
        n: Number of requests that ran enough rounds to know the shadow's stop.
        unknown: Number of requests that ended before the shadow would have stopped.
        stop: The shadow's mean stop round on audited requests, which run every round.
        own_stop: The policy's mean stop round on the same requests.
        n_audited: Number of audited requests on which both policies' answers are judged.
        loss: The shadow's mean loss on the `n_audited` requests, with a 95 % interval that treats requests as
            independent.
        own_loss: The policy's mean loss on the same requests, with the same kind of interval.
        difference: The shadow's loss minus the policy's, with the same kind of interval.
    """

    name: str
    n: int
    unknown: int
    stop: float
    own_stop: float
    n_audited: int
    loss: tuple[float, float, float]
    own_loss: tuple[float, float, float]
    difference: tuple[float, float, float]


def shadow_figures(requests: Requests, question: LossClaim) -> list[ShadowFigures]:
    """Return the figures of every shadow in the log; a shadow's answers are chosen by the policy's selector."""
    names = sorted(name for name in requests.recording.table.column_names if name.startswith(SHADOW))
    figures = []
    complete = requests.complete & requests.counting
    audited = requests.at(complete) if names and complete.any() else None
    for name in names:
        stop = requests.recording.column(name)[:, 0]
        known = np.isfinite(stop)
        mean = own = math.nan
        losses: tuple[Floats, Floats] = (np.array([]), np.array([]))
        if audited is not None:
            there = audited.recording.column(name)[:, 0]
            if np.isfinite(there).any():
                judged = audited.at(np.isfinite(there))
                stops = there[np.isfinite(there)].astype(np.int64)
                mean, own = float(stops.mean()), float(judged.stop.mean())
                answer = answer_at(judged, stops)
                both = (
                    full_run_losses(replace(judged, stop=stops, answer=answer), question),
                    full_run_losses(judged, question),
                )
                measured = np.isfinite(both[0]) & np.isfinite(both[1])
                losses = both[0][measured], both[1][measured]
        figures.append(
            ShadowFigures(
                name=name.removeprefix(SHADOW),
                n=int(known.sum()),
                unknown=int((~known).sum()),
                stop=mean,
                own_stop=own,
                n_audited=len(losses[0]),
                loss=_interval(losses[0]),
                own_loss=_interval(losses[1]),
                difference=_interval(losses[0] - losses[1]),
            )
        )
    return figures


def answer_at(requests: Requests, stop: np.typing.NDArray[np.int64]) -> np.typing.NDArray[np.int64]:
    """Return the round whose answer the policy's selector returns for each stop; -1 if no round has an answer."""
    view = reference_stops(requests.recording, requests.policy).view
    position = np.clip(stop - int(view.index[0]), 0, len(view) - 1)
    chosen = requests.policy.selector.select(view, position)
    return np.where(chosen >= 0, view.index[np.maximum(chosen, 0)], -1)


def _interval(values: Floats) -> tuple[float, float, float]:
    if not len(values):
        return math.nan, math.nan, math.nan
    mean = float(values.mean())
    if len(values) == 1:
        return mean, math.nan, math.nan
    half = _NORMAL_95 * float(values.std(ddof=1)) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def shadows_table(figures: Sequence[ShadowFigures], question: LossClaim) -> Table:
    """Return a table that compares the shadows with the policy on audited requests."""
    return Table.of(
        f"Shadow policies on audited requests: {question.text}",
        figures,
        {
            Column("shadow"): "name",
            Column("audited", ",.0f"): "n_audited",
            Column("stops at", ".2f"): "stop",
            Column("policy stops at", ".2f"): "own_stop",
            Column("loss", "+.1f", scale=100, interval=True): "loss",
            Column("policy's loss", "+.1f", scale=100, interval=True): "own_loss",
            Column("difference", "+.1f", scale=100, interval=True): "difference",
            Column("unknown", ",.0f"): "unknown",
        },
        notes=(
            (
                "answers by the policy's own selector; 95 % intervals of one look, every audit with the same weight; unknown: requests in which the "
                "shadow goes on past what ran"
            ),
        )
        if figures
        else (),
    )
