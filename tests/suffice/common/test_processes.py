"""One function over many parts, in this process and in others."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import psutil
import pytest

from suffice.common.processes import over_parts, process_pool
from suffice.errors import DataError, MissingExtraError, SufficeError, WorkerDiedError


def worker(folder, part):
    """Return a part with the process that worked on it; the first part ends after another one, if a folder is given."""
    if folder is not None:
        (folder / part).touch()
        while part == "part-0" and not (folder / "part-1").exists():
            time.sleep(0.01)
    return part, os.getpid()


class StubbornError(SufficeError):
    """An error that pickle cannot rebuild."""

    def __init__(self, feature, wanted):
        super().__init__(f"{feature} needs {wanted}")


def failing(part):
    if part == "part-2":
        raise DataError("no rounds")
    if part == "part-3":
        raise MissingExtraError("this", "endpoint")
    if part == "part-6":
        raise StubbornError("this", "that")
    if part == "part-4":
        raise ZeroDivisionError("a bug")
    if part == "part-5":
        signal.raise_signal(signal.SIGKILL)
    return part


def test_one_job_works_in_this_process_part_by_part():
    progress = []
    results = over_parts(partial(worker, None), ["part-0", "part-1"], on_progress=lambda *done: progress.append(done))
    assert progress == []  # nothing runs before its result is asked for
    assert next(results) == ("part-0", os.getpid())
    assert progress == [(1, 2)]
    assert next(results) == ("part-1", os.getpid())
    assert list(over_parts(str, [], jobs=4)) == []
    assert list(over_parts(lambda part: part, [7], jobs=4)) == [7]  # one part needs no other process
    with pytest.raises(DataError, match="not 0"):
        over_parts(str, [1, 2], jobs=0)


@pytest.mark.parametrize("part", [2, 3, 4])
def test_an_error_names_its_part(part):
    kinds = {2: DataError, 3: MissingExtraError, 4: ZeroDivisionError}
    with pytest.raises(kinds[part]) as error:
        list(over_parts(failing, ["part-1", f"part-{part}"]))
    assert f"part-{part}" in str(error.value) + "".join(getattr(error.value, "__notes__", ()))


@pytest.mark.whole
def test_results_of_processes_come_in_the_order_of_the_parts(tmp_path):
    parts, progress = [f"part-{i}" for i in range(12)], []
    results = list(
        over_parts(partial(worker, tmp_path), parts, jobs=2, on_progress=lambda *done: progress.append(done))
    )
    assert [part for part, _ in results] == parts
    assert len({process for _, process in results} - {os.getpid()}) == 2
    assert progress == [(i + 1, 12) for i in range(12)]


@pytest.mark.whole
def test_an_error_in_a_process_names_the_part():
    with process_pool(2) as pool:
        for part, error, says in (
            ("part-2", DataError, "part-2"),
            ("part-3", MissingExtraError, "part-3"),
            ("part-6", SufficeError, "part-6: StubbornError"),
        ):
            with pytest.raises(error, match=says):
                list(over_parts(failing, ["part-1", part], jobs=2, pool=pool))


@pytest.mark.whole
def test_the_death_of_a_process_names_the_part():
    with pytest.raises(WorkerDiedError, match=r"part-5.*killed"):
        list(over_parts(failing, ["part-1", "part-5"], jobs=2))


@pytest.mark.whole
def test_processes_end_with_the_one_that_started_them(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, pathlib, time\nfrom suffice.common.processes import over_parts\n"
        "def work(part):\n"
        f"    pathlib.Path({str(tmp_path)!r}, part).write_text(str(os.getpid()))\n"
        "    time.sleep(600)\n"
        "if __name__ == '__main__':\n    list(over_parts(work, ['a', 'b'], jobs=2))\n"
    )
    with subprocess.Popen([sys.executable, str(program)], stderr=subprocess.DEVNULL) as first:
        while not all((tmp_path / name).exists() and (tmp_path / name).read_text() for name in "ab"):
            assert first.poll() is None
            time.sleep(0.02)
        workers = [int((tmp_path / name).read_text()) for name in "ab"]
        first.kill()
    _ended, alive = psutil.wait_procs([item for item in psutil.process_iter() if item.pid in workers], timeout=300)
    assert not alive


@pytest.mark.whole
def test_one_pool_runs_several_functions_also_after_an_error():
    with process_pool(2) as pool:
        parts = ["3", "x", "14"]
        assert list(over_parts(len, parts, jobs=2, pool=pool)) == [1, 1, 2]
        with pytest.raises(ValueError, match="'x'"):
            list(over_parts(int, parts, jobs=2, pool=pool))
        assert list(over_parts(str.upper, parts, jobs=2, pool=pool)) == ["3", "X", "14"]
    with process_pool(1) as pool:
        assert pool is None
