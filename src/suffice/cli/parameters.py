"""Options and settings: the two kinds of parameters of a command.

An option is typed; a setting is declared once, in a table of `suffice.toml`, or given once by `--set NAME=VALUE`.  Both are
declared alike, a setting by `Setting` in the place of typer's `Option`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from itertools import pairwise
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer import BadParameter
from typer.core import TyperOption
from typer.models import OptionInfo

from suffice.cli.console import warn
from suffice.cli.settings import FILE, KEYS, TABLES, read_settings, secrets_advice
from suffice.common.files import quoted
from suffice.errors import SchemaError, did_you_mean
from suffice.loops.clusters.sink import current_sink

_ENDPOINT = ("base-url", "model", "api-key-env")
"""Keys that belong together: where one is given on the command line, the file's are left alone."""

SET = "set_values"
"""The parameter of `--set`."""

_DROPPED: Mapping[tuple[str, str], str] = {
    ("replay", "stream"): "replay reads a large recording in blocks by itself",
}
"""Why an option of a command went without a replacement."""

_FORMER_NAMES = {"rerank": "rerank-signal"}
"""Names of former options of settings that differ from the settings' names."""

HANDED_ON = "?"
"""The end of a name after `--set` whose value a command took from `suffice.toml` and hands on to another process.

There it counts as one of the file, too, so that a command which has no use for it leaves it alone.
"""

_from_file: ContextVar[frozenset[str]] = ContextVar("_from_file", default=frozenset())
"""Parameters of the running command whose values come from the file."""


class Setting(OptionInfo):
    """Declare a parameter as a setting: a value of a table of `suffice.toml`, or of `--set`, and no option of its own."""

    def __init__(self, table: str, name: str, *, off: str = "", **more: Any) -> None:
        """Declare a setting.

        Args:
            table: Its table in the file.
            name: Its name there and after `--set`.
            off: The name of the former option that switched it off, if that was not no-NAME.
            **more: As of typer's `Option`: `help`, `min`, `max`, `parser`, `metavar`.
        """
        super().__init__(default=..., param_decls=(f"--{name}",), **more)
        self.table, self.name, self.off = table, name, f"--{off or f'no-{name}'}"


SetOption = Annotated[
    list[str] | None,
    OptionInfo(
        default=...,
        param_decls=("--set",),
        metavar="NAME=VALUE",
        help="A setting of this command, listed below, which wins over suffice.toml; may be repeated.",
        rich_help_panel="Settings",
    ),
]
"""The option that gives settings on the command line."""


class SettingParameter(TyperOption):
    """The parameter of a setting: it has no option, and its value comes from `--set`, the file or its default."""

    setting: Setting

    @classmethod
    def of(cls, option: Any, setting: Setting) -> None:
        """Make the option that typer built for a setting the parameter of the setting."""
        option.__class__ = cls  # typer does not let its caller choose the class
        option.setting, option.opts, option.secondary_opts = setting, [setting.name], []
        option.is_flag = option.is_bool_flag = False
        option.rich_help_panel = f"Settings, \\[{setting.table}] in {FILE}"

    def add_to_parser(self, parser: Any, ctx: Any) -> None:
        """Add nothing: the parser knows `--set` alone."""

    def consume_value(self, ctx: Any, opts: Mapping[str, Any]) -> Any:
        """Return the value and its source."""
        pairs = [text.partition("=") for text in opts.get(SET) or ()]
        name = self.setting.name
        handed_on = [value for key, equals, value in pairs if equals and key == name + HANDED_ON]
        if handed_on:
            value = handed_on if self.multiple else handed_on[-1]
            ctx.default_map = {**(ctx.default_map or {}), str(self.name): value}
        values = [value for key, equals, value in pairs if equals and key == name]
        given: dict[str, Any] = {self.name: values if self.multiple else values[-1]} if values else {}
        return super().consume_value(ctx, {**opts, **given})

    def process_value(self, ctx: Any, value: Any) -> Any:
        """Return the value as its type; an error names the place where the value was given."""
        is_of_file = is_from_file(ctx, str(self.name))
        if is_of_file and isinstance(value, bool) and not isinstance(self.default, bool):
            value = str(value).lower()  # a number or text is expected, and true would pass for 1
        try:
            return super().process_value(ctx, value)
        except BadParameter as error:
            error.param_hint = self.place(ctx)
            raise

    def place(self, ctx: Any) -> str:
        """Return where the value was given, as a message names it."""
        name = self.setting.name
        is_of_file = is_from_file(ctx, str(self.name))
        return f"{name} under [{self.setting.table}] in {FILE}" if is_of_file else f"--set {name}"


