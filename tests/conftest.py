"""What every test runs under, and fixtures that each may ask for."""

import gc
import hashlib
import json
import os
import pickle
import platform
import random
import ssl
import sys
import uuid
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType

# Two tests run at a time: one thread each, as waiting threads only take the processor from the other's.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

gc.disable()  # until all tests are collected: what is imported and collected stays

import pytest  # noqa: E402
from hypothesis import HealthCheck, Phase, settings  # noqa: E402
from scripts.slow_tests import LISTED, function_of  # noqa: E402

from suffice.recordings import journal_file  # noqa: E402
from suffice.recordings.recording import write_recording  # noqa: E402
from tests.support import quick, shared  # noqa: E402
from tests.support.cli_tools import cli  # noqa: E402
from tests.support.coin import coin  # noqa: E402
from tests.support.shared import *  # noqa: E402, F403

# A law holds on slow and busy machines too.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
# For a mutant it is enough to know that it fails, and every run must draw the same.
settings.register_profile(
    "mutants", settings(), max_examples=100, phases=(Phase.explicit, Phase.generate), derandomize=True, database=None
)

DEAR = {"subprocess.Popen": "starts a process", "os.fork": "starts a process", "os.posix_spawn": "starts a process"}
"""What only tests marked `whole` may do, by audit event."""
_guarded = None
SYNC, SYNC_FILE = os.fsync, journal_file._sync_file


def pytest_collection_modifyitems(items):
    """Mark slow tests and those that use what workers share or run a command; order files so that both workers stay busy.

    First, for each thing that is shared, one file that makes it; then the files with the most whole tests; then those
    that wait for what is shared; and last the short tests, which even out the workers.

    Where `SUFFICE_TEST_ORDER` is a seed: shuffle files, and the tests of each; the same in every worker.
    """
    makers, waiting, keys, commanding = {}, set(), {}, {}
    slow = frozenset(LISTED.read_text("utf-8").split())
    for item in items:
        function = function_of(item.nodeid)
        if function in slow:
            item.add_marker("slow")
        if function not in commanding:
            commanding[function] = "browser" in getattr(item, "fixturenames", ()) or _runs_a_command(item)
        if commanding[function]:
            item.add_marker("whole")
        for name in {*shared.__all__}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("whole")
            makers.setdefault(name, item.path)
            waiting.add(item.path)
    if seed := os.environ.get("SUFFICE_TEST_ORDER"):
        rng = random.Random(seed)
        items.sort(key=lambda item: (keys.setdefault(item.path, rng.random()), rng.random()))
    else:
        whole = Counter(item.path for item in items if item.get_closest_marker("whole"))
        for path in {item.path for item in items}:
            place = 0 if path in makers.values() else 2 if path in waiting else 1 if whole[path] else 3
            keys[path] = (place, -whole[path])
        items.sort(key=lambda item: keys[item.path])


def _runs_a_command(item):
    """Return whether a test, or a fixture that it asks for, calls `cli`, by itself or by a helper of the tests."""
    fixtures = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {}).values()
    asked = [getattr(item, "function", None), *(definitions[-1].func for definitions in fixtures)]
    waiting, seen = (
        [getattr(getattr(function, "hypothesis", None), "inner_test", function) for function in asked],
        set(),
    )
    while waiting:
        function = waiting.pop()
        if function is cli:
            return True
        if isinstance(function, FunctionType) and function.__module__.startswith("tests.") and function not in seen:
            seen.add(function)
            waiting += [function.__globals__.get(name) for name in _names(function.__code__)]
    return False


