"""The search itself: stops of every rule, one row for all that stop alike, and what each row gives and costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import ConfigMismatchError
from suffice.rounds import Floats
from suffice.rules import Patience, Rule
from suffice.search.bits import Bits, evaluator, first_bit, in_a_row, pack
from suffice.search.data import OUTCOMES, Questions, Side, find_prompt
from suffice.search.families import Codes, Family
from suffice.search.space import Space

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
        prompts = [find_prompt(block.prompt, questions.sides, named) for block in space.blocks]
        self.families = [Family(block) for block in space.blocks]
        self.prompts = prompts
        self._sides = [questions.sides[prompt] for prompt in prompts]
        self._bits = [evaluator(family, side.view) for family, side in zip(self.families, self._sides, strict=True)]
        self._variants = [(n, highest) for n in space.patience for highest in space.max_rounds or (0,)]
        # Rules are numbered block by block, within a block variant by variant.
        self._starts = np.cumsum([0, *(family.count * len(self._variants) for family in self.families)])
        self._zobrist = {
            prompt: _random_table(side, place) for place, (prompt, side) in enumerate(sorted(questions.sides.items()))
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

    def distinct(self, progress: Progress | None = None) -> Distinct:
        """Go through every rule and merge those that stop alike."""
        found: list[tuple[Hashes, Numbers, Numbers, Numbers]] = []
        pending, done = 0, 0
        for block, family in enumerate(self.families):
            table = self._zobrist[self.prompts[block]]
            for start in range(0, family.count, self.step):
                numbers = np.arange(start, min(start + self.step, family.count))
                codes = family.decode(numbers)
                bits, sizes = self._bits[block](codes), family.sizes(codes)
                for variant, (patience, _) in enumerate(self._variants):
                    hashes = _gather(table, self._positions(block, bits, variant)).sum(axis=1)
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

    def means(self, numbers: Numbers) -> dict[str, Floats]:
        """Return the mean outcomes of the rules of sorted `numbers`, each of shape ``(n_rules,)``."""
        out = {name: np.empty(len(numbers)) for name in OUTCOMES}
        for part, side, position in self.positions(numbers):
            for name in OUTCOMES:
                out[name][part] = _gather(side.tables[name], position).mean(axis=1)
        return out

    def deltas(self, numbers: Numbers) -> Iterator[tuple[slice, dict[str, Floats]]]:
        """Yield the differences to the baseline of the rules of sorted `numbers`: ``(n_rules, n_questions)`` each."""
        for part, side, position in self.positions(numbers):
            yield (
                part,
                {name: _gather(side.tables[name], position) - side.baseline[name] for name in ("quality", "calls")},
            )

    def values(self, numbers: Numbers) -> Iterator[tuple[slice, dict[str, Floats]]]:
        """Yield quality and calls of the rules of sorted `numbers`: ``(n_rules, n_questions)`` each."""
        for part, side, position in self.positions(numbers):
            yield part, {name: _gather(side.tables[name], position) for name in ("quality", "calls")}

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
        """Return where any rule stops, shape ``(n_questions,)``, and the hash of that."""
        side = self.questions.sides[prompt]
        position = first_bit(pack(rule.fires(side.view) & side.view.seen), len(side.view) - 1)
        return position, int(_gather(self._zobrist[prompt], position[None]).sum(axis=1)[0])


def _check_rounds(space: Space, side: Side) -> None:
    # Where the evidence ran out everywhere, a higher budget would have changed nothing.
    recorded = int(side.view.index[-1])
    if max(space.max_rounds, default=0) > recorded and (side.recording.ends == "max_rounds").any():
        raise ConfigMismatchError(
            f"the space {space.name!r} runs to round {max(space.max_rounds)}, and the recording ends at round "
            f"{recorded}: use max_rounds of at most {recorded}, or record more rounds"
        )


def _random_table(side: Side, number: int) -> Hashes:
    """Return a random 64-bit number for each stop of each question; a stop past the end has that of the last round."""
    drawn = np.random.default_rng([20_000, number]).integers(0, 2**64, size=side.view.shape, dtype=np.uint64)
    stop = np.minimum(np.arange(len(side.view)), np.maximum(side.last, 0)[:, None])
    table: Hashes = np.take_along_axis(drawn, stop, axis=1)
    return table


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