def settings_in(parameters: Sequence[Any]) -> dict[str, SettingParameter]:
    """Return the settings among the parameters of a command, by name."""
    return {one.setting.name: one for one in parameters if isinstance(one, SettingParameter)}


def name_place(context: Any, error: BadParameter) -> None:
    """Let an error of a running command about the value of a setting name the place where it was given."""
    parameter = settings_in(context.command.params).get(str(error.param_hint))
    if parameter is not None:
        error.param_hint = parameter.place(context)


def check_set(context: Any) -> None:
    """Refuse values of `--set` that are of no setting of a command, and several of a setting that takes one."""
    known = settings_in(context.command.params)
    seen: set[str] = set()
    for text in context.params.get(SET) or ():
        name, equals, _ = text.partition("=")
        name = name.removesuffix(HANDED_ON)
        if name not in known:
            option = f"--{name.removeprefix('--')}"
            is_option = any(option in one.opts for one in context.command.params)
            advice = f" It is an option: {option}." if is_option else f"{did_you_mean(name, known)}"
            context.fail(f"--set {text!r}: there is no setting {name!r}.{advice} Settings here: {', '.join(known)}")
        if not equals:
            context.fail(f"--set {text!r}: write --set {name}=VALUE")
        key = text.partition("=")[0]
        if key in seen and not known[name].multiple:
            context.fail(f"--set {name} is given more than once, and it takes one value")
        seen.add(key)


def replacement(command: Any, option: str, arguments: Sequence[str]) -> str:
    """Say what to give instead of a former option; empty if it was none, or not of this command.

    Args:
        command: The command.
        option: The unknown option.
        arguments: All arguments, from which the value is taken.
    """
    typed = option.removeprefix("--")
    if reason := _DROPPED.get((command.name, typed)):
        return f"{option} is no option any more: {reason}; leave it out"
    today = _FORMER_NAMES.get(typed, typed)
    for name, parameter in settings_in(command.params).items():
        is_switch = isinstance(parameter.default, bool)
        if today == name or (is_switch and option == parameter.setting.off):
            after = dict(pairwise(arguments)).get(option, "VALUE")
            after = next((word.partition("=")[2] for word in arguments if word.startswith(f"{option}=")), after)
            after = "VALUE" if after.startswith("-") and not _is_toml(after) else after  # the next option
            value = ("true" if today == name else "false") if is_switch else after
            shown = value if _is_toml(value) else json.dumps(value, ensure_ascii=False)
            return (
                f"{option} is a setting now: --set {quoted(f'{name}={value}')}, or {name} = {shown} under "
                f"[{parameter.setting.table}] in {FILE}"
            )
    return ""


def _is_toml(value: str) -> bool:
    """Return whether a text is a value in TOML as it is: a number, or true or false."""
    return re.fullmatch(r"true|false|[+-]?\d+(\.\d+)?", value) is not None


def given_fields(group: Any) -> dict[str, str]:
    """Return the fields of a group of options that the user gave on the command line, with what the user knows them by.

    Values of `suffice.toml` are defaults: a command that cannot use one leaves it alone instead of refusing it.
    """
    return {
        item.name: name
        for item, name in _named_fields(group)
        if getattr(group, item.name) != item.default and not from_file(item.name)
    }


def from_file(parameter: str) -> bool:
    """Return whether the value of a parameter of the running command comes from `suffice.toml`."""
    return parameter in _from_file.get()


def _named_fields(group: Any) -> Iterator[tuple[Any, str]]:
    hints = get_type_hints(type(group), include_extras=True)
    for item in fields(group):
        declared = get_args(hints[item.name])[1:] if get_origin(hints[item.name]) is Annotated else ()
        names = [one.name for one in declared if isinstance(one, Setting)]
        yield item, names[0] if names else f"--{item.name.replace('_', '-')}"


@contextmanager
def taking_from_file(context: Any) -> Iterator[None]:
    """Let groups of options know, while a command runs, which of its values come from the file."""
    names = frozenset(one.name for one in context.command.params if is_from_file(context, one.name))
    token = _from_file.set(names)
    try:
        yield
    finally:
        _from_file.reset(token)


