"""The search itself: stops of every rule, one row for all that stop alike, and what each row gives and costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import ConfigMismatchError
from suffice.replays.charging import reads_closed_book
from suffice.rounds import Floats, Mask
from suffice.rules import Patience, Rule
from suffice.searches.bits import Bits, evaluator, first_bit, in_a_row, pack, reader
from suffice.searches.data import OUTCOMES, Questions, Side, find_prompt
from suffice.searches.families import Codes, FormFamily
from suffice.searches.space import Space

__all__ = ["Distinct", "Explorer", "Progress"]

Progress = Callable[[int, int], None]
"""Called with the number of rules done and the number of all."""

_CELLS = 600_000
"""Rules times questions handled at once: what the processor's cache holds."""

_PENDING = 2_000_000
"""Rules after which what stops alike is merged."""

Numbers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct:
    """One row for all rules that stop alike; every array has shape ``(n_distinct,)``.

    Attributes:
        number: The shortest of them, by its number in the space; rows are in this order.
        members: How many they are.
        hash: What tells where they stop: equal for equal stops, and otherwise different but with a chance of 1e-5 in a
            search of `LARGEST` rules.
    """

    number: Numbers
    members: Numbers
    hash: Hashes

    def __len__(self) -> int:
        return len(self.number)


