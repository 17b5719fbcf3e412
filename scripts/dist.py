"""Build the sdist and the wheel of every distribution into a folder, twice: `python scripts/dist.py dist`, or `make dist`.

The second time each is built elsewhere, from the sdist; a byte that differs is an error.  Archives have hatchling's own date,
whatever the clock says, so that the same files give the same bytes wherever the same hatchling builds them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def build(project: Path, out: Path) -> list[Path]:
    """Build the sdist and the wheel of a project into a new folder, and return their paths."""
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "sdist",
        "--target",
        "wheel",
        "--directory",
        str(out),
    ]
    done = subprocess.run(command, cwd=project, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{project}: {done.stderr.strip()}")
    return sorted(out.iterdir())


def build_twice(project: Path, out: Path) -> Iterator[Path]:
    """Build a project, and again from its own sdist in another folder; yield each file that is the same."""
    with tempfile.TemporaryDirectory() as folder:
        built = build(project, Path(folder) / "built")
        with tarfile.open(next(path for path in built if path.suffix == ".gz")) as archive:
            archive.extractall(Path(folder) / "sdist", filter="data")
        (unpacked,) = (Path(folder) / "sdist").iterdir()
        again = build(unpacked, Path(folder) / "again")
        for first, second in zip(built, again, strict=True):
            if first.name != second.name or first.read_bytes() != second.read_bytes():
                raise SystemExit(f"{first.name} differs when it is built from the sdist: {compared(first, second)}")
            yield Path(shutil.copy(first, out))


def compared(first: Path, second: Path) -> str:
    """Return which members of two archives differ, or that none does."""
    lists = [members(path) for path in (first, second)]
    names = sorted(name for name in lists[0].keys() | lists[1].keys() if lists[0].get(name) != lists[1].get(name))
    return ", ".join(names[:5]) or "the same members, packed in another way"


def members(path: Path) -> dict[str, bytes]:
    """Return the members of a wheel or an sdist."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    with tarfile.open(path) as archive:
        files = ((item.name, archive.extractfile(item)) for item in archive)
        return {name: file.read() for name, file in files if file is not None}


def main() -> None:
    """Build every distribution."""
    if len(sys.argv) != 2:  # noqa: PLR2004 - the program and the folder
        sys.exit("into which folder? for instance: python scripts/dist.py dist")
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("suffice*.whl"), *out.glob("suffice*.tar.gz")):  # of another version
        old.unlink()
    for project in (ROOT, *(path.parent for path in sorted(ROOT.glob("packages/*/pyproject.toml")))):
        for path in build_twice(project, out):
            print(f"{path.stat().st_size / 1e6:6.1f} MB  {path.name}, the same when built again")


if __name__ == "__main__":
    main()
