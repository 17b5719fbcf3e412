"""Documents on disk as a corpus, and the index that is kept beside them."""

from __future__ import annotations

import errno
import json
import logging
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, strategies as st

from suffice.errors import DataError
from suffice_retrieval.indexes import CorpusBM25, index_corpus, open_corpus, read_corpus
from suffice_retrieval.indexes.corpus import corpus_source
from suffice_retrieval.indexes.passages import PASSAGE_WORDS, split_text


def split(text, name="doc", **options):
    return list(split_text(text.splitlines(keepends=True), name, **options))


def sentence(i, n=12):
    return " ".join([f"word{i}"] * (n - 1)) + " end."


# Passages


def test_a_short_text_is_one_passage():
    assert split("One line.\nAnd another.\n") == [("doc", "One line.\nAnd another.")]


def test_paragraphs_are_collected_up_to_the_size_and_never_cut_needlessly():
    paragraphs = [sentence(i, 50) for i in range(5)]
    parts = split("\n\n".join(paragraphs))
    assert [text.split("\n\n") for _, text in parts] == [paragraphs[:2], paragraphs[2:4], paragraphs[4:]]


def test_a_long_paragraph_is_cut_at_sentence_ends():
    parts = split(" ".join(sentence(i, 13) for i in range(40)))
    assert len(parts) == 5
    assert all(text.endswith("end.") and len(text.split()) <= PASSAGE_WORDS for _, text in parts)


def test_every_title_is_another_because_the_loop_reveals_each_title_once():
    titles = [title for title, _ in split(" ".join(sentence(i) for i in range(40)))]
    assert titles == ["doc", "doc (part 2)", "doc (part 3)", "doc (part 4)"]


def test_markdown_headings_end_a_passage_and_name_it():
    text = "Intro.\n# Install ##\nRun it.\n\n```\n# not a heading\n```\n## Use C#\nCall it.\n#hashtag stays\n# Install\nAgain."
    assert split(text, markdown=True) == [
        ("doc", "Intro."),
        ("doc: Install", "Run it.\n\n```\n# not a heading\n```"),
        ("doc: Use C#", "Call it.\n#hashtag stays"),
        ("doc: Install (part 2)", "Again."),
    ]
    assert split("# Install\nRun it.") == [("doc", "# Install\nRun it.")]


def test_an_empty_text_has_no_passages():
    assert split("") == split(" \n\n\t\n") == split("# Only a heading", markdown=True) == []


def test_one_endless_word_is_cut():
    parts = split("x" * 1_000_000)
    assert "".join(text for _, text in parts) == "x" * 1_000_000
    assert max(len(text) for _, text in parts) <= 2_000


@given(st.lists(st.text(st.sampled_from("ab. \n#x`"), max_size=400), max_size=6))
def test_splitting_loses_no_word_and_keeps_the_order(blocks):
    text = "\n\n".join(blocks)
    parts = split(text)
    assert "".join("".join(body.split()) for _, body in parts) == "".join(text.split())
    assert all(body and len(body.split()) <= PASSAGE_WORDS for _, body in parts)
    assert len({title for title, _ in parts}) == len(parts)


# Folders


@pytest.fixture
def docs(tmp_path):
    folder = tmp_path / "docs"
    (folder / "guide").mkdir(parents=True)
    (folder / "b.txt").write_text("The tempest was directed by Derek Jarman.")
    (folder / "guide" / "a.md").write_text("# Films\nJubilee is a film of 1978.")
    (folder / "guide" / "picture.png").write_bytes(b"\x89PNG")
    (folder / ".hidden.txt").write_text("secret")
    (folder / ".git").mkdir()
    (folder / ".git" / "c.txt").write_text("secret")
    return folder


def test_a_folder_is_read_recursively_in_the_order_of_paths(docs):
    found = list(read_corpus(docs))
    assert [(passage.passage_id, passage.title) for passage in found] == [
        ("b.txt#0", "b"),
        ("guide/a.md#0", "a: Films"),
    ]


def test_files_of_one_name_get_different_titles(docs):
    (docs / "a.md").write_text("# Films\nOther.")
    (docs / "a.txt").write_text("Third.")
    titles = [passage.title for passage in read_corpus(docs)]
    assert titles == ["a.md: Films", "a.txt", "b", "guide/a: Films"]


