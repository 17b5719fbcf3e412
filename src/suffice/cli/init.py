"""`suffice init`: ask once for the values that commands need, and write them to `suffice.toml`."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from suffice.cli.approvals import Approval, approvals_file, approve as store_approvals, wanted
from suffice.cli.console import warn
from suffice.cli.output import Output, Screen
from suffice.cli.settings import (
    FILE,
    KEYS,
    check_key_variable,
    check_named_by_file,
    check_settings,
    read_settings,
    settings_text,
    tables_text,
)
from suffice.common.files import write_file
from suffice.common.results import jsonable
from suffice.errors import DataError, NotFoundError, SchemaError
from suffice.evaluation.replay import list_price

_QUESTIONS = {
    "base-url": "Your endpoint, usually ending with /v1 (empty: none, the small reader in the package)",
    "model": "The model's name there",
    "recording": "Recorded rounds, or where you will write them",
    "prices": "USD per million tokens: 'list' for list prices, or a file (empty: unknown)",
    "max-loss": "The largest mean loss of quality that you would accept; 0.02 is two points",
}
_PROPOSED = {"recording": "logs.parquet", "max-loss": "0.02"}


def init_command(
    output: Output,
    base_url: Annotated[str | None, typer.Option("--base-url", help=KEYS["base-url"])] = None,
    model: Annotated[str | None, typer.Option("--model", help=KEYS["model"])] = None,
    api_key_env: Annotated[str | None, typer.Option("--api-key-env", help=KEYS["api-key-env"])] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", help=KEYS["dataset"])] = None,
    recording: Annotated[str | None, typer.Option("--recording", help=KEYS["recording"])] = None,
    prices: Annotated[str | None, typer.Option("--prices", help=KEYS["prices"])] = None,
    max_loss: Annotated[float | None, typer.Option("--max-loss", help=KEYS["max-loss"])] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the keys of a file that is there; its tables stay.")
    ] = False,
    approve: Annotated[
        bool,
        typer.Option(
            "--approve", help="Let the file that is there send the key that it names to the endpoint that it names."
        ),
    ] = False,
) -> None:
    """On a terminal it asks five questions; elsewhere it writes the values of the options.

    What you write is approved: commands in this folder send the key to the endpoint. --approve does so for a file that is there.

    Example: suffice init --base-url http://localhost:8080/v1 --model llama
    """
    values: dict[str, Any] = {
        "base-url": base_url,
        "model": model,
        "api-key-env": api_key_env,
        "dataset": dataset,
        "recording": recording,
        "prices": prices,
        "max-loss": max_loss,
    }
    settings = {key: value for key, value in values.items() if value is not None}
    if approve:
        _approve_file(settings, output, overwrite=overwrite)
        return
    if FILE.exists() and not overwrite:
        raise DataError(f"{FILE} exists: edit it, or give --overwrite")
    if not settings and _is_terminal() and not output.as_json:
        settings = _asked()
    _check(settings)
    approvals = wanted(settings)
    text = settings_text(settings, _kept_tables())
    check_settings(tomllib.loads(text))
    write_file(FILE, text)
    try:
        store_approvals(approvals)
    except DataError as error:
        warn(f"note: {FILE} is not approved yet: {error}")
        approvals = []
    said = ", ".join(f"{key} = {value}" for key, value in settings.items())
    then = "suffice import LOGS -o logs.parquet" if "base-url" not in settings else "suffice doctor"
    sentences = [f"{FILE}: {said or 'no values yet, every key as a comment'}", *_sentences(approvals)]
    data = {"file": str(FILE), "settings": jsonable(settings), "approved": [asdict(one) for one in approvals]}
    output.show(data, Screen(sentences=sentences, then=then))


def _kept_tables() -> str:
    """Return the text of the existing file's tables; empty without a readable file."""
    if not FILE.exists():
        return ""
    try:
        return tables_text(FILE.read_text("utf-8"))
    except (SchemaError, UnicodeDecodeError):
        warn(f"note: the former {FILE} was not TOML: nothing of it is kept")
        return ""


def _approve_file(settings: dict[str, Any], output: Output, *, overwrite: bool) -> None:
    """Approve the endpoint and key in the existing file, and show them."""
    if settings or overwrite:
        raise DataError("--approve is for a file that is there; what you write by other options is approved anyway")
    if not FILE.exists():
        raise NotFoundError(f"there is no {FILE} in {str(Path.cwd())!r} to approve: `suffice init` writes one")
    approvals = wanted(read_settings())
    store_approvals(approvals)
    nothing = [f"{FILE} names no endpoint elsewhere and no key: there is nothing to approve"]
    data = {"file": str(FILE), "approved": [asdict(one) for one in approvals]}
    output.show(data, Screen(sentences=_sentences(approvals) or nothing, then="suffice doctor"))


def _sentences(approvals: list[Approval]) -> list[str]:
    return [
        f"approved for {one.folder}: {FILE} may send the key in {one.variable} to {one.origin} (kept in {approvals_file()})"
        for one in approvals
    ]


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _asked() -> dict[str, Any]:
    """Return the user's answers; empty answers are left out."""
    settings: dict[str, Any] = {}
    for key, question in _QUESTIONS.items():
        if key == "model" and "base-url" not in settings:
            continue
        answer = typer.prompt(question, default=_PROPOSED.get(key, ""), show_default=key in _PROPOSED, err=True).strip()
        if answer:
            try:
                settings[key] = float(answer) if key == "max-loss" else answer
            except ValueError:
                raise DataError(f"max-loss must be a number such as 0.02, not {answer!r}") from None
    return settings


def _check(settings: dict[str, Any]) -> None:
    """Raise if commands would later refuse a value."""
    loss = settings.get("max-loss")
    if loss is not None and not 0 < loss < 1:
        raise typer.BadParameter(f"{loss!r}; allowed: between 0 and 1", param_hint="--max-loss")
    url = settings.get("base-url")
    if url is not None and not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{url!r}; allowed: http://... or https://...", param_hint="--base-url")
    if url is not None and "@" in url.partition("://")[2].partition("/")[0]:
        raise typer.BadParameter("it holds a password: give the key by --api-key-env", param_hint="--base-url")
    if "api-key-env" in settings:
        check_key_variable(settings["api-key-env"], "--api-key-env")
        check_named_by_file(settings["api-key-env"])
    prices = settings.get("prices")
    if prices is not None and prices != "list" and not Path(prices).is_file():
        raise DataError(f"there is no file of prices {prices!r}; give 'list' for list prices, or write the file first")
    if prices == "list" and settings.get("model"):
        list_price(settings["model"])
