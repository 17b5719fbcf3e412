"""What the tests share, and what only those marked `whole` may do."""

import subprocess
import sys

import numpy as np
import pytest

from suffice_reader.minilm import MiniLM
from suffice_reader.span_reader import SpanReader
from tests.support.cli_tools import cli
from tests.support.shared import once


def test_what_is_shared_is_made_once(tmp_path_factory):
    made = []
    folders = [once(tmp_path_factory, "something", made.append) for _ in range(3)]
    assert made == [folders[0]]
    assert len(set(folders)) == 1


def test_what_broke_while_it_was_made_is_made_again(tmp_path_factory):
    with pytest.raises(ZeroDivisionError):
        once(tmp_path_factory, "broken", lambda _: 1 / 0)
    assert once(tmp_path_factory, "broken", lambda folder: folder.mkdir()).is_dir()


def test_a_remembered_window_gives_what_the_reader_gives(request):
    asked = (
        "Who wrote it?",
        [("The Tempest", "William Shakespeare wrote it about 1611."), ("Rum", "Others drank it.")],
    )
    expected = SpanReader().read(*asked)
    request.getfixturevalue("remembered_windows")
    assert SpanReader().read(*asked) == expected
    other = SpanReader()
    other._session = None  # nothing is left to encode
    assert other.read(*asked) == expected


def test_a_remembered_piece_gives_what_the_encoder_gives(request):
    texts = ["Who wrote The Tempest?", "Others drank rum."]
    expected = MiniLM().embed(texts)
    request.getfixturevalue("remembered_windows")
    assert np.array_equal(MiniLM().embed(texts), expected)
    other = MiniLM()
    other._session = None  # nothing is left to encode
    assert np.array_equal(other.embed(texts), expected)


def helped():
    return [cli(*words) for words in [("--version",)]]


@pytest.fixture
def version():
    return helped()[0]


def test_what_runs_a_command_is_marked(version, request):
    assert version.code == 0
    assert request.node.get_closest_marker("whole")


def test_what_runs_no_command_is_not_marked(request):
    assert not request.node.get_closest_marker("whole")


def test_an_unmarked_test_starts_no_process():
    with pytest.raises(pytest.fail.Exception, match="starts a process"):
        subprocess.run([sys.executable, "-c", ""], check=True)


def test_an_unmarked_test_does_not_load_torch(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(pytest.fail.Exception, match="imports torch"):
        import torch  # noqa: F401
