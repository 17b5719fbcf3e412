"""Results show themselves: every one as tables and as JSON."""

import json
import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from suffice.common.results import BESIDE, NOT_IN_JSON, UNLESS_EMPTY, Result, Tagged, jsonable
from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.evaluation.results import Evaluation
from suffice.evaluation.statistics import (
    Resampling,
    holm_within,
    keys_of,
    paired_results,
    permutation_tests,
    poisson_weights,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Small(Result):
    n: int
    inner: Inner

    def table(self) -> Table:
        return Table(title="small", columns=(Column("n"),), rows=((self.n,),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole(Result):
    parts: dict[int, Small]

    def tables(self) -> list[Table]:
        return [part.table() for part in self.parts.values()]


def test_a_result_is_json_of_its_fields_with_none_for_undefined():
    whole = Whole(parts={1: Small(n=2, inner=Inner(share=math.nan))})
    assert whole.to_dict() == {"parts": {"1": {"n": 2, "inner": {"share": None}}}}
    assert json.dumps(whole.to_dict(), allow_nan=False)


def test_what_has_a_form_of_its_own_keeps_it_within_a_result():
    @dataclass(frozen=True)
    class Row:
        low: float

        def to_dict(self) -> dict[str, float]:
            return {"low": self.low, "twice": 2 * self.low}

    assert jsonable({"rows": (Row(0.5),)}) == {"rows": [{"low": 0.5, "twice": 1.0}]}


def test_a_result_defines_one_table_or_several():
    small = Small(n=2, inner=Inner(share=0.5))
    assert [table.title for table in small.tables()] == ["small"]
    assert Whole(parts={1: small, 2: small}).table() == small.table()


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_json_cannot_hold_is_none(value):
    assert jsonable({"a": [value, (1, value)]}) == {"a": [None, [1, None]]}


def test_an_evaluation_lists_its_resampling_beside_its_other_values():
    made = Evaluation(n=3, resampling=Resampling(seed=7, level=0.9), data_hash="ab", notes=("one",))
    drawn = {"n_resamples": 1000, "seed": 7, "level": 0.9, "interval": "expanded"}
    assert made.to_dict() == {"n": 3, **drawn, "data_hash": "ab", "notes": ["one"]}


@pytest.mark.parametrize(
    ("options", "words"),
    [({"level": 1.0}, "level"), ({"interval": "normal"}, "'normal'"), ({"n_resamples": -1}, "-1 resamples")],
)
def test_a_resampling_that_cannot_be_is_refused(options, words):
    with pytest.raises(DataError, match=words):
        Resampling(**options)


def test_a_resampling_without_draws_gives_none():
    with pytest.raises(DataError, match="needs resamples"):
        Resampling(n_resamples=0).draws("abc")


def test_draws_are_those_of_the_seed_over_clusters():
    draws = Resampling(n_resamples=20, seed=3).draws(["a", "b", "a"])
    weights = poisson_weights(keys_of("ab"), 20, seed=3)
    assert np.array_equal(draws.weights, weights[weights.any(axis=1)])  # a draw of no question has no mean
    assert Resampling().draws(["a", "b"]).clusters is None


def test_joint_comparisons_equal_separate_ones_and_omit_unknown_rows():
    rng = np.random.default_rng(0)
    rows = {"a": rng.normal(0.3, 1.0, 30), "b": rng.normal(0.0, 1.0, 30), "c": np.full(30, np.nan)}
    how = Resampling(n_resamples=200, seed=5, level=0.9, interval="t")
    draws = how.draws(range(30))
    together = draws.compare(rows, family={"a", "b"})
    assert set(together) == {"a", "b"}
    for name in "ab":
        [alone] = paired_results(rows[name], draws.weights, level=0.9, method="t")
        for other in (draws.compare(rows)[name], draws.paired(rows[name])):
            assert (other.delta, other.low, other.high) == pytest.approx((alone.delta, alone.low, alone.high))
    tests = dict(
        zip(
            "ab",
            permutation_tests(np.stack([rows["a"], rows["b"]]), n_resamples=200, rng=5, keys=draws.keys),
            strict=True,
        )
    )
    assert {name: result.p for name, result in together.items()} == {name: test.p for name, test in tests.items()}
    assert {name: result.p_holm for name, result in together.items()} == holm_within(
        {name: test.p for name, test in tests.items()}, {"a", "b"}
    )
    assert math.isnan(draws.compare(rows, family={"b"})["a"].p_holm)


def test_a_ratio_leaves_out_draws_without_a_denominator():
    draws = Resampling(n_resamples=200, seed=1).draws("abc")
    (value, low, high), defined = draws.ratio(np.array([1.0, 0.0, 0.0]), np.array([2.0, 0.0, 0.0]))
    assert (value, low, high, defined) == (0.5, 0.5, 0.5, False)
    (value, *_), defined = draws.ratio(np.ones(3), np.zeros(3))
    assert math.isnan(value)
    assert defined


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked(Result):
    json_first = ("label",)
    parts: dict[str, int] = field(metadata=BESIDE)
    ids: tuple[str, ...] = field(metadata=NOT_IN_JSON)
    seed: int | None = field(default=None, metadata=UNLESS_EMPTY)
    why: str = field(default="", metadata=UNLESS_EMPTY)

    @property
    def label(self) -> str:
        return f"{len(self.ids)} ids"


def test_fields_say_how_they_appear_in_json():
    plain = {"label": "1 ids", "a": 1}
    assert Marked(parts={"a": 1}, ids=("q",)).to_dict() == plain
    assert Marked(parts={"a": 1}, ids=("q",), seed=0, why="x").to_dict() == {**plain, "seed": 0, "why": "x"}


def test_a_tagged_value_begins_with_its_tag():
    @dataclass(frozen=True, slots=True)
    class Shift(Tagged):
        tag = ("map", "shift")
        by: tuple[float, ...]
        twice: float = field(init=False, default=2.0)

    assert Shift((0.5, math.nan)).to_dict() == {"map": "shift", "by": [0.5, None]}
