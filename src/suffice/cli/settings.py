"""`suffice.toml`: values that commands take for options which are not given."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from suffice.cli.console import warn
from suffice.cli.extensions import is_in_file
from suffice.errors import DataError, NotFoundError, SchemaError, did_you_mean

FILE = Path("suffice.toml")
"""Looked for in the current folder, and nowhere else."""

KEYS: Mapping[str, str] = {
    "base-url": "An OpenAI-compatible endpoint, usually ending with /v1; several of one model are separated by commas.",
    "model": "The model's name there.",
    "api-key-env": "The environment variable that holds the API key, NAME_API_KEY; never the key itself.",
    "dataset": "Questions to record: a file, or a bundled set such as hotpotqa_tune.",
    "recording": "Recorded rounds, which `suffice import` or `suffice record` wrote.",
    "prices": "USD per million tokens: 'list', or a TOML or JSON file.",
    "max-loss": "The largest mean loss that you would accept; 0.02 is two points.",
}
"""What the file may say, with its meaning."""

SECRETS_STAY_OUT = " Keys are never written to files: name their environment variable in api-key-env."
"""What a message adds about an unknown key that may hold a secret."""

DEFAULT_KEY = "OPENAI_API_KEY"
"""The variable of the key of an endpoint, unless another is named."""

KEY_ENDING = "_API_KEY"
"""How the name of every variable ends that a file may name."""

_KEY_LENGTH = 20
_KEY_STARTS = ("sk_", "hf_", "gsk_", "AIza", "key_", "pk_", "nvapi", "xai_")

_ENDPOINT = ("base-url", "model", "api-key-env")
"""Keys that belong together: where one is given on the command line, the file's are left alone."""


def read_settings(path: Path = FILE) -> dict[str, Any]:
    """Return what the file says; nothing where there is none.

    Raises:
        SchemaError: It is not TOML, or says what no command takes.
        DataError: A value is of another kind.
        NotFoundError: It cannot be read.
    """
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SchemaError(f"{path} is not TOML: {error}") from None
    for key, value in data.items():
        if key not in KEYS:
            secret = SECRETS_STAY_OUT * ("key" in key or "token" in key)
            raise SchemaError(
                f"{path} says {key!r}, which no command takes.{secret}{did_you_mean(key, KEYS)} It may say: {', '.join(KEYS)}"
            )
        if not isinstance(value, str if key != "max-loss" else int | float) or isinstance(value, bool):
            raise DataError(f"{path}: {key} must be {'a number' if key == 'max-loss' else 'text'}, not {value!r}")
    if is_in_file(data.get("model", "")):
        raise DataError(
            f"{path}: model names code, {data['model']!r}, and the file may come from somebody else: give --model yourself"
        )
    if "api-key-env" in data:
        check_key_variable(data["api-key-env"], f"{path}: api-key-env")
        check_named_by_file(data["api-key-env"])
    return data


def check_named_by_file(name: str) -> None:
    """Refuse the name of a variable that a file may not give: the file may come from somebody else."""
    if not name.endswith(KEY_ENDING):
        raise DataError(
            f"{FILE}: api-key-env names {name!r}, and a file may name only variables that end in {KEY_ENDING}, which hold "
            "nothing else: rename the variable, or give --base-url, --model and --api-key-env yourself"
        )


def check_key_variable(name: str, where: str) -> None:
    """Refuse what may be a key in the place of the variable's name, and do not repeat it."""
    is_name = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name) is not None
    is_random = len(name) >= _KEY_LENGTH and any(c.isdigit() for c in name) and any(c.islower() for c in name)
    if not is_name or is_random or name.startswith(_KEY_STARTS):
        raise DataError(
            f"{where} takes the name of an environment variable, such as OPENAI_API_KEY, and what is given may be the key itself: "
            "export it, and give the name"
        )


def defaults_of(command: Any, arguments: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what parameters of a command are where its arguments do not give them, by the names of the parameters.

    Args:
        command: The command; an option has the name of its key, an argument is called so.
        arguments: What the user gave it.
        settings: What the file says.
    """
    given = {word.removeprefix("--").partition("=")[0] for word in arguments if word.startswith("--")}
    parameters = {_key_of(parameter): parameter.name for parameter in command.params}
    left_out = set(_ENDPOINT) if given & set(_ENDPOINT) or "base-url" not in parameters else set()
    if "model" in given:  # without an endpoint it says what tokens cost
        left_out.add("prices")
    return {parameters[key]: value for key, value in settings.items() if key in parameters and key not in left_out}


def _key_of(parameter: Any) -> str:
    """Return the key of an option, its first name, or of an argument, what help calls it."""
    name = parameter.metavar or parameter.name if parameter.param_type_name == "argument" else parameter.opts[0]
    return str(name).removeprefix("--").lower()


def is_from_file(context: Any, parameter: str) -> bool:
    """Return whether the value of a running command's parameter comes from the file."""
    return getattr(context.get_parameter_source(parameter), "name", "") == "DEFAULT_MAP"


def note_settings(context: Any) -> None:
    """Say on standard error which values of a command that is about to run come from the file."""
    values = [
        f"{_key_of(parameter)} {context.params[parameter.name]}"
        for parameter in context.command.params
        if is_from_file(context, parameter.name)
    ]
    if values:
        warn(f"note: from {FILE}: {', '.join(values)}")


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return the file's text; keys without a value are there as comments."""
    lines = ["# What suffice takes where an option is not given; options win.", ""]
    for key, meaning in KEYS.items():
        value = settings.get(key)
        lines += [f"# {meaning}", f"# {key} =" if value is None else f"{key} = {json.dumps(value)}", ""]
    return "\n".join(lines)
