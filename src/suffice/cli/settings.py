"""`suffice.toml`: values for parameters that the command line does not give."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
"""What the file may say outside its tables, with its meaning."""

TABLES: Mapping[str, str] = {
    "endpoint": "Requests to models, their limits, and the cache of replies.",
    "local": "Models on this machine.",
    "cluster": "Workers of a Ray cluster.",
    "record": "How questions are recorded.",
    "retrieval": "Passages, their vectors and their index.",
    "sampling": "Independent samples.",
    "thinking": "Chains of thought and their checkpoints.",
    "drafts": "Drafts, their embeddings and their marks.",
    "statistics": "Intervals, margins and what is charged.",
    "calibration": "Calibrators, and rules that are learned.",
    "search": "The search for a rule.",
    "certificate": "Certificates.",
    "watch": "Deployed policies that are watched.",
    "service": "Limits of `suffice serve`.",
    "proxy": "Limits of `suffice proxy`.",
    "gate": "Gates and their training.",
    "reranker": "Preferences, and the training of rerankers.",
    "papers": "Protocols of the papers, and demonstrations.",
}
"""The tables of the file, with what their settings are about; `suffice COMMAND --help` lists those of a command."""

SECRETS_STAY_OUT = " Keys are never written to files: name their environment variable in api-key-env."
"""What a message adds about an unknown key that may hold a secret."""

DEFAULT_KEY = "OPENAI_API_KEY"
"""The variable of the key of an endpoint, unless another is named."""

KEY_ENDING = "_API_KEY"
"""How the name of every variable ends that a file may name."""

_KEY_LENGTH = 20
_PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]*@")
_LOGIN = re.compile(r"://[^/@\s]*@")
_SECRET_NAME = re.compile(
    r"(?i)^token$|(^|[-_])(api[-_]?key|secret|password|credentials?|authorization|bearer|(access|auth)[-_]?token)($|[-_])"
)
_JSON_TEXTS = re.compile(r'"([^"]+)"\s*:\s*"')
_KEY_STARTS = ("sk_", "hf_", "gsk_", "AIza", "key_", "pk_", "nvapi", "xai_")


def read_settings(path: Path = FILE) -> dict[str, Any]:
    """Return the content of `suffice.toml`; empty if there is no file.

    A table is checked only when a command takes a setting from it.

    Raises:
        SchemaError: The file is not TOML, or has an unknown key.
        DataError: A value has the wrong type.
        NotFoundError: The file cannot be read.
    """
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SchemaError(f"{path} is not TOML: {error}") from None
    check_settings(data, path)
    return data


def check_settings(data: Mapping[str, Any], path: Path = FILE) -> None:
    """Check a file's content; raise the same errors as `read_settings`."""
    for key, value in data.items():
        if isinstance(value, dict) and key not in KEYS:
            _check_table(value, f"{path}: [{key}]")
            continue
        if key not in KEYS:
            raise SchemaError(
                f"{path} says {key!r}, which no command takes.{secrets_advice(key)}{did_you_mean(key, KEYS)} It may say: {', '.join(KEYS)}; "
                f"settings stand in tables: {', '.join(f'[{table}]' for table in TABLES)}"
            )
        if not isinstance(value, str if key != "max-loss" else int | float) or isinstance(value, bool):
            wrong = "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)
            raise DataError(f"{path}: {key} must be {'a number' if key == 'max-loss' else 'text'}, not {wrong}")
        _check_no_secret(key, value, f"{path}: {key}")
    if is_in_file(data.get("model", "")):
        raise DataError(
            f"{path}: model names code, {data['model']!r}, and the file may come from somebody else: give --model yourself"
        )
    if "api-key-env" in data:
        check_key_variable(data["api-key-env"], f"{path}: api-key-env")
        check_named_by_file(data["api-key-env"])


def secrets_advice(key: str) -> str:
    """Return the advice on the place where secrets belong, if the name of an unknown key suggests a secret; else ""."""
    return SECRETS_STAY_OUT * ("key" in key or "token" in key)


