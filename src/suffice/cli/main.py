"""The command line: parse, call, print.

Exit codes: 0 done, 1 failed (the message says what and what to do), 2 wrong usage, 130 interrupted; `watch --exit-code`
also returns 3 and 4.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import traceback
import warnings
from typing import Annotated, Any, TextIO

import typer

from suffice._version import __version__
from suffice.cli.console import current_sink, warn
from suffice.cli.extensions import EXTENSIONS, load_extensions
from suffice.cli.tree import Group
from suffice.common.provided import DISTRIBUTIONS, installed
from suffice.errors import BusyError, NotFoundError, RuleSyntaxError, SufficeError, UnknownSignalError, UnsettledError

_UsageError: Any = typer.BadParameter.__base__  # typer's name for this class differs between versions
_INTERRUPTED = 130
_WRONG_USAGE = (RuleSyntaxError, UnknownSignalError, NotFoundError, UnsettledError)
_INTERRUPTED_TEXT = "interrupted; what was recorded is kept, and the same command goes on from there"

_UNANSWERED = "error: the question was not answered, so nothing was done; --help lists the options that answer it, such as --yes of import"


class _Notes(logging.Handler):
    """A handler that prints the library's log messages as notes on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one log message."""
        warn(f"note: {record.getMessage()}")


_EPILOG = "Options: --version, --debug, --extension FILE. Example: suffice demo"

_LOG_NOTES = _Notes(logging.WARNING)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"suffice {__version__}")
        raise typer.Exit


def common(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    extension: Annotated[
        list[str] | None,
        typer.Option(
            "--extension",
            metavar="FILE.py|MODULE",
            envvar="SUFFICE_EXTENSIONS",
            help="Import this first: it registers rules, metrics and the like; may be repeated.",
        ),
    ] = None,
) -> None:
    """Decide whether to retrieve, when to stop, and which round's answer to return.
    Exit: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
    """  # noqa: D205 - one paragraph: the help has 40 lines
    del debug, version  # `run` reads them from the arguments, because it needs them even if parsing fails
    if extension or installed(EXTENSIONS):
        load_extensions(extension or ())


def _root() -> Any:
    root = typer.Typer(cls=Group, rich_markup_mode="rich", pretty_exceptions_enable=False, no_args_is_help=True)
    root.callback(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EPILOG)(common)
    return typer.main.get_command(root)


app = _root()


def _show_notes() -> None:
    """Print log messages of the main package and its satellites on standard error."""
    for package in ("suffice", *(name.replace("-", "_") for name in DISTRIBUTIONS)):
        logging.getLogger(package).addHandler(_LOG_NOTES)


def run(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; the entry point of the `suffice` script."""
    words = _program_words() if arguments is None else arguments
    debug = "--debug" in words
    _show_notes()
    if threading.current_thread() is threading.main_thread():
        # A background job of a shell starts with Ctrl-C ignored, but Ctrl-C must be able to end a recording.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _note
            code = app.main(args=words, prog_name="suffice", standalone_mode=False) or 0
        if code == _INTERRUPTED:  # typer handles Ctrl-C itself
            _complain(_INTERRUPTED_TEXT, debug=False)
    except _UsageError as error:
        code = error.exit_code
        if error.format_message():  # empty if the help was printed instead
            where = "suffice" if error.ctx is None else error.ctx.command_path
            said = error.format_message()
            said += " `suffice import LOG` writes one." if "Missing argument 'RECORDING'" in said else ""
            _complain(f"error: {said}\n`{where} --help` lists what it takes", debug)
    except SufficeError as error:
        _complain(f"error: {_with_commands(error, words) if isinstance(error, UnsettledError) else error}", debug)
        missing = isinstance(error.__context__, FileNotFoundError)
        code = 2 if missing or isinstance(error, _WRONG_USAGE) else 1
    except OSError as error:  # a full disk, a missing permission, a folder instead of a file
        _complain(f"error: {error}", debug)
        code = 1
    except MemoryError:
        _complain(
            "error: this takes more memory than there is. Take fewer questions: a part of the file, or of the recording "
            "(Recording.select); `suffice replay` and `suffice search` read a large recording block by block",
            debug,
        )
        code = 1
    except (KeyboardInterrupt, typer.Abort) as error:  # typer raises Abort at a question: the input ended, or Ctrl-C
        said, code = (_UNANSWERED, 2) if isinstance(error.__context__, EOFError) else (_INTERRUPTED_TEXT, _INTERRUPTED)
        _complain(said, debug)
    except Exception as error:  # noqa: BLE001 - the last resort: no traceback for users
        _complain(f"internal error: {type(error).__name__}: {error} (run with --debug for the traceback)", debug)
        code = 1
    sys.exit(code)


def _with_commands(error: UnsettledError, words: list[str]) -> str:
    """Return the text of an error that the user settles, with the commands to choose from."""
    from suffice.cli.printed import with_commands

    return with_commands(error, words)


def _program_words() -> list[str]:
    """Return the arguments of this program's own command line.

    Also keep the processes that this program starts from importing modules of the current folder.
    """
    from suffice.common.processes import keep_folder_out

    keep_folder_out()
    return sys.argv[1:]


def _note(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning like other notes, without its line of code."""
    del category, filename, lineno, file, line
    warn(f"note: {message}")


def _complain(message: str, debug: bool) -> None:
    sink = current_sink()
    if sink is not None:
        sink.error, sink.is_busy = message, isinstance(sys.exception(), BusyError)
    if debug:
        warn(traceback.format_exc())
    warn(message)


if __name__ == "__main__":
    run()
