"""Spaces of rules to search; a space's size is computed by a formula, without building a rule.  Spaces are read from TOML files; some are published."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from math import comb, isfinite, log
from pathlib import Path
from typing import Any, Literal as Choice, get_args

from suffice.errors import DataError, NotFoundError, SchemaError
from suffice.evaluation.replay import reads_round_0
from suffice.policy.rules import Threshold
from suffice.policy.signals import SIGNALS

RuleForm = Choice["or", "and", "dnf", "k_of_n"]
FORMS: tuple[str, ...] = get_args(RuleForm)

MOST_RULES = 20_000_000
"""Most rules of one search: they take a minute, and half a gigabyte of memory if all have different stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """A comparison of one signal with the thresholds that a search tries.

    Attributes:
        signal: The signal.
        comparison: `>`, `>=`, `<` or `<=`.
        thresholds: The values, in the signal's unit; empty = choose them on tune questions.
        grid: Used if `thresholds` is empty: the number of evenly spaced values to try, from the signal's smallest to its
            largest value on tune questions.  0 = try one value only, which is locked before the search: the best value
            for a rule of this literal alone.
        low: Used if `thresholds` is empty: the tried values start at `low` instead of at the signal's smallest value on
            tune questions.  A `low` above this smallest value has no effect.  None = start at the smallest value.
    """

    signal: str
    comparison: str = ">"
    thresholds: tuple[float, ...] = ()
    grid: int = 0
    low: float | None = None

    def __post_init__(self) -> None:
        Threshold(self.signal, self.comparison, 0.0)  # raises if the name or the comparison is not valid
        for value in self.thresholds:
            Threshold(self.signal, self.comparison, value)
        if len(set(self.thresholds)) != len(self.thresholds):
            raise DataError(f"the literal on {self.signal!r} names a threshold twice: {list(self.thresholds)!r}")
        if self.grid < 0 or (self.grid and self.thresholds):
            raise DataError(
                f"the literal on {self.signal!r} takes thresholds, or a grid of at least 1 value, not "
                f"{list(self.thresholds)!r} and {self.grid!r}"
            )
        if self.low is not None and (self.thresholds or not isfinite(self.low)):
            raise DataError(
                f"the literal on {self.signal!r} takes thresholds, or a finite number at which they start, not "
                f"{list(self.thresholds)!r} and {self.low!r}"
            )

    @property
    def width(self) -> int:
        """The number of thresholds to try."""
        return len(self.thresholds) or self.grid or 1

    @property
    def is_gate(self) -> bool:
        """True if its signal is only known at round 0, so that rules with it start there."""
        return reads_round_0(Threshold(self.signal, self.comparison, 0.0))

    def threshold(self, position: int) -> Threshold:
        """Return the literal with one of its thresholds."""
        return Threshold(self.signal, self.comparison, self.thresholds[position])


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """All rules of one form over some literals; a rule contains a literal at most once.

    Attributes:
        form: `or`: every non-empty subset, joined by `|`.  `and`: joined by `&`.  `dnf`: every disjunctive normal form
            without repeated literals, that is every set partition of every non-empty subset, with `&` within its blocks
            and `|` between them.  `k_of_n`: "at least k of n literals", for every non-empty subset and every k up to
            its size n.
        literals: The literals.
        prompt: The prompt whose rounds these rules read, which is the name before the `@` in the column `prompt_id`.
            "" = the recording's only prompt, or the only prompt that no block names.
    """

    form: RuleForm
    literals: tuple[Literal, ...]
    prompt: str = ""

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise DataError(f"unknown form {self.form!r}; allowed: {', '.join(FORMS)}")
        names = [(literal.signal, literal.comparison) for literal in self.literals]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"{' '.join(twice)} appears twice in one block: give one literal all of its thresholds")

    @property
    def count(self) -> int:
        """The number of rules, computed by formula.

        Let e_m be the sum, over all subsets of m literals, of the product of their numbers of thresholds.  The count is
        the sum over m of e_m for `or` and `and`, of Bell(m) * e_m for `dnf`, and of m * e_m for `k_of_n`.

        >>> six = tuple(Literal(signal=name, thresholds=(0.5,)) for name in "abcdef")
        >>> [Block(form=form, literals=six).count for form in FORMS]
        [63, 63, 876, 192]
        """
        subsets = list(enumerate(_symmetric(literal.width for literal in self.literals)))[1:]
        if self.form == "dnf":
            return sum(bell(m) * e for m, e in subsets)
        return sum(m * e if self.form == "k_of_n" else e for m, e in subsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A set of rules to search: families of rules, each with values of patience and highest round.

    Attributes:
        name: Name of the space in reports.
        blocks: The families of rules; a rule in two families counts twice.
        patience: Numbers of consecutive rounds in which a rule must fire; each value is tried with every rule.
        max_rounds: Highest rounds; each value is tried with every rule.  Empty = the highest recorded round.
    """

    name: str
    blocks: tuple[Block, ...]
    patience: tuple[int, ...] = (1,)
    max_rounds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for what, values, least in (("patience", self.patience, 1), ("max_rounds", self.max_rounds, 0)):
            if len(values) < least or any(value < 1 for value in values) or len(set(values)) != len(values):
                raise DataError(f"{what} takes different whole numbers >= 1, not {list(values)!r}")

    @property
    def variants(self) -> int:
        """The number of combinations of patience and highest round that each rule is tried with."""
        return len(self.patience) * max(1, len(self.max_rounds))

    @property
    def count(self) -> int:
        """The number of rules, computed by formula."""
        return self.variants * sum(block.count for block in self.blocks)

    def check(self) -> None:
        """Raise if the space has no rules, or more than `MOST_RULES`.

        Raises:
            DataError: The number of rules is 0 or too large; the message says what to change.
        """
        if self.count == 0:
            raise DataError(f"the space {self.name!r} has 0 rules: give a block at least one literal")
        if self.count > MOST_RULES:
            widest = max((literal for block in self.blocks for literal in block.literals), key=lambda item: item.width)
            raise DataError(
                f"the space {self.name!r} has {self.count:,} rules; at most {MOST_RULES:,} are searched. Lock the thresholds "
                f"of some literals or make their grids coarser ({widest.signal} has {widest.width}), drop literals, or "
                "use the form 'or'"
            )

    def with_literals(self, literals: Iterable[Iterable[Literal]]) -> Space:
        """Return the space with the literals of its blocks replaced."""
        blocks = (replace(block, literals=tuple(new)) for block, new in zip(self.blocks, literals, strict=True))
        return replace(self, blocks=tuple(blocks))


def bell(n: int) -> int:
    """Return the number of set partitions of `n` things.

    >>> [bell(n) for n in range(7)]
    [1, 1, 2, 5, 15, 52, 203]
    """
    numbers = [1]
    for m in range(n):
        numbers.append(sum(comb(m, i) * numbers[i] for i in range(m + 1)))
    return numbers[n]


def _symmetric(widths: Iterable[int]) -> list[int]:
    """Return the elementary symmetric polynomials e_0, e_1, ... of the widths."""
    polynomials = [1]
    for width in widths:
        # Each subset of the widths so far counts once without the new width and once multiplied by it.
        shifted = [0, *(width * e for e in polynomials)]
        polynomials = [a + b for a, b in zip([*polynomials, 0], shifted, strict=True)]
    return polynomials


def read_space(path: str | Path) -> Space:
    """Read a space from a TOML file.

    Raises:
        DataError: There is no such file, or a value is not allowed.
        SchemaError: The file is not TOML, or has unknown fields.
    """
    source = Path(path)
    try:
        data = tomllib.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"the space {str(path)!r} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SchemaError(f"the space {str(path)!r} is not TOML: {error}") from None
    return space_from_dict({"name": source.stem, **data})


def space_from_dict(data: Mapping[str, Any]) -> Space:
    """Build a space from nested dictionaries and lists.

    >>> literals = [{"signal": "p_correct", "grid": 20}, {"signal": "answer_stable", "thresholds": [1], "comparison": ">="}]
    >>> space_from_dict({"name": "mine", "patience": [1, 2], "blocks": [{"form": "dnf", "literals": literals}]}).count
    122

    Args:
        data: The fields of `Space`.  Each item of `blocks` has the fields of `Block`, and each of its `literals` the
            fields of `Literal`.

    Raises:
        SchemaError: A field is unknown, is missing, or has a value of the wrong kind.
        DataError: A value is not allowed.
    """
    blocks = []
    for block in _list(data, "blocks", "the space"):
        literals = [
            Literal(**_fields_of(Literal, {**literal, **_tuples(literal, "thresholds", float)}, "a literal"))
            for literal in _list(block, "literals", "a block")
        ]
        blocks.append(Block(**_fields_of(Block, {**block, "literals": tuple(literals)}, "a block")))
    whole = {**_tuples(data, "patience", int), **_tuples(data, "max_rounds", int)}
    return Space(**_fields_of(Space, {**data, **whole, "blocks": tuple(blocks)}, "the space"))


def _list(data: Any, name: str, owner: str) -> list[Mapping[str, Any]]:
    tables = data.get(name) if isinstance(data, Mapping) else None
    if not isinstance(tables, list) or not all(isinstance(item, Mapping) for item in tables):
        raise SchemaError(f"{owner} needs the field {name!r}, a list of tables")
    return tables


def _tuples(data: Mapping[str, Any], name: str, kind: type) -> dict[str, tuple[Any, ...]]:
    if name not in data:
        return {}
    values = data[name]
    allowed = (int, float) if kind is float else (int,)
    if not isinstance(values, list) or not all(type(value) in allowed for value in values):
        raise SchemaError(f"{name} must be a list of {'numbers' if kind is float else 'whole numbers'}, not {values!r}")
    return {name: tuple(kind(value) for value in values)}


def _fields_of(kind: type, data: Mapping[str, Any], owner: str) -> dict[str, Any]:
    known = {item.name: item for item in fields(kind)}
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise SchemaError(f"{owner} has no field {unknown[0]!r}; there are: {', '.join(known)}")
    required = {"signal", "form", "name"} & set(known)
    missing = sorted(required - set(data))
    if missing:
        raise SchemaError(f"{owner} needs the field {missing[0]!r}")
    texts = {"signal", "comparison", "form", "prompt", "name"}
    wrong = next((name for name in texts & set(data) if not isinstance(data[name], str)), None)
    numbers = {"grid": (int,), "low": (int, float)}
    wrong = wrong or next(
        (name for name, kinds in numbers.items() if name in data and type(data[name]) not in kinds), None
    )
    if wrong is not None:
        raise SchemaError(f"the field {wrong!r} of {owner} has the wrong kind: {data[wrong]!r}")
    return dict(data)


CONFIDENCE_PROMPT = "confidence_first"
"""The prompt of the second block of `tasr-381`, which asks for the confidence before the answer."""

_WITHOUT_MARGIN = (
    *("answer_stable", "calibrated_confidence", "overlap", "top_score_z_pool", "score_gap"),
    *("answer_in_evidence", "rerank_score", "judge_entailment"),
)
_WITH_MARGIN = ("p_correct", "answer_stable", "calibrated_confidence", "overlap", "top_score_z_pool", "score_gap")
_AVAILABLE = tuple(dict.fromkeys((*_WITH_MARGIN[:4], "top_score_z", "score_gap", *_WITHOUT_MARGIN)))
_LOWEST = {"overlap": 0.0}
"""Lower end of the published grids: 0, because the authors' column is 0 in round 1, where the signal is undefined here."""


def _literals(names: Iterable[str], low: Mapping[str, float] = _LOWEST) -> tuple[Literal, ...]:
    """Return one literal for each signal: a boolean signal must be true; for others, tune questions set the threshold."""
    return tuple(
        Literal(signal=name, comparison=">=", thresholds=(1.0,))
        if SIGNALS[name].unit == "bool"
        else Literal(signal=name, low=low.get(name))
        for name in names
    )


PRESETS: Mapping[str, Space] = {
    "tasr-381": Space(
        name="tasr-381",
        blocks=(
            Block(form="or", literals=_literals(_WITHOUT_MARGIN)),
            # The paper says "six of these signals" without naming them: the six that cost no other model's call.
            Block(form="or", literals=_literals(_WITHOUT_MARGIN[:6]), prompt=CONFIDENCE_PROMPT),
            Block(form="or", literals=_literals(_WITH_MARGIN)),
        ),
    ),
    "tasr-dnf-876": Space(name="tasr-dnf-876", blocks=(Block(form="dnf", literals=_literals(_WITH_MARGIN)),)),
}
"""TASR section 5.3 (381 OR subsets of three signal sets) and the sweep of its repository (876 normal forms)."""


def available(columns: Collection[str]) -> Space:
    """Return a space like the preset `tasr-dnf-876`, but only with the signals in `columns`.

    Its signals can be those of TASR and the global z-score.

    >>> available(["answer_stable", "overlap", "answer_margin"]).count
    4

    Args:
        columns: The signals that a recording has, or that can be fitted on it.

    Raises:
        DataError: None of these signals is available.
    """
    names = [name for name in _AVAILABLE if name in columns]
    if not names:
        raise DataError(
            f"the recording has none of the signals that are searched ({', '.join(_AVAILABLE)}): record or import "
            "them, or describe a space of its own signals in a TOML file"
        )
    return Space(name="available", blocks=(Block(form="dnf", literals=_literals(names, low={})),))


def votes() -> Space:
    """Return the space for independent samples: leads, posteriors, shares and windows, alone and combined.

    >>> votes().count
    143
    """
    literals = (
        Literal(signal="vote_lead", comparison=">=", thresholds=(2.0, 3.0, 4.0, 5.0, 6.0)),
        Literal(signal="posterior_majority", comparison=">=", thresholds=(0.9, 0.95, 0.99)),
        Literal(signal="vote_share", comparison=">=", thresholds=(0.6, 0.8)),
        Literal(signal="window_agreement_3", comparison=">=", thresholds=(1.0,)),
    )
    return Space(name="votes", blocks=(Block(form="and", literals=literals),))


def thoughts(columns: Collection[str]) -> Space:
    """Return the space for chains of thought: length, hesitation, and signals of trial answers, alone and combined.

    Signals of the chain come first in a rule, so that a trial answer is only paid for where these signals hold.

    >>> thoughts(["thinking_tokens", "answer_stable", "answer_logprob_mean"]).count
    178

    Args:
        columns: The signals that a recording has, or that can be fitted on it.
    """
    probabilities = (0.8, 0.9, 0.95, 0.99)
    literals = (
        Literal(signal="thinking_tokens", comparison=">=", grid=8),
        Literal(signal="thinking_hesitation", comparison=">", thresholds=(0.0,)),
        Literal(signal="p_settled", comparison=">", thresholds=probabilities),
        Literal(signal="answer_stable", comparison=">=", thresholds=(1.0,)),
        Literal(signal="trial_hesitates", comparison="<", thresholds=(1.0,)),
        Literal(signal="answer_logprob_mean", comparison=">", thresholds=tuple(map(log, probabilities))),
    )
    there = tuple(literal for literal in literals if literal.signal in columns)
    return Space(name="thoughts", blocks=(Block(form="and", literals=there),), patience=(1, 2))


def preset(name: str) -> Space:
    """Return a published space by name.

    Raises:
        DataError: There is no space of that name.
    """
    if name not in PRESETS:
        raise NotFoundError(
            f"there is no space {name!r}; there are: {', '.join(PRESETS)}, available, or a TOML file that describes one"
        )
    return PRESETS[name]
