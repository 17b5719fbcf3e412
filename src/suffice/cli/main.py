"""The command line: parse, call, print.

Exit codes: 0 done, 1 failed (the message says what and what to do), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import traceback
import warnings
from typing import Annotated, TextIO

import typer

from suffice._version import __version__
from suffice.cli import (
    answer,
    certify,
    compare_gates,
    demo,
    diagnose,
    drafting,
    importing,
    inspect,
    judge,
    judge_pairs,
    money,
    offline,
    preferences,
    recording,
    report,
    search,
    selectors,
    states,
    stream,
    train_probe,
    train_reranker,
)
from suffice.cli.plugins import add_commands
from suffice.cli.show import errors
from suffice.errors import RuleSyntaxError, SufficeError

__all__ = ["app", "run"]

_INTERRUPTED = 130
_KEPT = "interrupted; what was recorded is kept, and the same command goes on from there"


class _Notes(logging.Handler):
    """Shows what the library logs as notes on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        errors.print(f"note: {record.getMessage()}", markup=False, soft_wrap=True)


_NOTES = _Notes(logging.WARNING)

app = typer.Typer(
    name="suffice",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Whether to retrieve, when to stop, and which round's answer to return. "
    "Record rounds once, then calibrate, replay and prove a stopping rule offline.\n\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"suffice {__version__}")
        raise typer.Exit


@app.callback()
def common(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that stand before the command."""
    del debug, version  # read from the arguments by `run`, which outlives a failing parse


app.add_typer(demo.app, name="demo")
app.command("answer")(answer.answer)
app.command("record")(recording.record_command)
app.command("draft")(drafting.draft_command)
app.command("record-drafts")(drafting.record_drafts_command)
app.command("judge")(judge.judge_command)
app.command("judge-pairs")(judge_pairs.judge_pairs_command)
app.command("judge-gold")(judge_pairs.judge_gold_command)
app.command("train-probe")(train_probe.train_probe_command)
app.command("preferences")(preferences.preferences_command)
app.command("train-reranker")(train_reranker.train_reranker_command)
app.command("calibrate")(offline.calibrate_command)
app.command("replay")(offline.replay_command)
app.command("certify")(certify.certify_command)
app.command("compare-gates")(compare_gates.compare_gates_command)
app.command("show")(certify.show_command)
app.command("report")(report.report_command)
app.command("diagnose")(diagnose.diagnose_command)
app.command("stream")(stream.stream_command)
app.command("prices")(money.prices_command)
app.command("costs")(money.costs_command)
app.command("selectors")(selectors.selectors_command)
app.command("search")(search.search_command)
app.command("states")(states.states_command)
app.command("signals")(inspect.signals)
app.command("doctor")(inspect.doctor)
app.command("import")(importing.import_command)
add_commands(app, {"demo": demo.app})


def run(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; the entry point of the `suffice` script."""
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    logging.getLogger("suffice").addHandler(_NOTES)
    if threading.current_thread() is threading.main_thread():
        # A background job of a shell inherits Ctrl-C as ignored; a recording must end by it all the same.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _note
            code = app(args=given, prog_name="suffice", standalone_mode=True)
    except SystemExit as left:
        if left.code == _INTERRUPTED:  # typer takes Ctrl-C for itself
            _tell(_KEPT, debug=False)
        raise
    except SufficeError as error:
        _tell(f"error: {error}", debug)
        code = 2 if isinstance(error, RuleSyntaxError) else 1
    except OSError as error:  # a full disk, a missing permission, a folder where a file should be
        _tell(f"error: {error}", debug)
        code = 1
    except KeyboardInterrupt:
        _tell(_KEPT, debug)
        code = _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last resort: no traceback for users
        _tell(f"internal error: {type(error).__name__}: {error} (run with --debug for the traceback)", debug)
        code = 1
    sys.exit(code)


def _note(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning as the other notes are printed, without the line of code that it comes from."""
    del category, filename, lineno, file, line
    errors.print(f"note: {message}", markup=False, soft_wrap=True)


def _tell(message: str, debug: bool) -> None:
    if debug:
        errors.print(traceback.format_exc(), markup=False, soft_wrap=True)
    errors.print(message, markup=False, soft_wrap=True)


if __name__ == "__main__":
    run()
