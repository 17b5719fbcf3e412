"""Options and settings: the two kinds of parameters that a command has.

An option is given on the command line.  A setting has no option of its own: it comes from a table of `suffice.toml`, or
from `--set NAME=VALUE`.  Both are declared as parameters, a setting with `Setting` instead of typer's `Option`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from itertools import pairwise
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer import BadParameter
from typer.core import TyperOption
from typer.models import OptionInfo

from suffice.cli.console import current_sink, warn
from suffice.cli.settings import FILE, KEYS, TABLES, read_settings, secrets_advice
from suffice.common.files import quoted
from suffice.errors import SchemaError, did_you_mean

_ENDPOINT = ("base-url", "model", "api-key-env")
"""Keys that belong together: where one is given on the command line, the file's are left alone."""

SET = "set_values"
"""The parameter of `--set`."""

URL = "base_url"
"""The parameter of the endpoint."""

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
    """The declaration of a parameter as a setting, whose value comes from `suffice.toml` or `--set`."""

    def __init__(self, table: str, name: str, *, off: str = "", **more: Any) -> None:
        """Declare a setting.

        Args:
            table: The setting's table in the file.
            name: The setting's name in the file and after `--set`.
            off: The name of the former option that switched the setting off, if its name was not ``--no-NAME``.
            **more: Arguments of typer's `Option`: `help`, `min`, `max`, `parser`, `metavar`.
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
    """A setting as a parameter of the parser; its value comes from `--set`, from the file, or is the default."""

    setting: Setting

    @classmethod
    def of(cls, option: Any, setting: Setting) -> None:
        """Convert the option that typer built for a setting into a setting's parameter."""
        option.__class__ = cls  # typer offers no way to choose the class
        option.setting, option.opts, option.secondary_opts = setting, [setting.name], []
        option.is_flag = option.is_bool_flag = False
        option.rich_help_panel = f"Settings, \\[{setting.table}] in {FILE}"

    def add_to_parser(self, parser: Any, ctx: Any) -> None:
        """Add no option to the parser, because a setting can only be given by `--set`."""

    def consume_value(self, ctx: Any, opts: Mapping[str, Any]) -> Any:
        """Return the setting's value and the source of the value."""
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
        """Convert the value to its type; an error names the place where the value was given."""
        is_of_file = is_from_file(ctx, str(self.name))
        if is_of_file and isinstance(value, bool) and not isinstance(self.default, bool):
            value = str(value).lower()  # a number or text is expected, but true would be accepted as 1
        try:
            return super().process_value(ctx, value)
        except BadParameter as error:
            error.param_hint = self.place(ctx)
            raise

    def place(self, ctx: Any) -> str:
        """Return the place where the value was given, for messages."""
        name = self.setting.name
        is_of_file = is_from_file(ctx, str(self.name))
        return f"{name} under [{self.setting.table}] in {FILE}" if is_of_file else f"--set {name}"


def settings_in(parameters: Sequence[Any]) -> dict[str, SettingParameter]:
    """Return the settings among a command's parameters, by name."""
    return {one.setting.name: one for one in parameters if isinstance(one, SettingParameter)}


def name_place(context: Any, error: BadParameter) -> None:
    """Name the place of a setting's value in an error about this setting."""
    parameter = settings_in(context.command.params).get(str(error.param_hint))
    if parameter is not None:
        error.param_hint = parameter.place(context)


def check_set(context: Any) -> None:
    """Raise for `--set` with an unknown setting, or with several values for a setting that takes one."""
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
    """Return advice on the setting or option that replaced a former option; "" if the command never had this option."""
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
    """Return True if a text is a valid TOML number or boolean."""
    return re.fullmatch(r"true|false|[+-]?\d+(\.\d+)?", value) is not None


