"""The entry point of ``python -m suffice``."""

import os
import sys


def _is_same(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path or os.curdir, other)  # noqa: PTH121 - nothing more may be imported yet
    except OSError:
        return False


# Python puts the current folder first, where a module of somebody else would be imported instead of an installed one.
if (
    not sys.flags.safe_path
    and _is_same(sys.path[0], os.curdir)
    and not _is_same(sys.path[0], os.path.join(os.path.dirname(__file__), os.pardir))  # noqa: PTH118, PTH120
):
    del sys.path[0]

from suffice.cli.main import run  # noqa: E402

run()
