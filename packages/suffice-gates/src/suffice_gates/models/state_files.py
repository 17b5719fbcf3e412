"""Hidden states on disk, beside the recording of their questions, in atomically written safetensors shards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.common.files import write_file
from suffice.errors import ConfigMismatchError, DataError, NotFoundError, SchemaError
from suffice.recordings.journal import differences
from suffice.recordings.shards import Shard, listed_shards

STATES_FORMAT = "suffice.states"
STATES_VERSION = 1
_HEADER = "states.json"
_PLACES_FILE = "places.json"
_SHARD = "shard-{:06d}.safetensors"
_LARGEST_HALF = float(np.finfo(np.float16).max)


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredStates:
    """States of many prompts.

    Attributes:
        ids: The question id of each row.
        values: States, shape ``(n, n_layers, width)``, float16 as stored; NaN where the model left them undefined.
        header: Fingerprint of the source, prompt and data.
        digests: The digest of each prompt, by id.
    """

    ids: tuple[str, ...]
    values: npt.NDArray[np.float16]
    header: Mapping[str, Any]
    digests: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def undefined(self) -> npt.NDArray[np.bool_]:
        """Mask of the rows that contain NaN in some layer, shape ``(n,)``."""
        return np.asarray(np.isnan(self.values).any(axis=(1, 2)), dtype=np.bool_)

    def of(self, ids: Sequence[str], layer: int | None = None) -> npt.NDArray[np.float32]:
        """Return the states of some questions, in their order.

        Args:
            ids: The questions' ids.
            layer: A stored layer; None for all, or for a source without layers.

        Returns:
            Shape ``(len(ids), n_layers, width)``, or ``(len(ids), width)`` for one layer.

        Raises:
            DataError: A question, or the layer, was not stored.
        """
        index = {name: row for row, name in enumerate(self.ids)}
        missing = [name for name in ids if name not in index]
        if missing:
            raise DataError(
                f"{len(missing)} questions have no stored state, the first is {missing[0]!r}: store them first"
            )
        values = self.values[[index[name] for name in ids]].astype(np.float32)
        if layer is None:
            return values
        layers = list(self.header.get("layers", ()))
        if layer not in layers:
            raise DataError(f"layer {layer!r} was not stored; stored layers: {', '.join(map(str, layers)) or 'none'}")
        layer_values: npt.NDArray[np.float32] = values[:, layers.index(layer)]
        return layer_values


class StateWriter:
    """Appends states to a folder; once `append` has returned, they survive `kill -9`.

    Each call of `append` writes one shard atomically.  If the folder contains states of another model, revision, layer
    or prompt, that is an error.

    Args:
        path: The folder, usually ``NAME.states``; created if missing.
        header: Values that affect the states, JSON-ready and without secrets; `layers` contains the layers.

    Raises:
        ConfigMismatchError: The folder has another header.
        DataError: The path is a file, or a folder with other content.
        SchemaError: The folder is damaged, or of another version.
    """

    def __init__(self, path: str | Path, header: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.header: dict[str, Any] = json.loads(json.dumps(dict(header), sort_keys=True))
        self.clipped = 0
        if self.path.exists() and not self.path.is_dir():
            raise DataError(f"{str(path)!r} is a file, but states need a folder: give another path")
        if self.path.is_dir() and any(self.path.iterdir()):
            self._resume()
        else:
            header_file = {"format": STATES_FORMAT, "version": STATES_VERSION, "header": self.header}
            header_file["sha256"] = _content_sha256(json.dumps(header_file, sort_keys=True))
            write_file(self.path / _HEADER, json.dumps(header_file, sort_keys=True, indent=2).encode())
            self._done: dict[str, str] = {}
            self._shards = 0

    def __repr__(self) -> str:
        return f"StateWriter({str(self.path)!r}, {len(self._done)} states)"

    @property
    def done(self) -> Mapping[str, str]:
        """The ids whose states are on disk, with the digest of each prompt."""
        return dict(self._done)

    def write_places(self, places: Mapping[str, int]) -> None:
        """Store each id that the folder will contain in the end, with its position among the ids of all shards."""
        write_file(self.path / _PLACES_FILE, json.dumps(dict(places)))

    def append(
        self, ids: Sequence[str], states: npt.NDArray[np.floating[Any]], digests: Sequence[str] | None = None
    ) -> None:
        """Store some states; they are on disk when this returns.

        Numbers beyond the range of float16 (65,504) are clipped and counted in `clipped`; infinite numbers become NaN.

        Args:
            ids: Ids of the rows, none of them stored before.
            states: Shape ``(len(ids), n_layers, width)``.
            digests: Digests of the prompts, to detect changed texts; None = none.

        Raises:
            DataError: An id is already stored, the shape is wrong, or another process writes to the folder.
        """
        from safetensors.numpy import save

        names, marks = list(ids), list(digests or [""] * len(ids))
        repeated = [name for name in names if name in self._done] or [n for n in names if names.count(n) > 1]
        if repeated:
            raise DataError(f"the state of {repeated[0]!r} is already stored or repeated: store each state once")
        layers = len(self.header.get("layers", ())) or 1
        if states.ndim != 3 or states.shape[:2] != (len(names), layers):  # noqa: PLR2004 - rows, layers, width
            raise DataError(f"expected states of shape ({len(names)}, {layers}, width), got {states.shape}")
        if not names:
            return
        values, clipped = _halved(states)
        metadata = {"ids": json.dumps(names), "digests": json.dumps(marks)}
        metadata["sha256"] = _shard_sha256(metadata, values)
        target = self.path / _SHARD.format(self._shards)
        if target.exists():
            raise DataError(f"another process writes to {str(self.path)!r}: wait for it, or give another folder")
        write_file(target, save({"states": values}, metadata=metadata))
        self._shards += 1
        self._done |= dict(zip(names, marks, strict=True))
        self.clipped += clipped

    def _resume(self) -> None:
        stored = _read_header(self.path)
        changed = differences(stored, self.header)
        if changed:
            raise ConfigMismatchError(
                f"the states in {str(self.path)!r} were begun with another configuration ({'; '.join(changed)}): "
                "resume with the old one, or give another folder"
            )
        for leftover in self.path.glob("*.tmp"):
            leftover.unlink()
        shards = _shards(self.path)
        self._shards = len(shards)
        self._done = {name: mark for shard in shards for name, mark in _read_shard(shard)[0].items()}


def read_states(path: str | Path) -> StoredStates:
    """Read the states of a folder.

    A folder that one process wrote may be incomplete. In a folder that several processes wrote, every shard must be
    complete.

    Raises:
        ConfigMismatchError: Shards were read with different settings.
        DataError: The folder does not exist or contains no states, or a shard is missing or unfinished.
        SchemaError: The folder is damaged or of another version.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise NotFoundError(f"the folder {str(path)!r} does not exist: write states with `suffice gate states`")
    shards = _shard_folders(folder)
    header, digests, values = _of_shards(folder, shards) if shards else _of_one_folder(folder)
    ids = [name for name, _ in digests]
    if not values:
        raise DataError(f"the folder {str(path)!r} contains no states yet: run `suffice gate states` again")
    if len({some.shape[1:] for some in values}) > 1:
        raise SchemaError(f"the shards of {str(path)!r} have different shapes: write them again")
    if len(set(ids)) != len(ids):
        raise SchemaError(f"{str(path)!r} contains a state twice: write the folder again")
    joined = np.concatenate(values)
    if shards:
        places = _places_of(folder, shards)
        order = sorted(range(len(ids)), key=lambda row: places[ids[row]])
        ids, joined = [ids[row] for row in order], joined[order]
    return StoredStates(ids=tuple(ids), values=joined, header=header, digests=dict(digests))


