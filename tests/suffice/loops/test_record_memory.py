"""The file of a recording is written piece by piece: what it takes does not grow with what was recorded."""

from __future__ import annotations

import contextlib
import tracemalloc
from functools import partial

import pyarrow as pa
import pytest

from suffice import record
from suffice.errors import AuthenticationFailedError
from suffice.loops import assembly, record_run
from suffice.recordings import Journal, stored
from suffice.recordings.journal_file import read_records
from tests.support.recording import scripted

pytestmark = pytest.mark.whole

TEXT, ROUNDS = 20_000, 10
"""Characters of each reply, and replies to each question."""

FEW, MANY = 45, 70
"""Questions of a short and of a long recording; the rows of the short one are written in pieces, too."""

FEWER = 10
"""How many times fewer rows a piece has here: what is traced costs by the row, and the texts are longer instead."""


@pytest.fixture(scope="module", autouse=True)
def _small_pieces():
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((record_run, "_ROWS_READ"), (stored, "_ROWS_AT_A_TIME")):
            patch.setattr(module, name, getattr(module, name) // FEWER)
        patch.setattr(record_run, "Assembly", partial(assembly.Assembly, rows=assembly.ROWS // FEWER))
        yield


def begun(folder, n):
    """Return two questions, their loop and their file, beside which a journal holds `n` finished questions."""
    questions, loop = scripted(n=2, rounds=1, failures={2: AuthenticationFailedError("401")})
    path = folder / "r.parquet"
    with pytest.raises(AuthenticationFailedError):
        record(questions, loop, path, concurrency=1)
    journal = folder / "r.parquet.journal"
    (config,) = [record[1] for record in read_records(journal) if record[0] == "config"]
    ((row,),) = [record[2] for record in read_records(journal) if record[0] == "finished"]
    with contextlib.closing(Journal(journal, config)) as opened:
        for i in range(n):
            name = f"other{i}"
            changed = {"question_id": name, "cluster": name, "text": f"{i:06}" + "x" * TEXT}
            opened.finish(name, [{**row, **changed, "round": r} for r in range(1, ROUNDS + 1)])
    return questions, scripted(n=2, rounds=1)[1], path


@contextlib.contextmanager
def peak():
    """Give a function that returns the most bytes, of Python and of Arrow, that were held since the block began."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1] + pool.max_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


def grown(measured):
    """Return by how many bytes the peak grows with each further question."""
    return (measured[MANY] - measured[FEW]) / (MANY - FEW)


@pytest.fixture(scope="module")
def peaks(tmp_path_factory):
    """Return the peaks of writing a journal's rows to a new file, and of adding a question to that file."""
    written, added = {}, {}
    questions, loop, path = begun(tmp_path_factory.mktemp("warm"), 1)
    record(questions, loop, path)  # what is imported and kept at the first use is part of no peak
    for n in (FEW, MANY):
        questions, loop, path = begun(tmp_path_factory.mktemp(str(n)), n)
        with peak() as held:
            assert record(questions[:1], loop, path).questions == n + 1
            written[n] = held()
        with peak() as held:
            assert record(questions, loop, path).questions == n + 2
            added[n] = held()
    return written, added


def test_writing_what_the_journal_holds_takes_no_more_memory_for_more_questions(peaks):
    assert grown(peaks[0]) < ROUNDS * TEXT / 8  # names and places of questions, not what they say


def test_adding_a_question_takes_no_more_memory_for_a_larger_file(peaks):
    assert grown(peaks[1]) < ROUNDS * TEXT / 8
