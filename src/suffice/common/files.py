"""Write files whole or not at all, also at a URL, and read JSON lines with their place for messages."""

from __future__ import annotations

import hashlib
import importlib
import io
import logging
import os
import re
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO, Any, cast

from suffice.common.json_text import load_json
from suffice.errors import DataError, MissingExtraError, SufficeError

_FILES_LOG = logging.getLogger(__name__)
_BOM = b"\xef\xbb\xbf"
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\xfd7zXZ": "xz"}
PACKED = (".gz", ".zst", ".bz2", ".xz")
"""Endings of files that `unpacked` decompresses."""

_HEAD = 1 << 16
_URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")
_SECRET = re.compile(r"://[^/@:]*:(?!\d*(/|$))[^@]*@|\?[^?/=]*=")
_FILE_URL = re.compile(r"(?:file|local)://(?:localhost)?")
LOCK = ".lock"
"""The name of the lock file of `locking`."""

_WHOLE_AT_ONCE = frozenset({"abfs", "abfss", "adl", "az", "gcs", "gs", "memory", "oci", "oss", "r2", "s3", "s3a"})
"""Kinds of storage in which a file appears only once it is complete."""


def place(path: str | Path) -> Path:
    """Return a path with the methods of `pathlib.Path`, even for a URL of a file system that fsspec supports.

    >>> place("runs/log").name, place("file:///runs/log").as_posix()
    ('log', '/runs/log')

    Args:
        path: A path, a URL such as ``s3://bucket/runs``, or a result of this function.

    Raises:
        MissingExtraError: The path is a URL, and the extra `cloud` is not installed.
        DataError: No installed file system opens such a URL, or the URL contains a password or a query.
    """
    if not isinstance(path, str):
        return path
    match = _URL.match(path)
    if match is None:
        return Path(path)
    local = _FILE_URL.match(path)
    if local is not None:
        return Path(path[local.end() :])
    if _SECRET.search(path) is not None:
        raise DataError(
            f"a {match[1]}:// URL must not contain a password or a query, such as a signature (it is not shown here): messages and files "
            "would show it. Give keys to the driver of the storage, through its environment variables or files; or download the file"
        )
    try:
        from fsspec import get_filesystem_class
        from upath import UPath
    except ImportError:
        raise MissingExtraError(f"{path!r} (fsspec, universal_pathlib)", "cloud") from None
    try:
        get_filesystem_class(match[1])
    except (ImportError, ValueError) as error:
        raise DataError(f"{path!r} cannot be opened: {error}") from None
    # Other machines may write there, so listings must not be cached.
    return cast("Path", UPath(path.rstrip("/"), use_listings_cache=False))


def is_url(path: str | Path) -> bool:
    """Return whether a path is not on this machine's file system."""
    return not isinstance(place(path), Path)


@contextmanager
def reaching(path: str | Path) -> Iterator[None]:
    """Convert a storage's errors, such as no network or no access, to a `DataError` that names the URL."""
    try:
        yield
    except (SufficeError, MemoryError, AttributeError, TypeError):  # these are not errors of the storage
        raise
    except Exception as error:
        if not is_url(path):
            raise
        raise unreachable(path, error) from error


def unreachable(path: str | Path, error: Exception) -> DataError:
    """Return the error for a URL at which nothing can be read or written."""
    return DataError(
        f"{str(path)!r} cannot be read or written ({type(error).__name__}: {error}): check the URL, the network and the "
        "credentials"
    )


def disk_fault(path: str | Path, error: Exception) -> DataError:
    """Return the error for a file that the system does not let us read or write."""
    return DataError(
        f"{str(path)!r} cannot be read or written: {error}. Check the free space and the permissions of its folder, then "
        "run the same command again: what was stored before is kept"
    )


def check_file(path: str | Path) -> Path:
    """Return `place(path)` for a file to write; raise a `DataError` if it is a folder."""
    target = place(path)
    if target.is_dir():
        raise DataError(
            f"{str(path)!r} is a folder: give the name of the file to write, such as {str(target / 'NAME')!r}"
        )
    return target


def quoted(path: str | Path) -> str:
    """Quote a path for a shell, for commands that people paste.

    >>> quoted("runs.parquet"), quoted("my runs.parquet")
    ('runs.parquet', "'my runs.parquet'")
    """
    return shlex.quote(str(path))


PRIVATE = 0o600
"""The mode of files with questions and answers of people: the owner alone reads and writes them."""