def check_states_shard(folder: Path, shard: Shard) -> None:
    """Raise, before any prompt is read, if the folder contains states from a run with another number of shards.

    Raises:
        ConfigMismatchError: The folder has such states.
    """
    others = sorted({other.n for other in _shard_folders(folder)} - {shard.n})
    if others or (folder / _HEADER).is_file():
        whose = f"of {others[0]} shards" if others else "of one process"
        raise ConfigMismatchError(
            f"{str(folder)!r} has states {whose}, and these are of {shard.n}: give another folder, or go on as it was begun"
        )


def _of_one_folder(folder: Path) -> tuple[dict[str, Any], list[tuple[str, str]], list[npt.NDArray[np.float16]]]:
    """Return the header, the ids with their digests, and the states of one folder."""
    header = _read_header(folder)
    files = [_read_shard(file) for file in _shards(folder)]
    return header, [own for names, _ in files for own in names.items()], [values for _, values in files]


def _shard_folders(folder: Path) -> dict[Shard, Path]:
    """Return the folders of the shards; none if one process wrote the folder."""
    places = {Shard.of_part(f"{path.name}.parquet"): path for path in folder.glob("part-*-of-*") if path.is_dir()}
    return {shard: places[shard] for shard in sorted(shard for shard in places if shard is not None)}


