"""Parameters of commands: groups of options, which are dataclasses, and paths of recordings, which may be URLs."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Collection, Iterator
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NewType, get_args, get_origin, get_type_hints

from typer import BadParameter

from suffice.cli.parameters import HANDED_ON, SET, SetOption, Setting, SettingParameter
from suffice.common.files import place

RecordingPath = NewType("RecordingPath", Path)
"""The path of a recording, a file or folder on this machine or at a URL; other paths cannot be URLs."""

APPROVED = ("base-url", "api-key-env")
"""Ends of the names of settings that need an approval, which the process that hands them on has checked."""

_URL_AS_PATH = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/(?=[^/\\])")
"""The form of a URL that was parsed as a local path, which drops one of its slashes."""


def expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace the groups among a command's parameters by an option for each of their fields.

    A parameter whose type is a dataclass is a group; its attribute `panel` names the panel of its options in the help.
    A `RecordingPath` is parsed as text, because parsing it as a path would damage a URL.
    """
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    listed: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in groups:
            listed += _options(groups[name])
        else:
            listed.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
    recordings = {parameter.name for parameter in listed if RecordingPath in _leaves(parameter.annotation)}
    listed = [
        parameter.replace(annotation=_as_text(parameter.annotation)) if parameter.name in recordings else parameter
        for parameter in listed
    ]
    if any(_setting(parameter.annotation) for parameter in listed):
        listed.append(inspect.Parameter(SET, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=SetOption))

    @wraps(function)
    def command(**values: Any) -> Any:
        values.pop(SET, None)
        for name, value in values.items():
            convert = place if name in recordings else _of_this_machine
            if value is not None:
                values[name] = [convert(one) for one in value] if isinstance(value, list) else convert(value)
        values_of = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        return function(**values, **values_of)

    command.__dict__["__signature__"] = inspect.Signature(listed)
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in listed}
    return command


def settings_of(function: Callable[..., Any]) -> dict[str, Setting]:
    """Return the parameters of an `expanded` function that are settings."""
    parameters = inspect.signature(function).parameters.values()
    found = {parameter.name: _setting(parameter.annotation) for parameter in parameters}
    return {name: setting for name, setting in found.items() if setting is not None}


def _setting(hint: Any) -> Setting | None:
    declared = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((one for one in declared if isinstance(one, Setting)), None)


def _leaves(hint: Any) -> set[Any]:
    """Return the types that a type hint contains."""
    inner = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
    return {leaf for part in inner for leaf in _leaves(part)} if inner else {hint}


def _as_text(hint: Any) -> Any:
    """Replace `RecordingPath` by text in a type hint."""
    kind, option = get_args(hint)
    option = copy(option)
    option.metavar = option.metavar or "PATH"
    texts: Any = list[str] if list in {get_origin(one) for one in (kind, *get_args(kind))} else str
    return Annotated[texts | None if type(None) in get_args(kind) else texts, option]


def _of_this_machine(value: Any) -> Any:
    """Return a value unchanged; raise if it is a URL that was parsed as a local path."""
    if isinstance(value, Path) and _URL_AS_PATH.match(str(value)):
        raise BadParameter(f"{str(value)!r} is a URL, and only a recording may be at one: give a path of this machine")
    return value


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
    """Return the running command as text, including values from `suffice.toml`.

    Paths of files are shortened to the files' names unless `folders`.
    """
    words = context.command_path.split()
    for option, value in _values(context, left_out, hands_on=False):
        is_file = not folders and value is not None and Path(value).is_file()
        words += option if value is None else [*option, Path(value).name if is_file else value]
    return shlex.join(words)


def command_words(context: Any, *left_out: str) -> list[str]:
    """Return the arguments that let another process run the same command, without the program's name.

    They include values from `suffice.toml` and environment variables.
    """
    words: list[str] = []
    for level in (context.find_root(), context):
        words += level.command_path.split()[1:] if level is context else []
        for option, value in _values(level, left_out, hands_on=True):
            words += option if value is None else [*option, value]
    return words


def _values(context: Any, left_out: Collection[str], *, hands_on: bool) -> Iterator[tuple[list[str], str | None]]:
    """Yield the given options and settings of a command, each with its value; the value is None for an option without one.

    Args:
        context: The command.
        left_out: Parameters to leave out.
        hands_on: True if the values are handed to a new process. Then values from the environment are included, and
            settings from the file are marked.
    """
    sources = {"COMMANDLINE", "DEFAULT_MAP", *(["ENVIRONMENT"] if hands_on else [])}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name)
        if source is None or source.name not in sources or parameter.name in {*left_out, SET}:
            continue
        value = context.params[parameter.name]
        values = value if isinstance(value, (list, tuple)) else [value]
        if isinstance(parameter, SettingParameter):
            name = parameter.setting.name
            is_default = hands_on and source.name == "DEFAULT_MAP" and not name.endswith(APPROVED)
            for one in values:
                text = str(one).lower() if isinstance(one, bool) else str(one)
                yield ["--set"], f"{name}{HANDED_ON * is_default}={text}"
            continue
        option = [] if parameter.param_type_name == "argument" else [parameter.opts[0]]
        for one in values:
            if isinstance(one, bool):
                yield (option if one else [parameter.secondary_opts[0]]), None
            else:
                yield option, str(one)