def defaults_of(
    command: Any, arguments: Sequence[str], file: Mapping[str, Any], every_setting: Callable[[], Mapping[str, set[str]]]
) -> dict[str, Any]:
    """Return what parameters of a command are where its arguments do not give them, by the names of the parameters.

    Args:
        command: The command; an option has the name of its key, an argument is called so.
        arguments: What the user gave it.
        file: What the file says.
        every_setting: Returns the settings of all commands by table.  It imports them, and is called when the file says
            something that this command does not take.

    Raises:
        SchemaError: The file has a table or a setting that no command takes.
    """
    given = {word.removeprefix("--").partition("=")[0] for word in arguments if word.startswith("--")}
    parameters = {_key_of(one): one.name for one in command.params if not isinstance(one, SettingParameter)}
    left_out = set(_ENDPOINT) if given & set(_ENDPOINT) or "base-url" not in parameters else set()
    if "model" in given:  # without an endpoint it says what tokens cost
        left_out.add("prices")
    defaults = {
        parameters[key]: value
        for key, value in file.items()
        if key in parameters
        and key not in left_out
        and not isinstance(value, dict)  # a table may be called like an option
    }
    own = settings_in(command.params)
    tables = {one.setting.table for one in own.values()}
    for table, values in file.items():
        if not isinstance(values, dict) or (table not in tables and table in TABLES):
            continue  # a table of other commands is checked when one of them runs
        if not values and table not in TABLES:
            _check_known(table, "", every_setting(), own)
        for name, value in values.items():
            if name in own and own[name].setting.table == table:
                defaults[str(own[name].name)] = _as_parameter(own[name], value)
            else:
                _check_known(table, name, every_setting(), own)
    return defaults


def _as_parameter(parameter: SettingParameter, value: Any) -> Any:
    """Convert a value of TOML to what the parameter of a setting takes."""
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    if isinstance(value, list) and not parameter.multiple:
        return ",".join(map(str, value))
    return value


def _check_known(table: str, name: str, known: Mapping[str, set[str]], own: Mapping[str, SettingParameter]) -> None:
    """Refuse a setting that no command takes from a table, or a table that no command has.

    Args:
        table: The table.
        name: The setting's name; empty if the table is empty.
        known: The settings of all commands, by table.
        own: The settings of the running command.
    """
    if name in known.get(table, ()) or (table in known and not name):
        return
    near = "" if table in known else did_you_mean(table, known)
    tables = [own[name].setting.table] if name in own else [other for other in known if name in known[other]]
    if tables and not near:
        places = " or ".join(f"[{other}]" for other in tables)
        raise SchemaError(f"{FILE}: {name} stands under {places}, not under [{table}]")
    if table not in known:
        raise SchemaError(f"{FILE}: there is no table [{table}].{near} Tables: {', '.join(known)}")
    if name in KEYS:
        raise SchemaError(f"{FILE}: {name} stands at the top of the file, above all tables, not under [{table}]")
    raise SchemaError(
        f"{FILE}: [{table}] says {name!r}, which no command takes.{secrets_advice(name)}{did_you_mean(name, known[table])} "
        f"It may say: {', '.join(sorted(known[table]))}"
    )


def _key_of(parameter: Any) -> str:
    """Return the key of an option, its first name, or of an argument, what help calls it."""
    name = parameter.metavar or parameter.name if parameter.param_type_name == "argument" else parameter.opts[0]
    return str(name).removeprefix("--").lower()


def is_from_file(context: Any, parameter: str) -> bool:
    """Return whether the value of a running command's parameter comes from the file."""
    return getattr(context.get_parameter_source(parameter), "name", "") == "DEFAULT_MAP"


def note_settings(context: Any) -> None:
    """Say on standard error which values of a command that is about to run come from the file."""
    parameters = [one for one in context.command.params if is_from_file(context, one.name)]
    if not parameters or current_sink() is not None:  # in a worker, the driver has said so
        return
    tables = [table for table in read_settings().values() if isinstance(table, dict)]
    times = Counter(name for table in tables for name in table)
    values = []
    for parameter in parameters:
        key = _key_of(parameter)
        if isinstance(parameter, SettingParameter) and times[key] > 1:
            key = f"[{parameter.setting.table}] {key}"
        values.append(f"{key} {_shown(context.params[parameter.name])}")
    warn(f"note: from {FILE}: {', '.join(values)}")


def _shown(value: Any) -> str:
    """Return the text of a value without what may be a secret: a URL's password and query, and the inside of JSON."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(_shown, value))
    text = str(value)
    if text.lstrip().startswith("{"):
        return "{...}"
    text = re.sub(r"://[^/@\s,]*(:[^@\s,]*)?@", "://...@", text)
    return re.sub(r"(://[^?\s,]*\?)[^\s,]*", r"\1...", text)
