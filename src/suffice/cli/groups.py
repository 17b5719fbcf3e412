"""Groups of options: a dataclass whose fields are options, and which a command takes as one parameter."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

__all__ = ["command_line", "expanded"]


def expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command's function with an option for each field of its groups, instead of the groups.

    A parameter whose type is a dataclass is a group; the class names the panel of its options in `panel`.
    """
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    listed: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in groups:
            listed += _options(groups[name])
        else:
            listed.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(function)
    def command(**values: Any) -> Any:
        values_of = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        return function(**values, **values_of)

    command.__dict__["__signature__"] = inspect.Signature(listed)
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in listed}
    return command


def _options(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        hint = hints[field.name]
        if get_origin(hint) is Annotated:
            kind, option = get_args(hint)
            option = copy(option)
            option.rich_help_panel = group.panel
            hint = Annotated[kind, option]
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def command_line(context: Any, *left_out: str, folders: bool = False) -> str:
    """Return the command that is running, as it was given."""
    words = context.command_path.split()
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name)
        if source is None or source.name != "COMMANDLINE" or parameter.name in left_out:
            continue
        value = context.params[parameter.name]
        for one in value if isinstance(value, (list, tuple)) else [value]:
            text = Path(one).name if not folders and Path(str(one)).is_file() else str(one)
            option = [] if parameter.param_type_name == "argument" else [parameter.opts[0]]
            words += option if one is True else [*option, text]
    return shlex.join(words)
