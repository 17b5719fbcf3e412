"""Ask a separate parser process for an expression's key, since parsing may hang, crash or exhaust memory.

A model may write ``9^{9^{9^9}}``: a parser that evaluates it never returns, and no signal interrupts it.  So the parser
runs in its own process, with limited processor time for each text, and is restarted after it was stopped.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import logging
import os
import re
import threading
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING

from suffice.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    import subprocess

_log = logging.getLogger(__name__)

_LONGEST_TEXT = 1000
"""Most characters of an expression; of a longer text only the content of its last box is read."""

_SECONDS = 5.0
"""Processor seconds allowed for one text: a hundred times what a usual answer takes."""

_WALL_FACTOR = 24
"""Factor from processor seconds to seconds of the clock, after which a process that did not stop itself is ended."""

_BOX = "\\boxed"
_LATEX = re.compile(r"\\[A-Za-z]+|\$[^$\s](?:[^$]*[^$\s])?\$|[\^_]\{")


def looks_mathematical(text: str) -> bool:
    r"""Return True if a text contains LaTeX: a command, text between dollar signs, or an exponent in braces.

    >>> looks_mathematical("\\frac{1}{2}"), looks_mathematical("$x$"), looks_mathematical("from $5 to $9")
    (True, True, False)
    """
    return _LATEX.search(text) is not None


def is_available() -> bool:
    """Return True if the parser is installed."""
    return importlib.util.find_spec("math_verify") is not None


@lru_cache(maxsize=1 << 16)
def expression_key(text: str) -> str | None:
    r"""Return a key that expressions with the same meaning share; None for a text that is not an expression.

    The key depends only on the text, so equality is transitive and does not depend on other answers or their order. The
    key of a number (fraction, root or decimal) is its value; decimals are exact.  The key of an expression with
    variables consists of its values at fixed points. The key of a set, interval, point or matrix consists of the keys
    of its parts. ``x = 5`` has the key of 5. Units and percent signs are ignored. A word such as ``\text{even}`` is its
    own key.

    Args:
        text: The answer, possibly between dollar signs, in a box, or inside a sentence.

    Raises:
        MissingExtraError: The parser is not installed.
    """
    if not is_available():
        raise MissingExtraError("comparing mathematical expressions (math-verify)", "math")
    if len(text) > _LONGEST_TEXT:
        box = text.rfind(_BOX)
        text = text[box : box + _LONGEST_TEXT] if box >= 0 else ""
    return _PARSER.key(text) if text.strip() else None


class _Parser:
    """The parser process: it is started at the first request, and restarted after a stop or after a fork of this process."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def key(self, text: str) -> str | None:
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            timer = threading.Timer(_WALL_FACTOR * self._seconds, process.kill)
            timer.start()
            try:
                reply = _asked(process.stdin, process.stdout, text)
            finally:
                timer.cancel()
            if reply is not None:
                return reply["key"]
            self.stop()
        _log.warning(
            "an expression took too much time or memory, so it counts as one that cannot be read, without a vote: %.80r",
            text,
        )
        return None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is not None and self._owner == os.getpid() and self._process.poll() is None:
            return self._process
        import subprocess

        from suffice.common.processes import start_python

        self._process = start_python(  # started by its path, so that it does not import this package
            str(Path(__file__).with_name("parser.py")),
            str(self._seconds),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        self._owner = os.getpid()
        if _asked(self._process.stdin, self._process.stdout, "1") != {"key": "1"}:
            self.stop()
            raise DataError(
                "the parser of mathematical expressions does not start: run  python -c 'import math_verify'  to see why"
            )
        return self._process

    def stop(self) -> None:
        """End the process and close its pipes."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # a request may not have been sent completely
                    pipe.close()
        process.wait()


def _asked(requests: IO[str] | None, replies: IO[str] | None, text: str) -> dict[str, str | None] | None:
    """Send a text to the parser, and return the reply; None if the process ended."""
    assert requests is not None
    assert replies is not None
    try:
        requests.write(json.dumps(text) + "\n")
        requests.flush()
        line = replies.readline()
        return dict(json.loads(line)) if line else None
    except (OSError, ValueError):
        return None


_PARSER = _Parser()
atexit.register(_PARSER.stop)
