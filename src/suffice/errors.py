"""Every error of Suffice, as one tree; each class is also the matching builtin error.

::

    SufficeError
    ├── DataError (ValueError)               the data cannot be read or used
    │   ├── BusyError                        another process is writing the file
    │   ├── NotFoundError                    no file or known object has this name
    │   ├── SchemaError                      the file has another kind or version
    │   ├── ConfigMismatchError              two configurations would be mixed
    │   ├── UnsettledError                   the data can be read in several ways
    │   └── CensoredError                    the rounds never ran, because a rule stopped earlier
    ├── UnknownSignalError (LookupError)     there is no such column or signal
    ├── RuleSyntaxError (ValueError)         the text is not a rule
    ├── NotFittedError (ValueError)          fitted state is missing
    ├── MissingExtraError (ImportError)      an optional dependency is missing
    ├── UnansweredError (RuntimeError)       a run ended without an output of its type
    ├── WorkerDiedError (RuntimeError)       a process that worked on a part was killed
    └── ModelError (RuntimeError)            a model or its endpoint failed
        ├── LogprobsUnavailableError         the endpoint gives no log-probabilities
        ├── AuthenticationFailedError        the endpoint refused the credentials
        ├── PendingReplyError                the reply will arrive later, with a batch
        └── ModelTimeoutError (TimeoutError) the endpoint did not answer in time

A message says what happened, the value, what is allowed, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint for the end of a message, with the known name that is closest to `name`; empty if none is close.

    >>> did_you_mean("answer_stabel", ["overlap", "answer_stable"])
    " Did you mean 'answer_stable'?"
    """
    from difflib import get_close_matches

    near = get_close_matches(name, sorted(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


class SufficeError(Exception):
    """Base of every error that Suffice raises on purpose."""


class DataError(SufficeError, ValueError):
    """Data that cannot be read or used."""


class BusyError(DataError):
    """Another process is using the file; once that process has ended, the same call succeeds."""


class NotFoundError(DataError):
    """No file, and no known or recorded object, has this name."""


class SchemaError(DataError):
    """A file is of another kind, or of a version that this release cannot read."""


class ConfigMismatchError(DataError):
    """Two configurations would be mixed in one recording, or a policy meets data it was not made for."""


class UnsettledError(DataError):
    """Data can be read in several ways, and only their owner knows which is right.

    Args:
        message: The ambiguity, in words.
        parameter: The parameter of the reader that settles the ambiguity.
        choices: For each option of the command line, the parameter's value and its meaning.
        confirmed: The option that the data themselves confirm; "" if only their owner knows.

    Attributes:
        then: Another ambiguity that remains whatever is chosen here, so that both can be settled together; None if there is no
            other, or if it is unknown.
        earlier: A file from an earlier reading of the same data that stores the options of that reading, and these options as
            typed; ("", "") if there was no earlier reading or the data have changed since.
    """

    def __init__(
        self, message: str, parameter: str, choices: Mapping[str, tuple[Any, str]], confirmed: str = ""
    ) -> None:
        options = "; or ".join(f"{option} ({meaning})" for option, (_, meaning) in choices.items())
        super().__init__(
            f"{message.rstrip('.')}{'' if message.endswith('?') else '.'} Say which ({parameter}): {options}."
        )
        self.question = message
        self.parameter = parameter
        self.choices = choices
        self.confirmed = confirmed
        self.then: UnsettledError | None = None
        self.earlier = ("", "")


class CensoredError(DataError):
    """The request concerns rounds that were never run, because a rule ended the recording early."""


class UnknownSignalError(SufficeError, LookupError):
    """A rule or a selector reads a signal that does not exist."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class RuleSyntaxError(SufficeError, ValueError):
    """The text of a rule does not parse.

    Args:
        message: The error, in words.
        span: Start and end (exclusive) of the wrong part of the text; None = unknown, or the whole text.
    """

    def __init__(self, message: str, span: tuple[int, int] | None = None) -> None:
        super().__init__(message)
        self.span = span


class NotFittedError(SufficeError, ValueError):
    """A signal, calibrator or policy needs fitted state that it does not have."""


_PINNED = {"suffice-papers": ("suffice-reader", "suffice-retrieval", "suffice-gates")}
"""The other packages that a package needs: no index has them, so pip gets the paths of all."""


def paths_in_checkout(distribution: str, extra: str = "") -> str:
    """Return the arguments of `pip install` to install a package and the packages it needs from a checkout.

    >>> paths_in_checkout("suffice-gates", "[torch]")
    ". './packages/suffice-gates[torch]'"
    """
    return " ".join(
        [".", *(f"./packages/{name}" for name in _PINNED.get(distribution, ())), f"'./packages/{distribution}{extra}'"]
    )


class MissingExtraError(SufficeError, ImportError):
    """An optional dependency is not installed.

    Args:
        feature: The feature that needs the dependency.
        extra: The extra that installs it; empty if a whole distribution is missing.
        distribution: The distribution that the extra belongs to.
    """

    def __init__(self, feature: str, extra: str = "", distribution: str = "suffice") -> None:
        extra_text = f"[{extra}]" if extra else ""
        if distribution == "suffice":  # no package index has these names, so all are installed from one checkout
            what, needed = "needs an optional dependency", f"'.{extra_text}'"
        else:
            what = f"needs an optional dependency of {distribution}" if extra else f"is in {distribution}"
            needed = paths_in_checkout(distribution, extra_text)
        super().__init__(f"{feature} {what}: from a checkout, run  pip install {needed}")
        self.feature = feature
        self.extra = extra
        self.distribution = distribution

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild the error in another process with the same message."""
        state = {**self.__dict__, "args": self.args, "msg": self.msg}
        return type(self), (self.feature, self.extra, self.distribution), state


class UnansweredError(SufficeError, RuntimeError):
    """A framework's run ended without a reply of the required output type.

    Attributes:
        decision: The decision with its reason, as a framework's final message has it.
        rounds: The rounds of the run, each with the text of its reply and its costs.
    """

    def __init__(self, message: str, decision: Mapping[str, Any], rounds: Sequence[Any]) -> None:
        super().__init__(message)
        self.decision, self.rounds = decision, tuple(rounds)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.decision, self.rounds)


class WorkerDiedError(SufficeError, RuntimeError):
    """A process that worked on a part was killed, or could not start."""


class ModelError(SufficeError, RuntimeError):
    """A model or its endpoint failed; `retryable` says whether the same call may succeed later."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class LogprobsUnavailableError(ModelError):
    """The endpoint gives no log-probabilities, and the policy cannot run without them."""


class AuthenticationFailedError(ModelError):
    """The endpoint refused the credentials (401 or 403)."""


class PendingReplyError(ModelError):
    """The request was written into a batch, and the reply will arrive with the results of the batch."""


class ModelTimeoutError(ModelError, TimeoutError):
    """The endpoint did not answer in time."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True)
