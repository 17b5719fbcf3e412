"""Check every byte of an index, since opening an index checks only pieces of its large files."""

from __future__ import annotations

from pathlib import Path

from suffice.common.identities import sha256_of
from suffice.errors import SchemaError
from suffice_retrieval.indexes.storage import MANIFEST, SAMPLED, is_index_file, is_unchanged, read_manifest


def validate_index(directory: Path) -> dict[str, str]:
    """Read every byte of an index, and report for each file whether it is unchanged since it was built.

    Returns:
        The state of each file, by name: ``unchanged``, ``changed``, ``missing``, or ``pieces unchanged``. A large file
        of an old index is reported as ``pieces unchanged``, since an old index stores only a digest of pieces of the
        file.

    Raises:
        SchemaError: The folder contains no complete index, or its description is damaged.
    """
    manifest = read_manifest(directory)
    files, whole = manifest.get("files"), manifest.get("whole", {})
    if not isinstance(files, dict) or not isinstance(whole, dict) or not all(map(is_index_file, files)):
        raise SchemaError(f"{directory}: {MANIFEST} is damaged; build the index again")
    found = {}
    for name, digest in files.items():
        path = directory / name
        if not path.is_file():
            found[name] = "missing"
        elif name in whole:
            found[name] = "unchanged" if sha256_of(path).hex() == whole[name] else "changed"
        else:
            same = "pieces unchanged" if str(digest).startswith(SAMPLED) else "unchanged"
            found[name] = same if is_unchanged(path, str(digest)) else "changed"
    return found
