"""Notes on gaps in the recorded costs: which costs are missing, and what replaces them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from suffice.evaluation.replay.prices import Price, taken_notes
from suffice.policy.rounds import COST_KINDS, WRITTEN_KINDS, Cost, Floats

ASKED_NOTE = (
    "trial answers were asked along finished chains: their costs are those of asking afterwards, and not what a live loop pays, "
    "whose server has the chain in its cache"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostGaps:
    """Counts of unknown costs in recorded rounds; the counts of two sets of rounds can be added with `+`.

    Attributes:
        unknown: Number of rounds in which a cost is unknown, by component and kind; None = the column is missing.
        uncounted: Number of rounds in which the number of calls is unknown; each such round counts as one call.
    """

    n_rounds: int = 0
    unknown: Mapping[tuple[str, str], int | None] = field(default_factory=dict)
    uncounted: int = 0
    of_components: tuple[str, ...] = ()
    of_figures: tuple[str, ...] = ()

    def __add__(self, other: CostGaps) -> CostGaps:
        keys = sorted({*self.unknown, *other.unknown}, key=lambda key: (key[0], COST_KINDS.index(key[1])))
        counts = {key: (self.unknown.get(key, 0), other.unknown.get(key, 0)) for key in keys}
        return CostGaps(
            n_rounds=self.n_rounds + other.n_rounds,
            unknown={key: None if a is None or b is None else a + b for key, (a, b) in counts.items()},
            uncounted=self.uncounted + other.uncounted,
            of_components=tuple(dict.fromkeys((*self.of_components, *other.of_components))),
            of_figures=tuple(dict.fromkeys((*self.of_figures, *other.of_figures))),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """The gaps in words.

        >>> some = CostGaps(n_rounds=4, unknown={("generator", "seconds"): 1})
        >>> (some + CostGaps(n_rounds=6, unknown={("generator", "seconds"): 2})).notes
        ('generator: seconds unknown in 3 of 10 rounds',)
        """
        kinds: dict[tuple[str, str], list[str]] = {}
        for (component, kind), count in self.unknown.items():
            what = "not recorded" if count is None else f"unknown in {count} of {self.n_rounds} rounds"
            kinds.setdefault((component, what), []).append(kind)
        counted = f"calls are counted as one a round in {self.uncounted} rounds whose calls are unknown"
        return (
            *(f"{component}: {', '.join(names)} {what}" for (component, what), names in kinds.items()),
            *self.of_components,
            *([counted] if self.uncounted else []),
            *self.of_figures,
        )


def price_notes(
    prices: Price | Mapping[str, Price],
    columns: Mapping[str, Mapping[str, Floats]],
    price_of: Callable[[str], Price | None],
) -> tuple[str, ...]:
    """Return notes on prices that are missing, dated, or taken from an entry whose name is not exactly the model's.

    Args:
        prices: One price for all language models, or prices by component.
        columns: Costs by component and kind, shape ``(n_questions, n_rounds)``.
        price_of: A function that returns the price of a component's tokens, or None if the component has no price.
    """
    notes = []
    for component, kinds in columns.items():
        price = price_of(component)
        written = Cost(**{kind: float(kinds[kind].sum()) for kind in WRITTEN_KINDS if kind in kinds})
        n = 0.0 if price is None else price.unpriced(written)
        if n:
            notes.append(
                f"{component}: {n:,.0f} tokens were written to a cache, and the prices have none for that: charged as uncached input, "
                "which is too little where a provider charges more (give written and written_1h in a file for --prices)"
            )
    every = [*prices.values()] if isinstance(prices, Mapping) else [prices]
    dates = sorted(
        {f"list price as of {price.as_of}; override with --prices" for price in every if price and price.as_of}
    )
    return (*notes, *dates, *taken_notes(every))
