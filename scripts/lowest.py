"""Print the lowest version that each direct dependency is declared to work with, for `pip install`.

Arguments are extras, whose dependencies are printed with those of the package.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def lowest(requirements: list[str]) -> list[str]:
    """Return each ``name>=version`` as ``name==version``.

    >>> lowest(["numpy>=1.26", "math-verify[antlr4-13-2]>=0.9,<1"])
    ['numpy==1.26', 'math-verify[antlr4-13-2]==0.9']
    """
    found = [re.match(r"([\w.-]+(?:\[[\w,-]+\])?)\s*>=\s*([\w.]+)", requirement) for requirement in requirements]
    unbound = [requirement for requirement, match in zip(requirements, found, strict=True) if match is None]
    if unbound:
        raise SystemExit(f"no lower bound: {', '.join(unbound)}")
    return [f"{match[1]}=={match[2]}" for match in found if match]


if __name__ == "__main__":
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    extras = [requirement for name in sys.argv[1:] for requirement in project["optional-dependencies"][name]]
    sys.stdout.write("\n".join(lowest([*project["dependencies"], *extras])) + "\n")