def test_a_file_that_is_not_utf8_is_named_or_read_with_replacements(docs):
    (docs / "latin.txt").write_bytes("caf\u00e9 au lait".encode("latin-1"))
    with pytest.raises(DataError, match="errors='replace'"):
        list(read_corpus(docs, errors="strict"))
    assert "caf\ufffd au lait" in [passage.text for passage in read_corpus(docs, errors="replace")]


@pytest.mark.parametrize("read", [lambda path: list(read_corpus(path)), lambda path: open_corpus(path).passages])
def test_what_is_skipped_in_a_folder_is_counted_by_kind_or_named(docs, read, caplog):
    for i in range(3):
        (docs / "guide" / f"{i}.PDF").write_bytes(b"%PDF")
    (docs / "Makefile").write_text("all:")
    (docs / "gone.md").symlink_to(docs / "nowhere.md")
    whole = [passage.passage_id for passage in read_corpus(docs)]
    caplog.clear()
    # The first half is fine: nothing of such a file is kept.
    (docs / "latin.txt").write_bytes(("fine\n\n" * 90_000 + "caf\u00e9").encode("latin-1"))
    assert [passage.passage_id for passage in read(docs)] == whole
    kinds, names, *_ = (
        entry.getMessage() for entry in caplog.records if entry.name == "suffice_retrieval.indexes.corpus"
    )
    assert "skipped 3 .pdf, 1 .png, 1 broken links, 1 without a suffix;" in kinds
    assert names.endswith("not UTF-8: latin.txt")


def test_a_folder_of_which_nothing_is_utf8_is_an_error(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match="1 documents"):
        list(read_corpus(tmp_path))


def test_a_byte_order_mark_is_not_text(docs):
    (docs / "b.txt").write_bytes(b"\xef\xbb\xbfHello")
    assert next(read_corpus(docs)).text == "Hello"


def test_a_folder_without_documents_and_a_missing_or_foreign_path_are_errors(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "table.csv").write_text("a,b")
    cases = {"empty": "no .txt", "nowhere": "exist", "table.csv": "'a,b'"}
    for name, message in cases.items():
        for read in (read_corpus, open_corpus, corpus_source):
            with pytest.raises(DataError, match=message):
                list(read(tmp_path / name))


