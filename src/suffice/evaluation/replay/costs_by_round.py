"""The cost of each round: as recorded, without a prefix cache, and with every shared prefix cached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from suffice.common.results import UNLESS_DEFAULT, Result
from suffice.common.tables import Column, Table, counted
from suffice.evaluation.replay.costs import DOLLARS, GENERATOR, TOKEN_KINDS, CostTable, shared_prefix
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.prices import Price, currency_of
from suffice.policy.rounds import COST_KINDS, WRITTEN_KINDS, Floats
from suffice.policy.signals import EMBEDDING, RERANKING, RETRIEVAL
from suffice.recordings.recording import Recording
from suffice.recordings.schema import DOLLAR

_RETRIEVAL_COLUMNS = (
    ("retrievals", Column("retrievals", ".2f")),
    ("retrieval_seconds", Column("s of retrieval", ".3f")),
)

AS_RECORDED, NO_REUSE, FULL_REUSE = "as recorded", "no prefix reuse", "full prefix reuse"
IN_BATCHES = "as recorded, in batches"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCost:
    """The mean cost of one round, over the questions that reached it; NaN where unknown.

    Attributes:
        billing: `as recorded`, `no prefix reuse` or `full prefix reuse`; for a recording made in batches also `as
            recorded, in batches`, at the batch price.
        modelled: Whether the token counts are computed instead of measured.
        cached_tokens: Input tokens read from a prefix cache.
        seconds: Wall-clock time; NaN where modelled, since the speed with another cache was not measured.
        retrievals: Requests to the retriever; NaN where they were not recorded.
        retrieval_seconds: The part of the seconds spent on embedding questions, and on finding and ordering passages;
            NaN where not recorded.
        money: Money spent, in the currency of `RoundCosts`; NaN if it is known neither from prices nor from the log.
    """

    round_index: int
    billing: str
    modelled: bool
    n: int
    calls: float
    uncached_tokens: float
    cached_tokens: float
    output_tokens: float
    seconds: float
    retrievals: float
    retrieval_seconds: float
    money: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCosts(Result):
    """The costs of the loop in each round.

    Attributes:
        rows: One row for each round and billing, sorted by round.
        n: Number of questions.
        notes: Notes for the reader.
        currency: The currency of money.  JSON omits US dollars, the default.
    """

    rows: tuple[RoundCost, ...]
    n: int
    notes: tuple[str, ...]
    currency: str = field(default=DOLLAR, metadata=UNLESS_DEFAULT)

    def table(self) -> Table:
        """Return one row for each round and billing; columns of retrieval appear if its costs were recorded."""
        recorded = any(not np.isnan(row.retrievals) for row in self.rows)
        retrieval = _RETRIEVAL_COLUMNS if recorded else ()
        columns = (
            Column("round"),
            Column("billing"),
            Column("questions", "d"),
            Column("calls", ".2f"),
            Column("uncached", ",.1f"),
            Column("cached", ",.1f"),
            Column("output", ",.1f"),
            Column("seconds", ".3f"),
            *(column for _, column in retrieval),
            Column(f"{self.currency} per 1,000", ".4f", scale=1000),
        )
        rows = tuple(
            (
                str(row.round_index),
                row.billing + (" (modelled)" if row.modelled else ""),
                row.n,
                *(getattr(row, kind) for kind in COST_KINDS),
                *(getattr(row, name) for name, _ in retrieval),
                row.money,
            )
            for row in self.rows
        )
        title = f"Mean cost of each round of the loop, {counted(self.n, 'question')}"
        return Table(title=title, columns=columns, rows=rows, notes=self.notes)


def round_costs(recording: Recording, prices: Price | Mapping[str, Price] | None = None) -> RoundCosts:
    """Return the costs of each round of the loop, with and without prefix reuse.

    Judges, rerankers and embedders are left out, since they are only paid when a rule reads their signals.  `no prefix
    reuse` bills cached tokens as uncached.  `full prefix reuse` assumes that each generator prompt begins with the
    whole prompt of the previous round (SEMANTICS, Costs), as growing prompts do.

    Args:
        recording: Recorded rounds.
        prices: See `replay`.

    Raises:
        DataError: All questions failed.
    """
    prepared = PreparedRecording.of(recording, prices=prices)
    table, n_failed = prepared.costs, prepared.n_failed
    every = (AS_RECORDED, *([IN_BATCHES] if table.batched else []), NO_REUSE, FULL_REUSE)
    billings = [_billed(table, billing) for billing in every]
    rows = [row for of_round in zip(*billings, strict=True) for row in of_round]
    extra = sorted(set(table.components) - set(table.loop))
    notes = list(table.notes)
    if table.batched:
        notes.append("in batches: at the share `batch` of each price (--prices), what making this recording cost")
    if extra:
        notes.append(f"not included, for they are paid only where a rule reads them: {', '.join(extra)}")
    if n_failed:
        notes.append(f"{counted(n_failed, 'question')} failed while recording: left out")
    currency = currency_of(recording, prices)
    return RoundCosts(rows=tuple(rows), n=prepared.n, notes=tuple(notes), currency=currency)


def _priced(columns: Mapping[str, Floats], billing: str) -> dict[str, Floats]:
    """Return the costs from which money is computed: tokens and, if `billing` is `as recorded`, money in the log."""
    own = {AS_RECORDED: (*WRITTEN_KINDS, DOLLARS), IN_BATCHES: WRITTEN_KINDS}.get(billing, ())
    kinds = (*TOKEN_KINDS, *own)
    return {kind: columns[kind] for kind in kinds if kind in columns}


def _billed(table: CostTable, billing: str) -> list[RoundCost]:
    """Return the mean cost of each round under one billing."""
    kinds: dict[str, Floats] = {kind: np.zeros(table.seen.shape) for kind in (*TOKEN_KINDS, "seconds", "calls")}
    money: Floats = np.zeros(table.seen.shape)
    for component in table.loop:
        columns = dict(table.columns[component])
        columns["uncached_tokens"], columns["cached_tokens"] = _inputs(table, component, billing)
        for kind in (*TOKEN_KINDS, "seconds"):
            kinds[kind] = kinds[kind] + columns[kind]
        if component in table.call_columns:
            kinds["calls"] = kinds["calls"] + table.call_columns[component]
        share = table.paid_share(component) if billing == IN_BATCHES else 1.0
        money = money + share * table.money_of(component, _priced(columns, billing))
    of_retrieval = _of_retrieval(table)
    rows = []
    for position, r in enumerate(table.index.tolist()):
        seen = table.seen[:, position]
        mean = {kind: _mean(values[seen, position]) for kind, values in kinds.items()}
        if billing not in (AS_RECORDED, IN_BATCHES):
            mean["seconds"] = np.nan
        spent = _mean(money[seen, position])
        retrieval = {name: _mean(values[seen, position]) for name, values in of_retrieval.items()}
        modelled = billing != IN_BATCHES and (billing != AS_RECORDED or table.modelled)
        rows.append(
            RoundCost(
                round_index=r, billing=billing, modelled=modelled, n=int(seen.sum()), money=spent, **mean, **retrieval
            )
        )
    return rows


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else np.nan


def _of_retrieval(table: CostTable) -> dict[str, Floats]:
    """Return the requests to the retriever, and the seconds of retrieval, shape ``(n_questions, n_rounds)``.

    Retrieval includes embedding questions, finding passages and reranking them.
    """
    if RETRIEVAL not in table.columns:
        return {name: np.full(table.seen.shape, np.nan) for name, _ in _RETRIEVAL_COLUMNS}
    seconds = [table.columns[name]["seconds"] for name in (RETRIEVAL, EMBEDDING, RERANKING) if name in table.columns]
    return {"retrievals": table.columns[RETRIEVAL]["calls"], "retrieval_seconds": np.sum(seconds, axis=0)}


def _inputs(table: CostTable, component: str, billing: str) -> tuple[Floats, Floats]:
    """Return uncached and cached input tokens of a component under a billing, shape ``(n_questions, n_rounds)``."""
    columns = table.columns[component]
    uncached, cached = columns["uncached_tokens"], columns["cached_tokens"]
    if billing == IN_BATCHES:
        return table.reported_inputs[component]
    if billing == AS_RECORDED:
        return uncached, cached
    if billing == NO_REUSE:
        return uncached + cached, np.zeros_like(cached)
    return shared_prefix(uncached + cached, table.index) if component == GENERATOR else (uncached, cached)
