"""Values from JSON have the types of their dataclass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

from suffice.common.json_text import check_types


@dataclass
class Thing:
    """One field of each type that is checked, and one of a type that is not."""

    count: int = 0
    size: float | None = None
    is_new: bool = False
    name: str = ""
    kind: Literal["a", "b"] | None = None
    items: tuple[str, ...] = ()
    parts: Mapping[str, int] | None = None
    others: Any = None
    thing: Thing | None = None


@pytest.mark.parametrize(
    "values",
    [
        {},
        {
            "count": 1,
            "size": 2,
            "is_new": True,
            "name": "n",
            "kind": "b",
            "items": ["x"],
            "parts": {},
            "others": 3,
            "thing": 4,
        },
        {"size": None, "kind": None, "parts": None, "more": 1},
        {"count": np.int64(3), "size": np.float64(0.5), "name": np.str_("n")},
    ],
)
def test_values_of_the_annotated_types_pass(values):
    check_types(Thing, values)


@pytest.mark.parametrize(
    "values",
    [
        {"count": 1.5},
        {"count": True},
        {"count": None},
        {"size": "2"},
        {"size": False},
        {"is_new": 1},
        {"name": None},
        {"name": ["n"]},
        {"kind": "c"},
        {"kind": []},
        {"items": "xy"},
        {"items": {}},
        {"parts": []},
    ],
)
def test_a_value_of_another_type_is_named(values):
    with pytest.raises(TypeError, match=f"{next(iter(values))} is"):
        check_types(Thing, values)
