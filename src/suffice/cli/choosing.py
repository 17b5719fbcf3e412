"""Ask the user on a terminal to choose among several readings of a log."""

from __future__ import annotations

from typing import Any

import typer

from suffice.cli.console import warn
from suffice.errors import UnsettledError


class Choices:
    """Asks the user to choose among readings, and remembers the options of the chosen readings."""

    def __init__(self) -> None:
        self._chosen: list[str] = []

    def __call__(self, error: UnsettledError) -> Any:
        """Return the reading that the user chooses.

        Raises:
            UnsettledError: The user ends the input; the commands in the error include the options that were already chosen.
        """
        if error.earlier[0]:
            warn(
                f"The same log was imported before with the choices in {error.earlier[0]}; these options answer all questions: {error.earlier[1]}"
            )
        choices = list(error.choices.items())
        lines = (f"  {place}. {option}: {meaning}" for place, (option, (_, meaning)) in enumerate(choices, start=1))
        warn("\n".join([error.question, *lines]))
        try:
            while not 1 <= (chosen := int(typer.prompt("Choose", type=int, err=True))) <= len(choices):
                pass
        except typer.Abort as left:
            if not isinstance(left.__context__, EOFError):
                raise
            warn("")  # the cursor is still on the line of the question
            raise UnsettledError(
                f"nothing was chosen: {error.question}",
                error.parameter,
                {" ".join([*self._chosen, option]): own for option, own in choices},
            ) from None
        self._chosen.append(choices[chosen - 1][0])
        return choices[chosen - 1][1][0]