class Explorer:
    """A space on recorded questions.

    Args:
        space: With its thresholds.
        questions: What its rules read.

    Raises:
        DataError: The space has no rules, or too many.
        ConfigMismatchError: A block reads a prompt that was not recorded.
    """

    def __init__(self, space: Space, questions: Questions) -> None:
        space.check()
        self.space = space
        self.questions = questions
        named = [block.prompt for block in space.blocks]
        # A block with gates makes two families: rules without one start at round 1, the others at round 0.
        split = [(family, block.prompt) for block in space.blocks for family in FormFamily.of(block)]
        self.families = [family for family, _ in split]
        self.prompts = [find_prompt(prompt, questions.sides, named) for _, prompt in split]
        self._sides = [
            questions.sides[prompt].of(gated=family.is_gated)
            for family, prompt in zip(self.families, self.prompts, strict=True)
        ]
        self._bits = [evaluator(family, side.view) for family, side in zip(self.families, self._sides, strict=True)]
        self._answered = [_closed_book(family, side) for family, side in zip(self.families, self._sides, strict=True)]
        self._variants = [(n, highest) for n in space.patience for highest in space.max_rounds or (0,)]
        # Rules are numbered block by block, within a block variant by variant.
        self._starts = np.cumsum([0, *(family.count * len(self._variants) for family in self.families)])
        self._zobrist = {
            (prompt, gated): _random_table(side.of(gated=gated), place)
            for place, (prompt, side) in enumerate(sorted(questions.sides.items()))
            for gated in ((False, True) if side.gated is not None else (False,))
        }
        for side in self._sides:
            _check_rounds(space, side)

    @property
    def step(self) -> int:
        """How many rules are handled at once."""
        return max(1, _CELLS // max(1, len(self.questions)))

    def side(self, block: int) -> Side:
        """Return what the rules of a block read."""
        return self._sides[block]

    def variant(self, block: int, variant: int) -> tuple[int, int]:
        """Return the patience of a variant, and the position at which it stops at the latest."""
        patience, highest = self._variants[variant]
        index = self._sides[block].view.index
        return patience, min(int(highest - index[0]), len(index) - 1) if highest else len(index) - 1

    def _positions(self, block: int, bits: Bits, variant: int) -> Numbers:
        patience, end = self.variant(block, variant)
        stopped = first_bit(in_a_row(bits, patience) if patience > 1 else bits, end)
        return np.minimum(stopped, end, out=stopped)

    def stops_of(self, block: int, variant: int, codes: Codes) -> Numbers:
        """Return where rules stop: a position on the last axis of the view, shape ``(n_rules, n_questions)``."""
        return self._positions(block, self._bits[block](codes), variant)

    def _places(self, block: int, codes: Codes) -> Callable[[Numbers], Numbers]:
        """Return what turns stops of rules into places in the tables of their side, both ``(n_rules, n_questions)``."""
        answered, width = self._answered[block], len(self._sides[block].view)
        if answered is None:
            return lambda position: position
        beside = width * answered(codes)
        return lambda position: position + beside

    def distinct(self, progress: Progress | None = None) -> Distinct:
        """Go through every rule and merge those that stop alike, and have the closed book answered alike."""
        found: list[tuple[Hashes, Numbers, Numbers, Numbers]] = []
        pending, done = 0, 0
        for block, family in enumerate(self.families):
            table = self._zobrist[self.prompts[block], family.is_gated]
            for start in range(0, family.count, self.step):
                numbers = np.arange(start, min(start + self.step, family.count))
                codes = family.decode(numbers)
                bits, sizes, places = self._bits[block](codes), family.sizes(codes), self._places(block, codes)
                for variant, (patience, _) in enumerate(self._variants):
                    hashes = _gather(table, places(self._positions(block, bits, variant))).sum(axis=1)
                    whole = numbers + self._starts[block] + variant * family.count
                    extra = len("patience((), 9)") if patience > 1 else 0
                    found.append((hashes, sizes + extra, whole, np.ones(len(whole), dtype=np.int64)))
                pending += len(numbers) * len(self._variants)
                done += len(numbers) * len(self._variants)
                if progress is not None:
                    progress(done, self.space.count)
                if pending > _PENDING:
                    found, pending = [_merged(found)], 0
        hashes, _, number, members = _merged(found)
        order = np.argsort(number)
        return Distinct(number=number[order], members=members[order], hash=hashes[order])

    def where(self, numbers: Numbers) -> Iterator[tuple[slice, int, int, Numbers]]:
        """Yield parts of sorted `numbers`: their place, the block, the variant, and the numbers within the block."""
        start = 0
        for block, family in enumerate(self.families):
            for variant in range(len(self._variants)):
                low = int(self._starts[block]) + variant * family.count
                stop = start + int(np.searchsorted(numbers[start:], low + family.count))
                for begin in range(start, stop, self.step):
                    part = slice(begin, min(begin + self.step, stop))
                    yield part, block, variant, numbers[part] - low
                start = stop

    def positions(self, numbers: Numbers) -> Iterator[tuple[slice, Side, Numbers]]:
        """Yield where the rules of sorted `numbers` stop, in parts: their place, what they read, and the positions."""
        for part, block, variant, within in self.where(numbers):
            yield part, self._sides[block], self.stops_of(block, variant, self.families[block].decode(within))

    def _outcomes(self, numbers: Numbers) -> Iterator[tuple[slice, Side, Callable[[str], Floats]]]:
        """Yield in parts the outcomes of the rules of sorted `numbers`, by name ``(n_rules, n_questions)``."""
        for part, block, variant, within in self.where(numbers):
            side, codes = self._sides[block], self.families[block].decode(within)
            place = self._places(block, codes)(self.stops_of(block, variant, codes))
            yield part, side, partial(_outcome, side, place)

    def means(self, numbers: Numbers) -> dict[str, Floats]:
        """Return the mean outcomes of the rules of sorted `numbers`, each of shape ``(n_rules,)``."""
        out = {name: np.empty(len(numbers)) for name in OUTCOMES}
        for part, _, outcome in self._outcomes(numbers):
            for name in OUTCOMES:
                out[name][part] = outcome(name).mean(axis=1)
        return out

    def deltas(self, numbers: Numbers) -> Iterator[tuple[slice, dict[str, Floats]]]:
        """Yield the differences to the baseline of the rules of sorted `numbers`: ``(n_rules, n_questions)`` each."""
        for part, side, outcome in self._outcomes(numbers):
            yield part, {name: outcome(name) - side.baseline[name] for name in ("quality", "calls")}

    def values(self, numbers: Numbers) -> Iterator[tuple[slice, dict[str, Floats]]]:
        """Yield quality and calls of the rules of sorted `numbers`: ``(n_rules, n_questions)`` each."""
        for part, _, outcome in self._outcomes(numbers):
            yield part, {name: outcome(name) for name in ("quality", "calls")}

    def rules(self, numbers: Numbers) -> list[Rule]:
        """Return the rules of sorted `numbers` as values."""
        found: list[Rule] = []
        for _, block, variant, within in self.where(numbers):
            codes = self.families[block].decode(within)
            patience, _ = self._variants[variant]
            made = (self.families[block].rule(codes, row) for row in range(len(within)))
            found += [Patience(rule, patience) if patience > 1 else rule for rule in made]
        return found

    def settings(self, numbers: Numbers) -> tuple[list[str], list[int]]:
        """Return the prompt and the highest round of the rules of sorted `numbers`."""
        prompts, highest = list[str](), list[int]()
        for part, block, variant, _ in self.where(numbers):
            n = part.stop - part.start
            prompts += [self.prompts[block]] * n
            recorded = int(self._sides[block].view.index[-1])
            highest += [min(self._variants[variant][1] or recorded, recorded)] * n
        return prompts, highest

    def of_rule(self, rule: Rule, prompt: str) -> tuple[Numbers, int]:
        """Return where any rule without a gate stops, shape ``(n_questions,)``, and the hash of that."""
        side = self.questions.sides[prompt]
        position = first_bit(pack(rule.fires(side.view) & side.view.seen), len(side.view) - 1)
        return position, int(_gather(self._zobrist[prompt, False], position[None]).sum(axis=1)[0])


def _check_rounds(space: Space, side: Side) -> None:
    # Where the evidence ran out everywhere, a higher budget would have changed nothing.
    recorded = int(side.view.index[-1])
    if max(space.max_rounds, default=0) > recorded and (side.recording.ends == "max_rounds").any():
        raise ConfigMismatchError(
            f"the space {space.name!r} runs to round {max(space.max_rounds)}, and the recording ends at round "
            f"{recorded}: use max_rounds of at most {recorded}, or record more rounds"
        )


def _closed_book(family: FormFamily, side: Side) -> Callable[[Codes], Mask] | None:
    """Return what tells where rules have the closed-book answer generated by what they read; None where no rule does."""
    if side.paid is None or side.paid.all():
        return None
    literals = family.block.literals
    components = side.recording.signal_components
    answer = {literal.signal for literal in literals if reads_closed_book(literal.signal, side.policy, components)}
    every = [i for i, one in enumerate(literals) if replace(side.policy, rule=one.threshold(0)).reads_every_answer]
    comes = reader(family, side.view, answer)
    return lambda codes: comes(codes) | (codes.digits[:, every] > 0).any(axis=1, keepdims=True)


def _random_table(side: Side, number: int) -> Hashes:
    """Return a random 64-bit number for each place in a side's tables, the same for places of the same outcome."""
    seed, shape = [20_000, number, *([] if side.paid is None else [1])], side.tables["calls"].shape
    drawn = np.random.default_rng(seed).integers(0, 2**64, size=shape, dtype=np.uint64)
    width = len(side.view)
    if side.paid is not None:
        drawn[:, width:] = np.where(side.paid, drawn[:, :width], drawn[:, width:])
    stop = np.minimum(np.arange(width), np.maximum(side.last, 0)[:, None])  # a stop past the end is one at the end
    halves = [stop] if side.paid is None else [stop, stop + width]
    table: Hashes = np.take_along_axis(drawn, np.concatenate(halves, axis=1), axis=1)
    return table


def _outcome(side: Side, place: Numbers, name: str) -> Floats:
    return _gather(side.tables[name], place)


def _gather(table: npt.NDArray[Any], position: Numbers) -> npt.NDArray[Any]:
    """Return a table's value at each question's stop, shape ``(n_rules, n_questions)``."""
    n, width = table.shape
    found: npt.NDArray[Any] = np.ravel(table).take(position + width * np.arange(n))
    return found


def _merged(found: list[tuple[Hashes, Numbers, Numbers, Numbers]]) -> tuple[Hashes, Numbers, Numbers, Numbers]:
    """Return one entry for each hash: the shortest rule, the earliest among equals, and how many there are."""
    hashes, sizes, numbers, members = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    first = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
    keys = (sizes[order] << 32) | numbers[order]  # numbers are below LARGEST, far from 2**32
    best = np.minimum.reduceat(keys, first)
    return hashes[first], best >> 32, best & (2**32 - 1), np.add.reduceat(members[order], first)
