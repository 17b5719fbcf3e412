"""The start page: everything in the folder, each item with its description and a next command."""

from __future__ import annotations

from collections import Counter

from starlette.responses import Response

from suffice.common.files import quoted
from suffice.common.tables import counted
from suffice_server.studio.describing import ITEM_KINDS
from suffice_server.studio.view import View, ViewModule


def contents_page(view: View) -> Response:
    """Return the page of the folder."""
    items = view.items
    groups = [(title, [item for item in items if item.kind == kind]) for kind, (title, *_) in ITEM_KINDS.items()]
    numbers = Counter(item.kind for item in items)
    damaged = sum(bool(item.error) for item in items)
    texts = [counted(numbers[kind], *nouns) for kind, (_, *nouns) in ITEM_KINDS.items() if numbers[kind]]
    texts += [f"{damaged:,} of them damaged"] if damaged else []
    starts = [
        ("Try it first, offline: real questions, a rule, a report", f"suffice demo --out {quoted(view.folder.root)}"),
        (
            "Bring rounds that you have logged already",
            f"suffice import LOG -o {quoted(view.folder.root / 'run.parquet')}",
        ),
        (
            "Record your own loop, every round of every question",
            f"suffice record questions.jsonl -o {quoted(view.folder.root / 'run.parquet')} --model MODEL --base-url URL",
        ),
    ]
    return view.page(
        "contents.html",
        view.folder.name,
        groups=[group for group in groups if group[1]],
        summary=", ".join(texts),
        starts=starts,
        skipped=view.folder.skipped,
        others=view.folder.others,
    )


CONTENTS_VIEW = ViewModule(pages=[("GET", "/", contents_page)])
