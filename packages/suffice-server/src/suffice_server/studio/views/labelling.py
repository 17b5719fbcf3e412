"""The page of a labelling sheet, which shows one question with its answers and a form for the label.

The page does not show which round gave an answer.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from typing import Any

from starlette.responses import RedirectResponse, Response

from suffice.errors import DataError
from suffice.verdicts.decisions import Labels
from suffice.verdicts.decisions.labels import CANNOT_TELL, EQUAL, NONE_RIGHT, answers_in, is_labelled, write_rows
from suffice_server.studio.view import Tab, View, ViewModule

_WRITING = threading.Lock()
"""Lock so that simultaneous labels are written one after the other."""


def labelling_page(view: View) -> Response:
    """Return the page of the row in the address or, without such a row, of the first row without a label."""
    item = view.item("labels")
    rows = Labels.read(item.path).sheet
    open_rows = [at for at, row in enumerate(rows) if not is_labelled(row)]
    last = len(rows) - 1
    at = min(view.number("row", open_rows[0] if open_rows else last), last)
    row = dict(rows[at]) if rows else {}
    return view.page(
        "labelling.html",
        f"Label {item.name}",
        item=item,
        row=row,
        at=at,
        n=len(rows),
        n_done=len(rows) - len(open_rows),
        shown=_fingerprint(row) if row else "",
        answers=answers_in(row),
        is_pair="better" in row,
        marked=_letters_of(row),
        saved=view.value("saved"),
        words={"none": NONE_RIGHT, "equal": EQUAL, "unknown": CANNOT_TELL},
    )


def save_label(view: View) -> Response:
    """Write a label into the sheet, and show the next row without a label.

    Raises:
        DataError: The row has moved, because another program changed the sheet, or the row does not allow the label.
    """
    item = view.item("labels")
    with _WRITING:
        rows = [dict(row) for row in Labels.read(item.path).sheet]
        at = _one(view, "row")
        row = rows[int(at)] if at.isdecimal() and int(at) < len(rows) else {}
        if not row or _one(view, "shown") != _fingerprint(row):
            raise DataError(
                "the sheet was written by something else meanwhile, so this label was not saved: go back to the folder and open it again"
            )
        row |= _label_of(view, row)
        write_rows(item.path, rows)
    return RedirectResponse(f"/labels/{item.id}{view.query(saved=row['id'])}", 303)


def _label_of(view: View, row: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the cells that the submitted form fills in a row."""
    mark, letters, gold = _one(view, "mark"), list(view.form.get("right", ())), _one(view, "gold").strip()
    answers = answers_in(row)
    allowed = {*answers, EQUAL, CANNOT_TELL} if "better" in row else {*answers, NONE_RIGHT, CANNOT_TELL, ""}
    if mark not in allowed or not set(letters) <= answers.keys():
        raise DataError(f"{mark or letters!r:.60} is not a label of this row; allowed: {', '.join(sorted(allowed))}")
    if "better" in row:
        return {"better": mark}
    if mark == CANNOT_TELL:
        return {"right": CANNOT_TELL, "gold": None}
    return {"right": mark or " ".join(letters) or None, "gold": gold or None}


def _letters_of(row: Mapping[str, Any]) -> list[str]:
    """Return the letters of the answers that are labelled right in a row."""
    given = row.get("right") or []
    return (given.replace(",", " ").split() if isinstance(given, str) else list(map(str, given))) if given else []


def _fingerprint(row: Mapping[str, Any]) -> str:
    """Return a hash of a row's displayed content.

    The hash identifies the row; the question would not, since a sheet of pairs has several rows for one question.
    """
    return hashlib.sha256(json.dumps([row["id"], answers_in(row)]).encode()).hexdigest()[:16]


def _one(view: View, name: str) -> str:
    """Return the single value of a form field; empty if the form lacks the field."""
    return next(iter(view.form.get(name, ())), "")


LABELLING_VIEW = ViewModule(
    pages=[("GET", "/labels/{id}", labelling_page), ("POST", "/labels/{id}", save_label)],
    tabs=[Tab(title="Label", path="/labels/{id}", kinds=("labels",), place=0)],
)