def _of_shards(
    folder: Path, shards: Mapping[Shard, Path]
) -> tuple[dict[str, Any], list[tuple[str, str]], list[npt.NDArray[np.float16]]]:
    """Return the header, the ids with their digests, and the states of all shards."""
    n = next(iter(shards)).n
    missing = [shard for shard in (Shard(index, n) for index in range(1, n + 1)) if shard not in shards]
    check_states_shard(folder, next(iter(shards)))
    if missing:
        raise DataError(
            f"the states {str(folder)!r} lack shards {listed_shards(missing)}: read them by the same command"
        )
    first: dict[str, Any] | None = None
    ids: list[tuple[str, str]] = []
    values: list[npt.NDArray[np.float16]] = []
    for shard, place in shards.items():
        header, names, some = _of_one_folder(place)
        changed = differences(first or header, header)
        if changed:
            raise ConfigMismatchError(
                f"{str(place)!r} was read with other settings than the shards before it ({'; '.join(changed)}): read it again"
            )
        if len(names) < len(_places_of(folder, {shard: place})):
            raise DataError(f"shard {shard} of the states {str(folder)!r} is unfinished: run its command again")
        first = first or header
        ids += names
        values += some
    return first or {}, ids, values


def _places_of(folder: Path, shards: Mapping[Shard, Path]) -> dict[str, int]:
    """Return the position of each id among the ids of all shards."""
    places: dict[str, int] = {}
    for shard, path in shards.items():
        try:
            places |= json.loads((path / _PLACES_FILE).read_bytes())
        except (OSError, ValueError, TypeError):
            raise SchemaError(
                f"shard {shard} of {str(folder)!r} is damaged, or has not begun: run its command again"
            ) from None
    return places


def _halved(states: npt.NDArray[np.floating[Any]]) -> tuple[npt.NDArray[np.float16], int]:
    """Convert states to float16, and count the numbers beyond its range."""
    full = np.asarray(states, dtype=np.float32)
    known = np.where(np.isfinite(full), full, np.float32(np.nan))
    n_clipped = int((np.abs(known) > _LARGEST_HALF).sum())
    return np.clip(known, -_LARGEST_HALF, _LARGEST_HALF).astype(np.float16), n_clipped


def _shards(folder: Path) -> list[Path]:
    """Return the shards in order.

    Raises:
        SchemaError: A shard is missing.
    """
    shards = sorted(folder.glob(_SHARD.split("{", maxsplit=1)[0] + "*.safetensors"))
    for number, shard in enumerate(shards):
        if shard.name != _SHARD.format(number):
            raise SchemaError(
                f"{str(folder)!r} lacks {_SHARD.format(number)}: its states are incomplete; write the folder again"
            )
    return shards


def _read_header(folder: Path) -> dict[str, Any]:
    file = folder / _HEADER
    if not file.is_file():
        raise DataError(
            f"the folder {str(folder)!r} does not contain {_HEADER}, so it is not a folder of states: give another path"
        )
    try:
        content = json.loads(file.read_bytes())
        digest = content.pop("sha256", None)  # folders of older releases have none
        header = content["header"]
        known = (content["format"], content["version"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SchemaError(f"{str(file)!r} is damaged: {type(error).__name__}: {error}") from None
    if known != (STATES_FORMAT, STATES_VERSION) or not isinstance(header, dict):
        raise SchemaError(
            f"{str(file)!r} has the format {known[0]!r} version {known[1]!r}; this release reads {STATES_FORMAT!r} "
            f"version {STATES_VERSION}"
        )
    if set(content) != {"format", "version", "header"} or digest not in (
        None,
        _content_sha256(json.dumps(content, sort_keys=True)),
    ):
        raise SchemaError(f"{str(file)!r} is damaged: its digest does not match; write the folder again")
    return header


def _read_shard(shard: Path) -> tuple[dict[str, str], npt.NDArray[np.float16]]:
    """Return a shard's ids with the digests of their prompts, and its states; raise if they do not match the stored digest."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(shard), framework="numpy") as opened:
            metadata = dict(opened.metadata())
            states = opened.get_tensor("states")
        digest = metadata.pop("sha256", None)  # shards of older releases have none
        intact = set(metadata) == {"ids", "digests"} and digest in (None, _shard_sha256(metadata, states))
        names = dict(zip(json.loads(metadata["ids"]), json.loads(metadata["digests"]), strict=True))
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise SchemaError(
            f"{str(shard)!r} is damaged ({type(error).__name__}: {error}): write the folder again"
        ) from None
    if not intact or len(names) != len(states):
        raise SchemaError(
            f"{str(shard)!r} is damaged: its {len(states)} states for {len(names)} ids do not match the digest; "
            "write the folder again"
        )
    return names, states


def _shard_sha256(metadata: Mapping[str, str], states: npt.NDArray[np.float16]) -> str:
    """Return the digest of a shard: its ids, their digests, and the states."""
    what = json.dumps([metadata["ids"], metadata["digests"], str(states.dtype), states.shape])
    return _content_sha256(what, np.ascontiguousarray(states))


def _content_sha256(text: str, values: npt.NDArray[Any] | None = None) -> str:
    digest = hashlib.sha256(text.encode())
    if values is not None:
        digest.update(values.data)
    return digest.hexdigest()