@contextmanager
def replacing(path: str | Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`; the file written there replaces `path` in one step if the block succeeds.

    A private file can be read and written by its owner alone.

    The bytes reach the disk before the rename, so neither a crash nor a power cut leaves half a file.  A file for a URL
    is written to a temporary folder of this machine, then uploaded whole.

    Raises:
        DataError: The disk is full, the place cannot be written, or there is a folder of that name.
    """
    with reaching(path):
        target = check_file(path)
    if is_url(target):
        with tempfile.TemporaryDirectory(prefix="suffice-") as folder:
            temporary = Path(folder, target.name)
            yield temporary
            upload(temporary, target)
        return
    temporary = _beside(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            if private:
                os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY, PRIVATE))
            yield temporary
            _sync(temporary)
            temporary.replace(target)
            sync_folder(target.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise disk_fault(target, error) from error


def upload(file: Path, target: Any) -> None:
    """Copy a file to a URL; readers there see all of it or nothing."""
    with reaching(target):
        if target.protocol in _WHOLE_AT_ONCE:
            target.fs.put_file(str(file), target.path)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = _beside(target)
        target.fs.put_file(str(file), temporary.path)
        target.fs.mv(temporary.path, target.path)


def download(source: Any, file: Path) -> bool:
    """Copy the file at a URL to this machine, whole or not at all; return whether the file exists.

    Raises:
        DataError: The URL cannot be read, or the disk is full.
    """
    with reaching(source):
        if not source.is_file():
            return False
        with replacing(file) as temporary:
            source.fs.get_file(source.path, str(temporary))
    return True


@contextmanager
def replacing_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; if the block succeeds, rename the folder to `path` in one step.

    See `replacing`, which does this for a file.

    Raises:
        DataError: `path` is a file or a folder with files, the disk is full, or the place cannot be written.
    """
    target = Path(path)
    temporary = _beside(target)
    try:
        try:
            temporary.mkdir(parents=True)
            yield temporary
            for item in (temporary, *temporary.rglob("*")):
                (sync_folder if item.is_dir() else _sync)(item)
            if target.exists():
                target.rmdir()  # raises unless it is an empty folder
            temporary.replace(target)
            sync_folder(target.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise disk_fault(target, error) from error


def make_folder(path: str | Path) -> None:
    """Create a folder if it is missing, and sync its name to the disk.  At a URL, a folder appears with its first file."""
    if is_url(path):
        return
    folder = place(path)
    try:
        for missing in [place for place in (*reversed(folder.parents), folder) if not place.exists()]:
            missing.mkdir(exist_ok=True)
            sync_folder(missing.parent)
        if not folder.is_dir():
            raise NotADirectoryError(f"{str(folder)!r} is a file")
    except OSError as error:
        raise disk_fault(folder, error) from error


@contextmanager
def locking(folder: Path, what: str) -> Iterator[None]:
    """Let only one process at a time run the block for a folder; all other processes wait, and log that they wait for `what`.

    The lock is on the file `.lock`, which is not removed.  The lock is released after the block, or by the system if the process
    is killed.  If the file system has no locks, no process waits, and this is logged.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("ab")
    except OSError as error:
        raise disk_fault(folder, error) from error
    with file:
        _wait_for(file, what)
        yield


def _wait_for(file: IO[bytes], what: str) -> None:
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:  # Windows
        _FILES_LOG.info("%s has no lock on this system", file.name)
        return
    try:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            _FILES_LOG.warning("waiting for another process: %s", what)
            flock(file, LOCK_EX)
    except OSError as error:
        _FILES_LOG.warning(
            "%s cannot be locked (%s): let only one process at a time do this: %s", file.name, error, what
        )


def _beside(target: Any) -> Any:
    """Return a path next to `target` that is unique to this thread, process and container."""
    return target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def remove_leftovers(path: str | Path) -> None:
    """Remove temporary files of `path` left by killed processes; no other process may be writing `path`."""
    for leftover in Path(path).parent.glob(f".{escape(Path(path).name)}.*.tmp"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def _sync(file: Path) -> None:
    with file.open("rb+") as written:
        os.fsync(written.fileno())


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder (new, renamed, removed files) to the disk, if the system can."""
    with suppress(OSError):  # Windows cannot open a folder
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_file(path: str | Path, content: str | bytes) -> None:
    """Write a file whole or not at all, in UTF-8; create its folder if needed.

    Raises:
        DataError: The disk is full, or the place cannot be written.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def file_sha256(path: Path) -> bytes:
    """Return the SHA-256 of a file, read in parts."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def files_hash(folder: Path, files: Iterable[Path], sha256_of: Callable[[Path], bytes] = file_sha256) -> str:
    """Return 16 hexadecimal digits of a hash over the sorted files: their names in `folder` and their contents."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\x00" + sha256_of(file))
    return digest.hexdigest()[:16]


def unpacked(path: Path, size: int | None = None) -> Iterator[bytes]:
    """Yield the lines of a file in UTF-8, or pieces of `size` bytes, decompressed if it is gzip, Zstandard, bzip2 or xz.

    Text in UTF-16 is converted to UTF-8, and carriage returns alone (classic Mac) to line feeds.

    Raises:
        DataError: The file cannot be read, or does not unpack.
    """
    import lzma
    import zlib

    kind = ""
    try:
        with path.open("rb") as file:
            start = file.read(max(map(len, _PACKED)))
        kind = next((name for magic, name in _PACKED.items() if start.startswith(magic)), "")
        kind = kind or ("gzip" if path.suffix == ".gz" else "")
        with _opened(path, kind) as file:
            head = file.read(_HEAD)
        encoding = _wide_encoding(head)
        is_mac = b"\r" in head and b"\n" not in head and not encoding
        with _opened(path, kind) as file:
            if encoding or is_mac:
                # Latin-1 keeps every byte, so that only the line ends are read as text.
                with io.TextIOWrapper(file, encoding or "latin-1", errors="replace" if encoding else None) as text:
                    back = "utf-8" if encoding else "latin-1"
                    pieces: Iterator[str] = text if size is None else iter(lambda: text.read(size), "")
                    yield from (piece.removeprefix("\ufeff").encode(back) for piece in pieces)
            else:
                yield from file if size is None else iter(lambda: file.read(size), b"")
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path}: not a complete {kind} file ({error}); fetch it again") from error
    except OSError as error:
        if kind:
            raise DataError(f"{path}: not a complete {kind} file ({error}); fetch it again") from error
        raise DataError(f"{path}: cannot be read ({error})") from error


def _opened(path: Path, kind: str) -> IO[bytes]:
    """Open a file that is compressed in the way that `kind` names; "" = not compressed."""
    if kind == "zstd":
        import pyarrow as pa

        return cast("IO[bytes]", io.BufferedReader(pa.input_stream(str(path), compression=kind)))
    if not kind:
        return path.open("rb")
    module = importlib.import_module({"xz": "lzma"}.get(kind, kind))
    return cast("IO[bytes]", module.open(path, "rb"))


def _wide_encoding(head: bytes) -> str:
    """Return the encoding of a text with two bytes for each character; "" for a text in any other encoding.

    >>> _wide_encoding("\ufeffid,round".encode("utf-16-be")), _wide_encoding(b"id,round"), _wide_encoding("{}".encode("utf-16-le"))
    ('utf-16', '', 'utf-16-le')
    """
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    start = head[:64]
    for offset, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        zeros, others = start[offset::2].count(0), start[1 - offset :: 2].count(0)
        if zeros > 1 and zeros >= 0.75 * len(start) / 2 and not others:  # the rest may be letters beyond Latin-1
            return name
    return ""


def decoded(raw: bytes, where: str, *, errors: str = "strict") -> str:
    """Decode bytes in UTF-8, with or without a byte order mark; raise a `DataError` that names an invalid byte."""
    raw = raw.removeprefix(_BOM)
    try:
        return raw.decode(errors=errors)
    except UnicodeDecodeError as error:
        from suffice.common.code_pages import page_of

        wrong, file = raw[error.start : error.start + 1], where.partition(", line ")[0]
        page, may_be = page_of(raw, error.start)
        hint = f". If it is {may_be!r}, as in {page}:  {_to_utf8(file, page)}" if may_be else ""
        raise DataError(
            f"{where}: byte {wrong!r} at position {error.start} is not UTF-8; save the file as UTF-8{hint}"
        ) from error


def _to_utf8(file: str, page: str = "CP1252") -> str:
    """Return the command that writes a copy of a file, packed or not, in UTF-8.

    >>> _to_utf8("logs/run.csv"), _to_utf8("run.csv.gz")
    ('iconv -f CP1252 -t UTF-8 logs/run.csv > logs/run.utf8.csv', 'gzip -dc run.csv.gz | iconv -f CP1252 -t UTF-8 > run.utf8.csv')
    """
    path = Path(file)
    unpack = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}.get(path.suffix, "")
    plain = path.with_suffix("") if unpack else path
    out = quoted(plain.with_name(f"{plain.stem}.utf8{plain.suffix}").as_posix())
    iconv = f"iconv -f {page} -t UTF-8"
    return f"{unpack} -dc {quoted(file)} | {iconv} > {out}" if unpack else f"{iconv} {quoted(file)} > {out}"


def json_lines(
    path: str | Path, expected: str = "an object", *, errors: str = "strict", load: Callable[[str], Any] = load_json
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSON lines file, gzipped or not, each with its place for messages; blank lines are skipped.

    Args:
        path: The file.
        expected: A description of each line, for messages.
        errors: Treatment of bytes that are not UTF-8, as in `bytes.decode`.
        load: A function that parses a line, and raises a ValueError if the line cannot be parsed.

    Raises:
        DataError: The file cannot be read, or a line is not a JSON object in UTF-8; the message names file and line.
    """
    for number, raw in enumerate(unpacked(Path(path)), start=1):
        where = f"{path}, line {number}"
        text = decoded(raw, where, errors=errors)
        if not text.strip():
            continue
        try:
            record = load(text)
        except ValueError as error:
            raise DataError(f"{where}: not JSON ({error}); expected {expected}") from error
        if not isinstance(record, dict):
            raise DataError(f"{where}: found {type(record).__name__}; expected {expected}")
        yield where, record
