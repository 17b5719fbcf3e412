"""The core of the search: the stops of every rule, with rules of equal stops merged, and their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import ConfigMismatchError
from suffice.evaluation.replay.charging import reads_closed_book
from suffice.evaluation.search.bits import Bits, evaluator, first_bit, in_a_row, pack_bits, reader
from suffice.evaluation.search.data import OUTCOMES, Questions, Side, find_prompt
from suffice.evaluation.search.families import FormFamily, RuleCodes
from suffice.evaluation.search.space import Space
from suffice.evaluation.statistics import Keys, keyed_numbers
from suffice.policy.rounds import Floats, Mask
from suffice.policy.rules import Patience, Rule

SearchProgress = Callable[[int, int], None]
"""Called with the number of finished parts and the number of all parts; counts restart in each pass over the parts."""

_RULE_BATCH = 600_000
"""Rules times questions handled at once, so that they fit into the processor's cache."""

_PENDING = 2_000_000
"""Number of rules whose text lengths are looked up at once."""

Numbers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct:
    """The distinct sets of stops, one row for each; every array has shape ``(n_distinct,)``.

    On chains of thought, rules with the same stops are distinct if they pay for different trial answers.

    Attributes:
        number: The number, in the space, of the rule with the shortest text; rows are sorted by this number.
        members: Number of rules with these stops.
        hash: A hash of the stops: equal for equal stops; in a search of `MOST_RULES` rules the chance of any collision
            is 1e-5.
    """

    number: Numbers
    members: Numbers
    hash: Hashes

    def __len__(self) -> int:
        return len(self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The places where the outcomes of rules are looked up; every array has shape ``(n_rules, n_questions)``.

    Attributes:
        column: The column in `Side.tables` that holds the outcome of a rule on a question.
        trials: Bits of the trial answers that a rule pays for in addition; None for recordings other than chains of
            thought.
    """

    column: Numbers
    trials: Bits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A family of rules in a space, combined with every patience and highest round.

    Attributes:
        prompt: The prompt whose rounds the rules read.
        start: The number of the section's first rule in the space; rules are numbered variant by variant.
        variants: Pairs of patience and the last position at which a rule stops.
        bits: A function that maps rules to the rounds where they fire, see `evaluator`.
        answered: A function that maps rules to a mask of the questions whose closed-book answer they read, and so pay
            for.  None = no rule reads closed-book answers.
        reads: A function that maps rules to the rounds at which they read each literal, see `reader`.  None if costs do
            not depend on these rounds.
    """

    family: FormFamily
    prompt: str
    side: Side
    start: int
    variants: tuple[tuple[int, int], ...]
    bits: Callable[[RuleCodes], Bits]
    answered: Callable[[RuleCodes], Mask] | None
    reads: Callable[[RuleCodes], list[Bits]] | None

    def stops(self, bits: Bits, variant: int, dtype: npt.DTypeLike = np.int64) -> Numbers:
        """Return the stops of rules that fire at `bits`, as positions in the view, shape ``(n_rules, n_questions)``."""
        patience, end = self.variants[variant]
        stopped = first_bit(in_a_row(bits, patience) if patience > 1 else bits, end, dtype)
        np.minimum(stopped, end, out=stopped)
        return stopped

    def places(self, codes: RuleCodes) -> Callable[[Numbers], Places]:
        """Return a function that maps stops of rules, ``(n_rules, n_questions)``, to the places of their outcomes."""
        if self.reads is not None and self.side.trials is not None:
            signals = [literal.signal for literal in self.family.block.literals]
            reads, trials = [*zip(signals, self.reads(codes), strict=True)], self.side.trials
            return lambda position: Places(column=position, trials=trials.paid(reads, position))
        if self.answered is None:
            return lambda position: Places(column=position)
        beside = len(self.side.view) * self.answered(codes)
        return lambda position: Places(column=position + beside)

    def sizes(self, codes: RuleCodes, variant: int) -> Numbers:
        """Return the approximate text length of each rule, in characters."""
        patience, _ = self.variants[variant]
        return self.family.sizes(codes) + (len("patience((), 9)") if patience > 1 else 0)

    def number(self, variant: int) -> int:
        """Return the number of a variant's first rule, counted over the whole space."""
        return self.start + variant * self.family.count


class Explorer:
    """A space of rules applied to recorded questions.

    Args:
        space: The space, with its thresholds.
        questions: The questions that its rules decide.

    Raises:
        DataError: The space has no rules, or too many.
        ConfigMismatchError: A block reads a prompt that was not recorded.
    """

    def __init__(self, space: Space, questions: Questions) -> None:
        space.check()
        self.space = space
        self.questions = questions
        self.sections: list[Section] = []
        start = 0
        for block in space.blocks:
            prompt = find_prompt(block.prompt, questions.sides, [other.prompt for other in space.blocks])
            # A block with gates makes two families: rules without a gate start at round 1, rules with one at round 0.
            for family in FormFamily.of(block):
                self.sections.append(self._section(family, prompt, start))
                start += family.count * space.variants

    def _section(self, family: FormFamily, prompt: str, start: int) -> Section:
        side = self.questions.sides[prompt].of(gated=family.is_gated)
        _check_highest(self.space, side)
        first, last = int(side.view.index[0]), len(side.view) - 1
        return Section(
            family=family,
            prompt=prompt,
            side=side,
            start=start,
            variants=tuple(
                (patience, min(highest - first, last) if highest else last)
                for patience in self.space.patience
                for highest in self.space.max_rounds or (0,)
            ),
            bits=evaluator(family, side.view),
            answered=_closed_book_reader(family, side),
            reads=None if side.trials is None else reader(family, side.view),
        )

    @cached_property
    def hashes(self) -> dict[tuple[str, bool], Hashes]:
        """A random number for each question and each column in a side's tables; `hash_of` looks it up.

        The numbers follow from the keys of the questions.  So equal stops have equal hashes, in every block and whatever
        the order of the questions.
        """
        return {
            (prompt, gated): _random_table(side.of(gated=gated), place, self.questions.keys)
            for place, (prompt, side) in enumerate(sorted(self.questions.sides.items()))
            for gated in ((False, True) if side.gated is not None else (False,))
        }

    def hash_of(self, prompt: str, places: Places, *, gated: bool = False) -> Hashes:
        """Return a hash for each rule of a prompt on each question, shape ``(n_rules, n_questions)``."""
        hashes: Hashes = _gather(self.hashes[prompt, gated], places.column)
        trials = self.questions.sides[prompt].of(gated=gated).trials
        if trials is None or places.trials is None:
            return hashes
        number = sorted(self.questions.sides).index(prompt)
        return hashes + trials.hashes(places.trials, self.questions.keys, 40_000 + number)

    @property
    def step(self) -> int:
        """Number of rules handled at once."""
        return max(1, _RULE_BATCH // max(1, len(self.questions)))

    def distinct_by(self, hashes: Hashes) -> Distinct:
        """Merge rules with equal hashes, given the hash of every rule, shape ``(n_rules,)``."""
        entries: list[tuple[Hashes, Numbers, Numbers, Numbers]] = []
        for section in self.sections:
            for start in range(0, section.family.count, _PENDING):
                numbers = np.arange(start, min(start + _PENDING, section.family.count))
                codes = section.family.decode(numbers)
                for variant in range(len(section.variants)):
                    whole, sizes = section.number(variant) + numbers, section.sizes(codes, variant)
                    entries.append((hashes[whole], sizes, whole, np.ones(len(whole), dtype=np.int64)))
        return _distinct(entries)

    def where(self, numbers: Numbers) -> Iterator[tuple[slice, Section, int, Numbers]]:
        """Divide sorted `numbers` of rules into parts, each of them within one section and one variant.

        Yield, for each part, its slice of `numbers`, the section, the variant, and the numbers counted in the family.
        """
        start = 0
        for section in self.sections:
            for variant in range(len(section.variants)):
                low = section.number(variant)
                stop = start + int(np.searchsorted(numbers[start:], low + section.family.count))
                for begin in range(start, stop, self.step):
                    part = slice(begin, min(begin + self.step, stop))
                    yield part, section, variant, numbers[part] - low
                start = stop

    def positions(self, numbers: Numbers) -> Iterator[tuple[slice, Side, Numbers]]:
        """Yield the stops of the rules `numbers` (sorted) in parts: the slice, the side, and the positions."""
        for part, section, variant, within in self.where(numbers):
            yield part, section.side, section.stops(section.bits(section.family.decode(within)), variant)

    def outcomes(self, numbers: Numbers) -> Iterator[tuple[slice, Side, Callable[[str], Floats]]]:
        """Yield the outcomes of the rules `numbers` (sorted) in parts.

        Each part has the slice, the side, and a function from an outcome's name to an array ``(n_rules, n_questions)``.
        """
        for part, section, variant, within in self.where(numbers):
            codes = section.family.decode(within)
            place = section.places(codes)(section.stops(section.bits(codes), variant))
            yield part, section.side, partial(outcome_at, section.side, place)

    def means(self, numbers: Numbers) -> dict[str, Floats]:
        """Return the mean outcomes of the rules `numbers` (sorted), each of shape ``(n_rules,)``."""
        out = {name: np.empty(len(numbers)) for name in OUTCOMES}
        for part, _, outcome in self.outcomes(numbers):
            for name in OUTCOMES:
                out[name][part] = outcome(name).mean(axis=1)
        return out

    def deltas(self, numbers: Numbers) -> Iterator[tuple[slice, dict[str, Floats]]]:
        """Yield the differences to the baseline of the rules `numbers` (sorted), each ``(n_rules, n_questions)``."""
        for part, side, outcome in self.outcomes(numbers):
            yield part, {name: outcome(name) - side.baseline[name] for name in ("quality", "calls")}

    def rules(self, numbers: Numbers) -> list[Rule]:
        """Return the rules `numbers` (sorted) as `Rule` objects."""
        rules: list[Rule] = []
        for _, section, variant, within in self.where(numbers):
            codes = section.family.decode(within)
            patience, _ = section.variants[variant]
            members = (section.family.rule(codes, row) for row in range(len(within)))
            rules += [Patience(rule, patience) if patience > 1 else rule for rule in members]
        return rules

    def settings(self, numbers: Numbers) -> tuple[list[str], list[int]]:
        """Return the prompts and the highest rounds of the rules `numbers` (sorted)."""
        prompts, highest = list[str](), list[int]()
        for part, section, variant, _ in self.where(numbers):
            n = part.stop - part.start
            prompts += [section.prompt] * n
            asked = self.space.max_rounds or (int(section.side.view.index[-1]),)
            highest += [asked[variant % len(asked)]] * n
        return prompts, highest

    def of_rule(self, rule: Rule, prompt: str) -> tuple[Places, int]:
        """Return the places of the outcomes of a rule without a gate, ``(1, n_questions)``, and the hash of its stops."""
        side = self.questions.sides[prompt]
        position = first_bit(pack_bits(rule.fires(side.view) & side.view.seen), len(side.view) - 1)[None]
        trials = None
        if side.trials is not None:
            reads = rule.reads(side.view, side.view.seen)
            trials = side.trials.paid([(name, pack_bits(mask)[None]) for name, mask in reads.items()], position)
        places = Places(column=position, trials=trials)
        return places, int(self.hash_of(prompt, places).sum(axis=1)[0])


def _check_highest(space: Space, side: Side) -> None:
    # If every trajectory ended because no evidence was left, a higher budget would not have changed anything.
    recorded = int(side.view.index[-1])
    if max(space.max_rounds, default=0) > recorded and (side.recording.ends == "max_rounds").any():
        raise ConfigMismatchError(
            f"the space {space.name!r} runs to round {max(space.max_rounds)}, and the recording ends at round "
            f"{recorded}: use max_rounds of at most {recorded}, or record more rounds"
        )


def _closed_book_reader(family: FormFamily, side: Side) -> Callable[[RuleCodes], Mask] | None:
    """Return a function that maps rules to the questions whose closed-book answer they pay for; None if no rule does."""
    if side.paid is None or side.paid.all():
        return None
    literals = family.block.literals
    components = side.recording.signal_components
    answer = {literal.signal for literal in literals if reads_closed_book(literal.signal, side.policy, components)}
    backward = [i for i, one in enumerate(literals) if replace(side.policy, rule=one.threshold(0)).reads_every_answer]
    wanted, view = [i for i, literal in enumerate(literals) if literal.signal in answer], side.view
    read = reader(family, view)

    def of(codes: RuleCodes) -> Mask:
        reads = read(codes)
        answered: Mask = np.zeros(codes.digits.shape[:1] + view.seen.shape[:1], dtype=np.bool_)
        for i in wanted:
            answered |= (reads[i] & reads[i].dtype.type(1)) > 0
        return answered | (codes.digits[:, backward] > 0).any(axis=1, keepdims=True)

    return of


def _random_table(side: Side, number: int, keys: Keys) -> Hashes:
    """Return a random 64-bit number for each column of a side's tables, the same for columns with the same outcome."""
    numbers = keyed_numbers(keys, side.tables["calls"].shape[1], seed=20_000 + 2 * number + (side.paid is not None))
    width = len(side.view)
    if side.paid is not None:
        numbers[:, width:] = np.where(side.paid, numbers[:, :width], numbers[:, width:])
    # A stop past the end counts as a stop at the end.
    stop = np.minimum(np.arange(width), np.maximum(side.last, 0)[:, None])
    halves = [stop] if side.paid is None else [stop, stop + width]
    table: Hashes = np.take_along_axis(numbers, np.concatenate(halves, axis=1), axis=1)
    return table


def outcome_at(side: Side, places: Places, name: str) -> Floats:
    """Return one outcome of rules on the questions of a side, shape ``(n_rules, n_questions)``."""
    outcome: Floats = _gather(side.tables[name], places.column)
    if side.trials is None or places.trials is None or name not in side.trials.costs:
        return outcome
    return outcome + side.trials.total(name, places.trials)


def _gather(table: npt.NDArray[Any], position: Numbers) -> npt.NDArray[Any]:
    n, width = table.shape
    # One flat look-up is several times as fast as an index for each axis.
    values: npt.NDArray[Any] = np.ravel(table).take(position + width * np.arange(n))
    return values


def _distinct(entries: list[tuple[Hashes, Numbers, Numbers, Numbers]]) -> Distinct:
    hashes, _, number, members = _merge_alike(entries)
    order = np.argsort(number)
    return Distinct(number=number[order], members=members[order], hash=hashes[order])


def _merge_alike(entries: list[tuple[Hashes, Numbers, Numbers, Numbers]]) -> tuple[Hashes, Numbers, Numbers, Numbers]:
    """Return one entry for each hash: the first rule with the shortest text, and the number of rules."""
    hashes, sizes, numbers, members = (np.concatenate(column) for column in zip(*entries, strict=True))
    # After sorting, equal hashes are adjacent; length and number form one key, so that a minimum finds the shortest
    # rule.
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    first = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
    keys = (sizes[order] << 32) | numbers[order]  # numbers are below MOST_RULES, far from 2**32
    best = np.minimum.reduceat(keys, first)
    return hashes[first], best >> 32, best & (2**32 - 1), np.add.reduceat(members[order], first)
