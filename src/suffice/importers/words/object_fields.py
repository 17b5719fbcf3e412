"""Objects whose fields are columns with dotted names."""

from __future__ import annotations

from collections.abc import Iterable


def fields_in(names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return objects that have several fields as columns, with these fields.

    >>> own = fields_in(["id", "expected.room", "expected.nights", "usage.tokens"])
    >>> {name: sorted(fields) for name, fields in own.items()}
    {'expected': ['nights', 'room']}
    """
    fields: dict[str, set[str]] = {}
    for name in names:
        above, _, field = name.rpartition(".")
        fields.setdefault(above, set()).add(field)
    return {above: frozenset(own) for above, own in fields.items() if above and len(own) > 1}


def paths_of(above: str, fields: Iterable[str]) -> set[str]:
    """Return the names of the columns that have the fields of an object."""
    return {f"{above}.{field}" for field in fields}
