"""Run benchmarks and print one JSON line for each: `python -m benchmarks [NAME...]`.

A name is that of a module without `bench_`.  The tables of the modules go to standard error, so that standard output
holds JSON lines only; the last one is a summary.  Exit code 1 if a benchmark failed, 2 if there is none of that name.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import pkgutil
import platform
import subprocess
import sys
import time
import traceback
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import benchmarks

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("suffice", "numpy", "scipy", "pyarrow", "onnxruntime")


def names() -> list[str]:
    """Return every benchmark, by name."""
    return sorted(
        module.name.removeprefix("bench_")
        for module in pkgutil.iter_modules(benchmarks.__path__)
        if module.name.startswith("bench_")
    )


def commit() -> str | None:
    """Return the commit of the checkout, `+` behind it if files differ from it; None outside a repository."""
    try:
        found, changes = (
            subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
            for arguments in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found + ("+" if changes else "")


def versions() -> dict[str, str]:
    """Return the versions that every figure depends on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def measure(name: str) -> dict[str, Any]:
    """Run one benchmark; a failure is part of the result."""
    began = time.perf_counter()
    common = {"benchmark": name, "commit": commit(), "cpus": os.cpu_count()}
    try:
        with contextlib.redirect_stdout(sys.stderr):
            figures = importlib.import_module(f"benchmarks.bench_{name}").run()
        outcome: dict[str, Any] = {"ok": True, **figures}
    except Exception as error:  # noqa: BLE001 - one failing benchmark does not hide the others
        traceback.print_exc()
        outcome = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    seconds = round(time.perf_counter() - began, 1)
    return {**common, **outcome, "versions": versions() | outcome.get("versions", {}), "took_s": seconds}


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for and return the exit code."""
    known = names()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"which ones, all if none is given: {', '.join(known)}")
    asked = parser.parse_args(arguments).name or known
    unknown = [name for name in asked if name not in known]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are: {', '.join(known)}")
    results = []
    for name in asked:
        print(f"\n== {name}", file=sys.stderr)
        results.append(measure(name))
        print(json.dumps(results[-1]), flush=True)
    failed = [result["benchmark"] for result in results if not result["ok"]]
    print(json.dumps({"summary": True, "ran": len(results), "failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