@cache
def _names(code):
    inner = [_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return {*code.co_names}.union(*inner)


def pytest_collection_finish():
    """Spare the garbage collector what was imported and collected: it stays to the end, and a million objects take long.

    One test alone, of a function that collects garbage at each call, took 20 seconds for it.  And a young generation of
    Python's size is collected so often while a test parses all sources that it takes three times as long.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)
    gc.enable()
    sys.addaudithook(_guard)  # not before: a second goes into asking it about all that is imported


@pytest.fixture(scope="session", autouse=True)
def _own_configuration(tmp_path_factory):
    """What a developer approved on this machine decides no test, and what a test approves stays here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.delenv("SUFFICE_APPROVE", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _certificates_are_read_once():
    """Each client of a test would read those of all authorities again, which takes longer than what it asks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def _nothing_waits_for_the_disk():
    """A sync takes longer than most tests, and only a power cut would show what it does; `real_syncs` brings it back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which refuses what is no open file as well
        patch.setattr(journal_file, "_sync_file", os.fstat)
        yield


@pytest.fixture(scope="module")
def real_syncs():
    """Let files be synced as in use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", SYNC)
        patch.setattr(journal_file, "_sync_file", SYNC_FILE)
        yield


@pytest.fixture(scope="session")
def cut():
    """Real answers that a coin cut, see `tests/support/coin.py`."""
    return coin()


@pytest.fixture(scope="session")
def cut_path(cut, tmp_path_factory):
    """What the coin left, as a file."""
    path = tmp_path_factory.mktemp("coin") / "cut.parquet"
    write_recording(path, cut.cut.table, cut.cut.metadata)
    return path


@pytest.fixture(scope="module")
def remembered_windows(tmp_path_factory):
    """Let the embedded reader and encoder encode each window and piece once in a test session, whichever worker comes first.

    Nothing else decides what they return for one, see `tests/suffice_reader/test_span_reader.py` and `tests/suffice/policy/test_embedder.py`.
    """
    from suffice_reader.minilm import MiniLM
    from suffice_reader.span_reader import SpanReader

    folder = shared.once(tmp_path_factory, "windows", Path.mkdir)

    def remembered(encode, tokens):
        def encoded(encoder, piece):
            digest = hashlib.sha256(f"{type(encoder).__name__} {encoder.revision}".encode() + tokens(piece))
            path = folder / f"{digest.hexdigest()}.pickle"
            if not path.exists():
                unfinished = folder / uuid.uuid4().hex
                unfinished.write_bytes(pickle.dumps(encode(encoder, piece)))
                unfinished.replace(path)
            # Not with numpy, which reads Python's syntax: see `suffice.common.syntax` for what that does in threads.
            return pickle.loads(path.read_bytes())

        return encoded

    with pytest.MonkeyPatch.context() as patch:
        windows = remembered(SpanReader._score, lambda window: window.ids.tobytes() + window.types.tobytes())
        patch.setattr(SpanReader, "_score", windows)
        patch.setattr(MiniLM, "_mean", remembered(MiniLM._mean, lambda ids: ids.tobytes()))
        yield


@pytest.fixture(scope="session", autouse=True)
def _bundled_models_are_loaded_once():
    """Loading one takes a quarter of a second, and each command does."""
    if find_spec("suffice_reader") is None:  # the server alone
        yield
        return
    from suffice_reader import minilm, onnx, span_reader

    kept = {}

    def load(path, name, what, **read):
        is_blocked = None in (sys.modules.get("onnxruntime", 0), sys.modules.get("tokenizers", 0))
        if path is not None or is_blocked:
            return onnx.load_onnx(path, name, what, **read)
        if name not in kept:
            kept[name] = onnx.load_onnx(path, name, what, **read)
        return kept[name]

    with pytest.MonkeyPatch.context() as patch:
        for module in (minilm, span_reader):
            patch.setattr(module, "load_onnx", load)
        yield


@pytest.fixture
def quick_reader(monkeypatch):
    """Answer and embed without networks: see `tests/support/quick.py`."""
    from suffice_reader.minilm import MiniLM
    from suffice_reader.span_reader import SpanReader

    monkeypatch.setattr(SpanReader, "read", quick.read)
    monkeypatch.setattr(MiniLM, "_mean", quick.mean)


@pytest.fixture(scope="module")
def no_collecting():
    """Spare the tests what statsmodels and `suffice run` do: collect the garbage of all modules and tests so far."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "collect", lambda *_: 0)
        yield


@pytest.fixture(scope="module")
def quick_runs(no_collecting):
    """Let `suffice run` write empty pictures: `tests/suffice_papers/test_paper_tasr.py` draws those that it writes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("suffice.common.display.chart.picture", quick.picture)
        yield


@pytest.fixture(scope="module")
def no_model_cards():
    """Spare training the page beside each checkpoint: sentence-transformers compiles its template every time anew."""
    from sentence_transformers import CrossEncoder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CrossEncoder, "_create_model_card", lambda *_, **__: None)
        yield


@pytest.fixture(scope="module")
def few_tables():
    """Let `suffice run` make four of TASR's tables: the search alone takes longer than recording what it reads.

    `tests/suffice_papers/test_experiments.py` makes all of them once.
    """
    from suffice_papers.tasr import tasr_tables

    with pytest.MonkeyPatch.context() as patch:
        few = ("Table 1", "Figure 2, left", "Figure 2, right", "Figure 5")
        patch.setattr(tasr_tables, "PARTS", {name: tasr_tables.PARTS[name] for name in few})
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Let only tests that are marked `whole` start processes and load torch: `make check` leaves those out."""
    global _guarded  # noqa: PLW0603
    _guarded = None if item.get_closest_marker("whole") else item.nodeid
    try:
        return (yield)
    finally:
        _guarded = None


def _guard(event, arguments):
    if _guarded and (what := "imports torch" if event == "import" and arguments[0] == "torch" else DEAR.get(event)):
        pytest.fail(f"{_guarded} {what}: mark it `whole`")


platform.processor()  # the client of endpoints asks for it, and the first to ask starts a process


@pytest.fixture
def impatient(monkeypatch):
    """Functions of a request's JSON: where one is true, a reply is waited for a 200th of the limit, on any machine.

    Connecting and sending keep the whole limit, so that a request that hangs has always been sent.
    """
    from suffice.loops.models._endpoints import Endpoints

    hangs, send = [], Endpoints.send

    def sent(endpoints, request, exchange, *, blocking):
        limits = request.extensions["timeout"]
        if any(hang(json.loads(request.content)) for hang in hangs):
            request.extensions["timeout"] = limits | {"read": limits["read"] / 200}
        return send(endpoints, request, exchange, blocking=blocking)

    monkeypatch.setattr(Endpoints, "send", sent)
    return hangs
