"""Identities of local models: a hash of the content of their files, independent of the folder."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from suffice.common.files import file_sha256, files_hash, write_file
from suffice.errors import DataError

_CONTENT = "content"
_IDENTITY = ("model", "id", "revision", _CONTENT)
"""The entries of a fingerprint that name a model."""

_FOLDER_HASH = re.compile(r"[0-9a-f]{16}")
_BLOB = re.compile(r"[0-9a-f]{64}")
_LARGE = 2**24
"""Digests are cached for files of at least this size; smaller ones are read in no time."""

_WEIGHTS = ("model*.safetensors", "adapter_model*.safetensors", "*.safetensors", "pytorch_model*.bin", "*.bin")
_SETTINGS = ("config.json", "generation_config.json", "adapter_config.json", "tokenizer_config.json", "chat_template.*")
_TOKENIZERS = ("tokenizer.json", "*.model", "vocab.*", "merges.txt", "added_tokens.json")


def model_content(folder: Path) -> str:
    """Return 16 hexadecimal digits of a hash over the weights, settings and tokenizer in a folder.

    Only files that a loader reads count.  If there are weights in several formats, only the safetensors count; if there
    are several tokenizer files, only ``tokenizer.json`` counts.  So a copy in a second folder or in the hub's cache has
    the same hash, even with notes beside it.  Every byte of the counted files matters: one fine-tuned layer changes the
    hash.
    """
    weights = next((files for pattern in _WEIGHTS if (files := sorted(folder.glob(pattern)))), [])
    words = [file for pattern in _TOKENIZERS for file in folder.glob(pattern)]
    words = [file for file in words if file.name == _TOKENIZERS[0]] or words
    settings = [file for pattern in _SETTINGS for file in folder.glob(pattern)]
    return files_hash(folder, {*weights, *words, *settings}, sha256_of)


def hub_folder(model: str, revision: str | None = None) -> Path | None:
    """Return the folder of a model in the hub's local cache; None if it is not there."""
    try:
        from huggingface_hub import try_to_load_from_cache

        config = try_to_load_from_cache(model, "config.json", revision=revision)
    except (ImportError, ValueError):  # the hub's package is not installed, or the name is not an id
        return None
    return Path(config).parent if isinstance(config, str) else None


def sha256_of(path: Path) -> bytes:
    """Return the SHA-256 of a file; the hash of a large file is cached by the file's path, size and time of change.

    The hub's cache names its large files by their SHA-256, so that these files need not be read. Our cache of hashes is
    in ``$XDG_CACHE_HOME/suffice``, or ``~/.cache/suffice``; removing that folder is safe.
    """
    file = path.resolve()
    about = file.stat()
    if file.parent.name == "blobs" and _BLOB.fullmatch(file.name):
        return bytes.fromhex(file.name)
    if about.st_size < _LARGE:
        return file_sha256(file)
    key = hashlib.sha256(f"{file}\0{about.st_size}\0{about.st_mtime_ns}\0{about.st_ino}".encode()).hexdigest()
    note = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "suffice" / "sha256" / key
    with suppress(OSError, ValueError):
        known = bytes.fromhex(json.loads(note.read_text(encoding="utf-8"))["sha256"])
        if len(known) == hashlib.sha256().digest_size:
            return known
    digest = file_sha256(file)
    with suppress(DataError):  # a cache that cannot be written only costs time
        write_file(note, json.dumps({"file": str(file), "sha256": digest.hex()}))
    return digest


def same_model(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two fingerprints name the same model, even in folders of different names.

    >>> cluster = {"model": "jobs/llama", "revision": "00112233aabbccdd", "content": "0123456789abcdef"}
    >>> same_model(cluster, {"model": "org/llama", "revision": "main", "content": "0123456789abcdef"})
    True

    Fingerprints of older releases have no `content`.  The revision of a folder is then a hash of its files, and two
    folders are the same model if their revisions are equal.  Models of a hub are the same if both name and revision are
    equal.
    """
    if one.get(_CONTENT) is not None and one.get(_CONTENT) == other.get(_CONTENT):
        return True
    revision = one.get("revision")
    if revision != other.get("revision"):
        return False
    is_hash = isinstance(revision, str) and _FOLDER_HASH.fullmatch(revision) is not None
    return is_hash or all(one.get(key) == other.get(key) for key in ("model", "id"))


def aligned(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return `old` with each model named as in `new`, wherever both identify the same model; models may be nested.

    >>> old = {"model": {"model": "jobs/llama", "revision": "00112233aabbccdd", "precision": "float16"}}
    >>> aligned(old, {"model": {"model": "mine/llama3", "revision": "00112233aabbccdd"}})
    {'model': {'precision': 'float16', 'model': 'mine/llama3', 'revision': '00112233aabbccdd'}}
    """
    result = dict(old)
    for key, value in old.items():
        other = new.get(key)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            result[key] = aligned(value, other)
    if result.get("revision") is not None and same_model(result, new):
        named = {key: value for key, value in result.items() if key not in _IDENTITY}
        return named | {key: new[key] for key in _IDENTITY if key in new}
    return result
