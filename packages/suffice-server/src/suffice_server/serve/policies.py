"""The policies of a folder; each file is loaded completely or not at all, and a changed file is loaded again."""

from __future__ import annotations

import logging
import re
import threading
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from suffice.errors import DataError, NotFoundError, SufficeError, did_you_mean
from suffice.policy.session import Policy

_LOG = logging.getLogger(__name__)
_POLICY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_REMEMBERED = 100
"""Policies that can be requested by digest, including those that a changed file has replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPolicy:
    """A policy loaded from a file, with its name and digest.

    Attributes:
        name: The name of the file without ``.json``.
        policy: The policy.
        digest: The policy's digest.
        note: The warning raised when the policy was loaded; None if there was no warning.
    """

    name: str
    policy: Policy
    digest: str
    note: str | None = None


class PolicyFolder:
    """The policies of a folder, by name and digest.

    While a file does not load, it is listed in `broken` and its previous policy stays in use.  Replaced policies can still be
    requested by their digests.

    Args:
        folder: The folder; each ``.json`` file in it is a policy.

    Attributes:
        policies: Policies by name.
        broken: The reasons why files do not load, by name.

    Raises:
        DataError: The folder does not exist or cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.policies: Mapping[str, NamedPolicy] = {}
        self.broken: Mapping[str, str] = {}
        self._marks: dict[str, tuple[int, ...]] = {}
        self._by_digest: OrderedDict[str, NamedPolicy] = OrderedDict()
        self._lock = threading.Lock()
        self.refresh()

    def refresh(self) -> None:
        """Load the files that changed since the last call.

        Raises:
            DataError: The folder cannot be read; the loaded policies stay in use.
        """
        with self._lock:
            try:
                files = {path.stem: path for path in sorted(self.folder.iterdir()) if path.suffix == ".json"}
                marks = {name: _mark_of(path) for name, path in files.items()}
            except OSError as error:
                raise DataError(f"the folder of policies cannot be read: {error.strerror or error}") from None
            policies = {name: policy for name, policy in self.policies.items() if name in files}
            broken = {name: why for name, why in self.broken.items() if name in files}
            for name, path in files.items():
                if marks[name] == self._marks.get(name):
                    continue
                broken.pop(name, None)
                try:
                    policies[name] = _policy_in(name, path)
                    _LOG.info("policy %s: %s", name, policies[name].digest)
                except (SufficeError, OSError) as error:
                    was = "; the policy that it held before stays" if name in policies else ""
                    broken[name] = str(error).replace(str(path), path.name) + was
                    _LOG.warning("the policy file %s does not load: %s", path.name, broken[name])
            for removed in self._marks.keys() - files.keys():
                _LOG.warning("the policy file %s.json was removed", removed)
            self._marks, self.policies, self.broken = marks, policies, broken
            for policy in policies.values():
                self._by_digest[policy.digest] = policy
                self._by_digest.move_to_end(policy.digest)
            while len(self._by_digest) > max(_REMEMBERED, len(policies)):
                self._by_digest.popitem(last=False)

    def named(self, text: str) -> NamedPolicy:
        """Look up a policy by its name or digest.

        Raises:
            NotFoundError: No policy has this name or digest.
        """
        policy = self.policies.get(text) or self._by_digest.get(text)
        if policy is None:
            raise NotFoundError(
                f"there is no policy {text[:100]!r}.{did_you_mean(text[:100], self.policies)} GET /v1/policies lists them"
            )
        return policy


def _mark_of(path: Path) -> tuple[int, ...]:
    """Return a value that changes when a file is rewritten; empty for a broken link."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _policy_in(name: str, path: Path) -> NamedPolicy:
    """Load the policy of a file and check that it can decide."""
    if not _POLICY_NAME.fullmatch(name):
        raise DataError("the name of a policy has letters, digits, dots, dashes and underscores: rename the file")
    if not path.is_file():  # reading from a pipe would wait for ever
        raise DataError("not a regular file: put policies as .json files into the folder")
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        policy = Policy.load(path)
        policy.check()
    note = "; ".join(str(warning.message) for warning in notes)
    return NamedPolicy(name=name, policy=policy, digest=policy.digest, note=note.replace(str(path), path.name) or None)
