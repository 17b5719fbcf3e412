"""The contents of a folder; each item has an id, and is read again when it changes on disk."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from suffice.errors import NotFoundError
from suffice.policy.session import Policy
from suffice.presentation.trajectories import Passages, evidence
from suffice_server.studio.browsing import Browsed
from suffice_server.studio.describing import Description, beside, describe, is_part, loaded_policy

MOST_FILES = 5_000
"""Most files that are looked at in one folder."""

_MOST_HELD = 8
"""Most recordings, policies and the like that stay in memory."""
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv"})
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(Description):
    """One item in the folder.

    Attributes:
        id: The item's id in addresses, a hash of its path in the folder.
        name: The item's path in the folder, with slashes.
        path: The item's path on disk.
        changed: Names, sizes and times of the item's files, which show a change on disk.
    """

    id: str
    name: str
    path: Path
    changed: tuple[Any, ...]


class _Held:
    """A cached value, computed by the first thread that needs it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.is_made = False
        self.value: Any = None


class Folder:
    """A folder of recordings, policies and logs.

    Args:
        root: The folder.

    Attributes:
        name: The folder's name, or its path if it has no name (`/`).
        skipped: Sentences about files that the last scan left out, with reasons.
        others: Names of files that Suffice neither wrote nor can import.

    Raises:
        NotFoundError: The folder does not exist.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise NotFoundError(
                f"there is no folder {str(root)!r}: name one that contains recordings, policies or logs"
            )
        self.name = self.root.resolve().name or str(self.root.resolve())
        self.skipped: tuple[str, ...] = ()
        self.others: tuple[str, ...] = ()
        self._items: dict[str, Item] = {}
        self._foreign: dict[str, tuple[Any, ...]] = {}
        self._lock = threading.Lock()
        self._holding = threading.Lock()
        self._held: OrderedDict[tuple[Any, ...], _Held] = OrderedDict()

    def scan(self) -> list[Item]:
        """Return all items in the folder; only items that changed since the last scan are read again."""
        with self._lock:
            before, items = self._items, dict[str, Item]()
            before_others, others = self._foreign, dict[str, tuple[Any, ...]]()
            for path in self._paths():
                name = path.relative_to(self.root).as_posix()  # "." where the folder itself is a recording in parts
                key = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:16]
                changed = _state_of(path)
                known = before.get(key)
                if known is not None and known.changed == changed:
                    items[key] = known
                    continue
                description = None if before_others.get(name) == changed else describe(path)
                if description is None:
                    others[name] = changed
                    continue
                values = {field: getattr(description, field) for field in Description.__slots__}
                items[key] = Item(id=key, name=name, path=path, changed=changed, **values)
            self._items, self._foreign, self.others = items, others, tuple(others)
            return [*items.values()]

    def recording(self, item: Item) -> Browsed:
        """Return a recording or a log, cached until it changes.

        Raises:
            SufficeError: The recording is damaged.
        """
        return self.once(lambda: Browsed.read(item.path), item)

    def policy(self, item: Item) -> Policy:
        """Return a policy; no warning is raised about a suspended certificate, since pages show it.

        Raises:
            SufficeError: The policy is damaged.
        """
        return self.once(lambda: loaded_policy(item.path), item)

    def passages(self, item: Item) -> Passages:
        """Return the evidence of a set of questions.

        Raises:
            SufficeError: The questions are damaged.
        """
        return self.once(lambda: evidence(str(item.path)), item)

    def once(self, make: Callable[[], _Made], *items: Item, name: str = "") -> _Made:
        """Return a value computed from some items, cached until one of them changes; the last few values stay in memory.

        Args:
            make: Computes the value.
            items: The items on which the value depends.
            name: Name of the value, to distinguish several values that depend on the same items.

        Raises:
            SufficeError: An item is damaged.
        """
        key = (name, *((item.id, item.changed) for item in items))
        with self._holding:
            held = self._held.setdefault(key, _Held())
            self._held.move_to_end(key)
            while len(self._held) > _MOST_HELD:
                self._held.popitem(last=False)
        with held.lock:  # a lock per value, so that only requests for the same value wait
            if not held.is_made:
                held.value, held.is_made = make(), True
            value: _Made = held.value
            return value

    def _paths(self) -> Iterator[Path]:
        """Yield files and folders of parts, without hidden ones and without links that leave the folder."""
        root, n, skipped = self.root.resolve(), 0, list[str]()

        def unread(error: OSError) -> None:
            skipped.append(f"not read: {error}")

        for place, folders, names in os.walk(self.root, onerror=unread):
            folder = Path(place)
            linked = [folder / name for name in folders if (folder / name).is_symlink()]
            skipped += [f"{path.relative_to(self.root)} is a linked folder, which is not followed" for path in linked]
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
            if any(map(is_part, names)):  # one recording; other files may be beside its parts
                yield folder
            for name in sorted(name for name in names if not is_part(name)):
                path = folder / name
                if name.endswith(".parquet.rounds") and name.removesuffix(".rounds") not in names:
                    path = folder / name.removesuffix(".rounds")  # its rounds are in the journal so far
                elif name.startswith((".", "~")) or beside(path):
                    continue
                reason = _why_not_read(path, root)
                if reason:
                    skipped.append(f"{path.relative_to(self.root)} {reason}")
                    continue
                n += 1
                if n > MOST_FILES:
                    skipped.append(f"more than {MOST_FILES:,} files: the rest is not shown; open a folder further down")
                    self.skipped = tuple(skipped)
                    return
                yield path
        self.skipped = tuple(skipped)


def _why_not_read(path: Path, root: Path) -> str:
    """Return the reason why a file is skipped, such as a pipe, whose reading may block; empty if the file is not skipped."""
    try:
        if path.is_symlink() and not path.resolve(strict=True).is_relative_to(root):
            return "is a link that leaves the folder"
        is_special = path.exists() and not path.is_file()
    except (OSError, RuntimeError):  # a loop of links
        return "is a link that leads nowhere"
    return "is a pipe, a socket or a device" if is_special else ""


def _state_of(path: Path) -> tuple[Any, ...]:
    """Return names, sizes and times of an item's files: a file and its journal, or a folder of parts."""
    files = (
        sorted(part for part in path.iterdir() if is_part(part.name))
        if path.is_dir()
        else [path, *(path.with_name(path.name + end) for end in _JOURNALS)]
    )
    states = []
    for file in files:
        try:
            state = file.stat()
        except OSError:
            continue
        states.append((file.name, state.st_mtime_ns, state.st_size, state.st_ino))
    return tuple(states)


_JOURNALS = (".rounds", ".rounds-wal", ".journal", ".journal-wal")