def _check_table(table: Mapping[str, Any], where: str) -> None:
    """Raise if the file sets something unsafe: code, keys, or names of variables that may hold other secrets.

    The file may come from an untrusted source.
    """
    for key, value in table.items():
        texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
        if any(map(is_in_file, texts)):
            raise DataError(
                f"{where}: {key} names code, {value!r}, and the file may come from somebody else: give --set {key}=... yourself"
            )
        if key.endswith("api-key-env") and isinstance(value, str):
            check_key_variable(value, f"{where}: {key}")
            check_named_by_file(value)
        _check_no_secret(key, value, f"{where}: {key}")


def _check_no_secret(key: str, value: Any, where: str) -> None:
    """Raise for a password in a URL or a secret in a nested table; the message does not repeat it."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, str) and _SECRET_NAME.search(name):
                raise DataError(f"{where}: {name} may hold a key.{SECRETS_STAY_OUT}")
            _check_no_secret(name, inner, f"{where}: {name}")
    elif isinstance(value, list):
        for inner in value:
            _check_no_secret(key, inner, where)
    elif isinstance(value, str):
        if (_LOGIN if key.endswith("base-url") else _PASSWORD).search(value):
            raise DataError(f"{where} holds a password.{SECRETS_STAY_OUT}")
        for name in _JSON_TEXTS.findall(value) if value.lstrip().startswith("{") else ():
            if _SECRET_NAME.search(name):
                raise DataError(f"{where}: {name} may hold a key.{SECRETS_STAY_OUT}")


def check_named_by_file(name: str) -> None:
    """Raise if a file, which may come from an untrusted source, names an environment variable that it may not use."""
    if not name.endswith(KEY_ENDING):
        raise DataError(
            f"{FILE}: api-key-env names {name!r}, and a file may name only variables that end in {KEY_ENDING}, which hold "
            "nothing else: rename the variable, or give --base-url, --model and --api-key-env yourself"
        )


def check_key_variable(name: str, where: str) -> None:
    """Raise if the name of a variable may be the key itself; the message does not repeat it."""
    is_name = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name) is not None
    is_random = len(name) >= _KEY_LENGTH and any(c.isdigit() for c in name) and any(c.islower() for c in name)
    if not is_name or is_random or name.startswith(_KEY_STARTS):
        raise DataError(
            f"{where} takes the name of an environment variable, such as OPENAI_API_KEY, and what is given may be the key itself: "
            "export it, and give the name"
        )


def settings_text(settings: Mapping[str, Any], tables: str = "") -> str:
    """Return the text of the file; keys without a value appear as comments."""
    lines = ["# What suffice takes where an option is not given; options win.", ""]
    for key, meaning in KEYS.items():
        value = settings.get(key)
        lines += [f"# {meaning}", f"# {key} =" if value is None else f"{key} = {json.dumps(value)}", ""]
    lines += ["# Settings of commands, which their --help lists, stand in tables below; --set NAME=VALUE wins.", ""]
    return "\n".join([*lines, tables or "# [endpoint]\n# timeout = 60\n"])


def tables_text(text: str) -> str:
    """Return the part of a file's text that contains its tables: from the first table's header to the end.

    Raises:
        SchemaError: The text is not TOML.
        DataError: A table is defined above the first header, as in `statistics.seed = 1` or `statistics = {seed = 1}`.
    """
    header = re.search(r"^[ \t]*\[", text, re.MULTILINE)
    part = "" if header is None else text[header.start() :]
    try:
        tables = {key: value for key, value in tomllib.loads(text).items() if isinstance(value, dict)}
    except tomllib.TOMLDecodeError as error:
        raise SchemaError(f"{FILE} is not TOML: {error}") from None
    try:
        is_whole = tomllib.loads(part) == tables
    except tomllib.TOMLDecodeError:  # the supposed header was a line inside a string
        is_whole = False
    if not is_whole:
        raise DataError(
            f"{FILE} has tables that have no header of their own, as [{next(iter(tables), 'x')}]: edit the file"
        )
    return part
