"""Checks shared by all stores, which raise for missing names, empty stores, missing folders, or values not allowed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from suffice.errors import DataError, NotFoundError

_SHOWN_NAMES = 20


def not_among(what: str, name: str, known: Iterable[str], advice: str = "") -> NoReturn:
    """Raise for a name that does not exist; the message lists known names.

    Raises:
        NotFoundError: Always.
    """
    names = sorted(known)
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    listed = f"there are: {', '.join(names[:_SHOWN_NAMES])}{more}" if names else "there are none"
    raise NotFoundError(f"{what} {name!r} does not exist; {listed}{f'. {advice}' if advice else ''}")


def no_passage(place: str, filters: Mapping[str, Any]) -> NoReturn:
    """Raise for a store that is empty, or in which no passage satisfies the filters.

    Raises:
        DataError: Always.
    """
    if filters:
        raise DataError(f"{place} has no passage for which the filters hold: {filters!r}")
    raise DataError(f"{place} is empty: fill it first")


def require_folder(place: str, folder: str | Path) -> None:
    """Raise if a store's folder is missing, since the client would create it; URLs are not checked.

    Raises:
        NotFoundError: There is no such folder.
    """
    if "://" not in str(folder) and not Path(folder).is_dir():
        raise NotFoundError(f"{place}: the folder {str(folder)!r} does not exist")


def checked_choice(value: str, name: str, choices: Sequence[str]) -> str:
    """Return a value if it is one of the choices.

    Raises:
        DataError: The value is not one of the choices.
    """
    if value not in choices:
        raise DataError(f"{name} is {value!r}; allowed: {', '.join(choices)}")
    return value
