"""Logs of three rounds with an amount of money in each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from suffice import import_recording, read_recording
from suffice.recordings import Recording


def money_rows(
    amount: float | str | Callable[[int, int], Any] = 0.002,
    name: str = "cost",
    first: int = 0,
    n: int = 200,
    **more: Any,
) -> list[dict[str, Any]]:
    """Return rows of three rounds, of which the second one is right, with an amount in each."""
    return [
        {"id": f"q{q}", "question": f"Which city is number {q}?", "round": r, "gold": f"City {q}"}
        | {"answer": f"City {q + (r == 1)}", name: amount(q, r) if callable(amount) else amount, **more}
        for q in range(first, first + n)
        for r in (1, 2, 3)
    ]


def money_recording(folder: Path, rows: list[dict[str, Any]], name: str = "cost") -> Recording:
    """Import rows with the amounts of each call in the column `name`; the recording is `log.parquet`."""
    log = folder / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    path = import_recording(
        log, out=folder / "log.parquet", columns={"spend": f"{name}:each"}, expected=["last-is-gold"]
    ).path
    return read_recording(path)


def eur_recording(folder: Path, n: int = 40, **more: Any) -> Recording:
    """Return a recording whose rounds cost 0.002 EUR each, the later ones of some questions more."""
    rows = money_rows(lambda q, r: 0.002 * (1 + (q % 3) * (r > 1)), "cost_eur", n=n, **more)
    return money_recording(folder, rows, "cost_eur")
