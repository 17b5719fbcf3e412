"""Convert published corpora to files for `--corpus`, with one passage per line, in the order of the source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice.common.files import check_file, replacing
from suffice.common.results import Result
from suffice.common.tables import Column, Table, counted
from suffice.errors import DataError
from suffice_retrieval.indexes.corpus_forms import title_and_text
from suffice_retrieval.question_sets.sources import CORPUS_FORM, PASSAGE_IDS, PASSAGE_TEXTS, QuestionSource


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusConversion(Result):
    """Summary of a converted corpus.

    Attributes:
        path: The passages.
        n_rows: Number of rows of the source.
        n_passages: Number of passages written.
        n_blank: Number of rows without text, which were left out.
        first_blank: The location of the first row without text; empty if every row has text.
    """

    path: Path
    n_rows: int
    n_passages: int
    n_blank: int
    first_blank: str

    def table(self) -> Table:
        """Return the numbers of rows and passages as a table."""
        rows = (("passages", self.n_passages), ("without text, left out", self.n_blank))
        return Table(title="Rows of the corpus", columns=(Column("what"), Column("rows", ",d")), rows=rows)

    @property
    def notes(self) -> list[str]:
        """Caveats for the reader."""
        if not self.n_blank:
            return []
        return [f"{counted(self.n_blank, 'row')} without text left out (the first: {self.first_blank})"]


def convert_corpus(source: QuestionSource, out: str | Path) -> CorpusConversion:
    """Write a corpus as JSON lines of ``id``, ``title`` and ``text``, which `suffice record --corpus` searches.

    The source may have the form of BEIR (``_id, title, text``), of DPR's passages (``id, text, title``), or of Pyserini
    (``id, contents``, where the first line of the contents is the title).  It is read row by row, so that a corpus of
    any size is converted in little memory.

    Args:
        source: The source of the rows, see `open_source`.
        out: A file that ends in ``.jsonl``.

    Raises:
        DataError: A row is not a passage, there are no passages, or the file cannot be written.
    """
    path = check_file(out)
    if path.suffix != ".jsonl":
        raise DataError(f"{str(path)!r}: a corpus is written as JSON lines; end the name in .jsonl")
    source.check_apart(path)
    n = blank = 0
    first = ""
    with replacing(path) as temporary, temporary.open("wb") as file:
        for where, row in source.rows(CORPUS_FORM):
            n += 1
            passage = _corpus_passage(row, n, where)
            if passage["text"].strip():
                file.write(json.dumps(passage, ensure_ascii=False).encode() + b"\n")
                continue
            blank += 1
            first = first or where
        if n == blank:
            raise DataError(f"{source.name}: none of its {counted(n, 'row')} is a passage with text")
    return CorpusConversion(path=path, n_rows=n, n_passages=n - blank, n_blank=blank, first_blank=first)


def _corpus_passage(row: Mapping[str, Any], number: int, where: str) -> dict[str, str]:
    """Convert a row to a passage; without an id, the number of the row becomes the id."""
    name = next((name for name in PASSAGE_TEXTS if name in row), "text")
    text = row.get(name) or ""
    title = row.get("title") or ""
    if not isinstance(text, str) or not isinstance(title, str):
        raise DataError(f"{where}: found {row!r:.80}; expected a text, and its title where it has one")
    if name == "contents" and not title:
        title, text = title_and_text(text)
    own = next((row[key] for key in PASSAGE_IDS if row.get(key) not in (None, "")), number)
    return {"id": str(own), "title": title, "text": text}
