"""Results show themselves: every one as tables and as JSON."""

import json
import math
from dataclasses import dataclass

import pytest

from suffice.results import Result, jsonable
from suffice.tables import Column, Table


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


def test_a_result_is_its_fields_as_json_with_none_for_what_is_undefined():
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
