"""Commands from above: what other packages, and our own papers, add to the command line through entry points."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

import typer

__all__ = ["COMMANDS", "add_commands"]

COMMANDS = "suffice.commands"
"""The group of entry points.  A name is a place in the tree, `demo.gate` for `suffice demo gate`."""


def add_commands(app: typer.Typer, groups: Mapping[str, typer.Typer]) -> None:
    """Add every command, a function or an app of several, at the place that its entry point names.

    Args:
        app: The command line.
        groups: Its groups by name, to which commands can be added.
    """
    for entry in sorted(entry_points(group=COMMANDS), key=lambda entry: entry.name):
        group, _, name = entry.name.rpartition(".")
        command, parent = entry.load(), groups[group] if group else app
        if isinstance(command, typer.Typer):
            parent.add_typer(command, name=name)
        else:
            parent.command(name)(command)