def given_fields(group: Any) -> dict[str, str]:
    """Return the fields of a group that the user gave on the command line, each with its option's name.

    Values in `suffice.toml` are not included: they are defaults, and a command ignores defaults that it cannot use.
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
def taking_from_file(names: Iterable[str]) -> Iterator[None]:
    """While a command runs, remember the names of its parameters with values from the file; `from_file` looks them up."""
    token = _from_file.set(frozenset(names))
    try:
        yield
    finally:
        _from_file.reset(token)


def defaults_of(
    command: Any, arguments: Sequence[str], file: Mapping[str, Any], every_setting: Callable[[], Mapping[str, set[str]]]
) -> dict[str, Any]:
    """Return the default values of the parameters that the command line does not give, by name.

    Args:
        command: The command.
        arguments: The arguments on the command line.
        file: The content of the file.
        every_setting: Returns the settings of all commands by table.  It imports all commands, so it is called only if
            the file has a value that this command does not take.

    Raises:
        SchemaError: The file has a table or a setting that no command takes.
    """
    given = {word.removeprefix("--").partition("=")[0] for word in arguments if word.startswith("--")}
    parameters = {_key_of(one): one.name for one in command.params if not isinstance(one, SettingParameter)}
    left_out = set(_ENDPOINT) if given & set(_ENDPOINT) or "base-url" not in parameters else set()
    if "model" in given:  # without an endpoint, the model only determines the price of tokens
        left_out.add("prices")
    defaults = {
        parameters[key]: value
        for key, value in file.items()
        if key in parameters
        and key not in left_out
        and not isinstance(value, dict)  # a table may have the same name as an option
    }
    own = settings_in(command.params)
    tables = {one.setting.table for one in own.values()}
    for table, values in file.items():
        if not isinstance(values, dict) or (table not in tables and table in TABLES):
            continue  # a table of other commands is only checked when one of these commands runs
        if not values and table not in TABLES:
            _check_known(table, "", every_setting(), own)
        for name, value in values.items():
            if name in own and own[name].setting.table == table:
                defaults[str(own[name].name)] = _as_parameter(own[name], value)
            else:
                _check_known(table, name, every_setting(), own)
    return defaults


def _as_parameter(parameter: SettingParameter, value: Any) -> Any:
    """Convert a TOML value to a value for the parameter of a setting."""
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    if isinstance(value, list) and not parameter.multiple:
        return ",".join(map(str, value))
    return value


def _check_known(table: str, name: str, known: Mapping[str, set[str]], own: Mapping[str, SettingParameter]) -> None:
    """Raise if no command takes this setting from this table, or if no command has the table.

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
    """Return the key of a parameter: an option's first name, or an argument's name in the help."""
    name = parameter.metavar or parameter.name if parameter.param_type_name == "argument" else parameter.opts[0]
    return str(name).removeprefix("--").lower()


def is_from_file(context: Any, parameter: str) -> bool:
    """Return whether the value of a running command's parameter comes from the file."""
    return getattr(context.get_parameter_source(parameter), "name", "") == "DEFAULT_MAP"


def is_given(context: Any, parameter: str) -> bool:
    """Return whether the value of a running command's parameter comes from the command line."""
    return getattr(context.get_parameter_source(parameter), "name", "") == "COMMANDLINE"


def note_settings(context: Any, parameters: Sequence[Any]) -> None:
    """Print the values that a command takes from the file, before the command runs.

    If `--base-url` was given without `--model`, also print the model that is asked there. The output is standard error.

    Args:
        context: The command.
        parameters: The parameters with values from the file.
    """
    if current_sink() is not None:  # in a worker: the driver has already printed this
        return
    if is_given(context, URL) and not is_given(context, "model") and context.params.get("model"):
        own = read_settings().get("model")
        left = "" if own is None else f", since {_shown(own)} of {FILE} belongs to the endpoint there"
        warn(f"note: the model asked at --base-url is {context.params['model']}{left}; --model NAME asks another")
    if not parameters:
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
    """Return a value as text without parts that may be secret: a URL's password and query, and the content of JSON."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(_shown, value))
    text = str(value)
    if text.lstrip().startswith("{"):
        return "{...}"
    text = re.sub(r"://[^/@\s,]*(:[^@\s,]*)?@", "://...@", text)
    return re.sub(r"(://[^?\s,]*\?)[^\s,]*", r"\1...", text)
