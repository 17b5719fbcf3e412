"""Set the version of every distribution: `python scripts/version.py 0.5.0`."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def files() -> list[Path]:
    """Return the files that name the version."""
    return [
        ROOT / "pyproject.toml",
        ROOT / "CITATION.cff",
        ROOT / "src" / "suffice" / "_version.py",
        *sorted(ROOT.glob("packages/*/pyproject.toml")),
        *sorted(ROOT.glob("packages/*/package*.json")),
    ]


def versions() -> dict[Path, set[str]]:
    """Return every version that each file names, pins among distributions included."""
    pattern = re.compile(
        r'^(?:version(?: =|:) "?|__version__ = "|  "suffice(?:-[a-z]+)?==|  "version": ")([^"\n]+)', re.MULTILINE
    )
    return {
        path: {re.sub(r"-(a|b|rc)\.", r"\1", found) for found in pattern.findall(path.read_text("utf-8"))}
        for path in files()
    }


def spelled(version: str, path: Path) -> str:
    """Return a version as a file spells it: npm writes a release candidate in another way.

    >>> spelled("1.0.0rc1", Path("pyproject.toml")), spelled("1.0.0rc1", Path("package.json"))
    ('1.0.0rc1', '1.0.0-rc.1')
    """
    return re.sub(r"(a|b|rc)(\d+)$", r"-\1.\2", version) if path.suffix == ".json" else version


def set_version(version: str) -> None:
    """Write a version into every file."""
    for path, before in versions().items():
        text = path.read_text("utf-8")
        for old in before:
            there, now = re.escape(spelled(old, path)), spelled(version, path)
            text = re.sub(rf'(?<=[ "=]){there}(?="|$)', now, text, flags=re.MULTILINE)
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:  # noqa: PLR2004 - the program and the version
        sys.exit("which version? for instance: python scripts/version.py 0.5.0")
    set_version(sys.argv[1])