def test_large_documents_are_read_one_passage_at_a_time(tmp_path):
    for i in range(10):
        (tmp_path / f"{i}.txt").write_text("\n".join(sentence(j) for j in range(600)))
    tracemalloc.start()
    count = sum(1 for _ in read_corpus(tmp_path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert count > 10 * 50
    assert size > 400_000
    assert peak < size / 1.2, "one document at a time, not the corpus"


# JSON lines


def test_json_lines_are_passages_as_they_are(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [{"id": "x", "title": "T", "text": "long " * 500}, {"title": "U", "text": ""}, {"id": 7, "text": "n"}]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    found = list(read_corpus(path))
    assert [(passage.passage_id, passage.title) for passage in found] == [("x", "T"), ("2", "U"), ("7", "7")]
    assert found[0].text == "long " * 500


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "an object"),
        (b'{"title": "t"}', "an object"),
        (b'{"text": 3}', "an object"),
        (b'{"text": "t", "id": [1]}', "expected strings"),
        (b'{"text": "t", "id": true}', "expected strings"),
        (b'{"text": "t", "title": 1}', "expected strings"),
        (b'{"text": "t", "id": "a"}', "already used"),
        (b'{"text": "\xe9"}', "UTF-8"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b'{"id": "a", "text": "fine"}\n' + line + b"\n")
    with pytest.raises(DataError, match=message) as raised:
        list(read_corpus(path))
    assert "corpus.jsonl, line 2" in str(raised.value)


# The kept index


def test_an_index_is_built_once_and_found_again(docs, monkeypatch):
    first = open_corpus(docs)
    assert first.rank("Who directed the tempest?", k=1)[0].title == "b"
    assert (docs.parent / "docs.suffice-index").is_dir()
    monkeypatch.setattr(CorpusBM25, "build", lambda *_, **__: pytest.fail("the index was built again"))
    again = open_corpus(docs)
    assert tuple(again.passages) == tuple(first.passages)
    assert again.rank("1978 film") == first.rank("1978 film")


@pytest.mark.parametrize(
    "edit",
    [
        lambda docs: (docs / "b.txt").write_text("Something else."),
        lambda docs: (docs / "new.txt").write_text("New."),
        lambda docs: (docs / "b.txt").unlink(),
        lambda docs: (docs / "b.txt").rename(docs / "c.txt"),
    ],
)
def test_a_changed_corpus_is_indexed_again(docs, edit):
    contents = tuple(open_corpus(docs).passages)
    edit(docs)
    after = open_corpus(docs)
    assert tuple(after.passages) == tuple(read_corpus(docs)) != contents


def test_a_damaged_index_is_built_again(docs, tmp_path):
    kept = tmp_path / "kept"
    first = open_corpus(docs, kept)
    (kept / "bm25s" / "data.csc.index.npy").write_bytes(b"")
    assert open_corpus(docs, kept).rank("film") == first.rank("film")
    assert len(CorpusBM25.load(kept)) == 2


def test_an_index_folder_of_ones_own_is_used(docs, tmp_path):
    open_corpus(docs, tmp_path / "kept")
    assert len(CorpusBM25.load(tmp_path / "kept")) == 2
    assert not (tmp_path / "docs.suffice-index").exists()


def test_a_json_lines_corpus_keeps_its_index_beside_it(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"title": "T", "text": "tempest"}\n')
    assert open_corpus(path).rank("tempest")[0].title == "T"
    assert (tmp_path / "corpus.jsonl.suffice-index").is_dir()


def test_of_several_processes_one_builds_the_index_and_the_others_wait(docs, monkeypatch, caplog):
    # A lock belongs to an opened file, so that threads wait for each other as processes do.
    builds, is_building, waits = [], threading.Event(), threading.Event()
    build = CorpusBM25.build

    def slow(*args, **options):
        builds.append(1)
        is_building.set()
        assert waits.wait(600), "nobody waits for the lock"
        return build(*args, **options)

    monkeypatch.setattr(CorpusBM25, "build", slow)
    caplog.set_level(logging.WARNING)
    caplog.handler.addFilter(lambda record: waits.set() or True if "waiting for" in record.getMessage() else True)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(open_corpus, docs)
        assert is_building.wait(600)
        second = pool.submit(open_corpus, docs)
        assert first.result().rank("film") == second.result().rank("film")
    assert len(builds) == 1
    assert f"waiting for another process: the index of {docs} is being built" in caplog.text


def test_a_folder_with_other_files_gets_no_lock(docs, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("Dear")
    with pytest.raises(DataError, match="other files"):
        index_corpus(docs, tmp_path / "mine")
    assert [item.name for item in (tmp_path / "mine").iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("place", ["docs", "docs/index", "docs/a/../index/deep"])
def test_an_index_is_never_written_into_its_own_corpus(docs, place):
    with pytest.raises(DataError, match="another folder"):
        index_corpus(docs, docs.parent / place)
    assert not (docs / "index").exists()
    assert index_corpus(docs, docs / ".index").n_passages == 2  # hidden folders are not read
    assert not index_corpus(docs, docs / ".index").is_new


@pytest.mark.parametrize("content", ["", "\n\n", "id\ttext\ttitle\n", "id\ttext\n"])
def test_a_corpus_without_passages_is_an_error(tmp_path, content):
    (tmp_path / "corpus.tsv").write_text(content)
    with pytest.raises(DataError, match="no passages"):
        index_corpus(tmp_path / "corpus.tsv", tmp_path / "index")


def test_without_locks_the_index_is_built_and_this_is_logged(docs, monkeypatch, caplog):
    def refuse(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    assert len(open_corpus(docs)) == 2
    assert "let only one process at a time do this" in caplog.text


def test_an_index_without_writable_place_lives_in_memory_unless_named(docs, caplog):
    (docs.parent / "docs.suffice-index").write_text("a file is in the way")
    with caplog.at_level(logging.WARNING):
        assert len(open_corpus(docs)) == 2
    assert "is not saved" in caplog.text
    with pytest.raises(DataError, match="be written"):
        open_corpus(docs, docs.parent / "docs.suffice-index")


def test_a_new_index_beside_its_corpus_is_named_once(docs, caplog):
    for times in (1, 1):
        open_corpus(docs)
        assert caplog.text.count("docs.suffice-index") == times
    open_corpus(docs, docs.parent / "named")
    assert caplog.text.count("is kept in") == 1
