"""Cut long texts into passages of about 120 words each, at paragraph borders if possible."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

PASSAGE_WORDS = 120
"""Paragraphs are collected up to this number of words; a longer paragraph is cut at the last sentence end before that."""

_NON_BLANK = re.compile(r"\S+")
_HEADING = re.compile(r" {0,3}#{1,6}(?=[ \t]|$)")
_CLOSING = re.compile(r"[ \t]#+$")
_SENTENCE_BREAK = (".", "!", "?", "\u3002", "\uff01", "\uff1f")
_MAX_CHARACTERS = 2_000  # a "word" may be a megabyte long


def split_text(lines: Iterable[str], name: str, *, markdown: bool = False) -> Iterator[tuple[str, str]]:
    r"""Yield `(title, text)` of each passage; titles are unique.

    >>> list(split_text(["# Install\n", "Run it.\n", "\n", "Done.\n", "# Use\n", "Call it.\n"], "guide", markdown=True))
    [('guide: Install', 'Run it.\n\nDone.'), ('guide: Use', 'Call it.')]

    Args:
        lines: The lines of one document, with or without line ends.
        name: The document's name, unique in its corpus.
        markdown: True if lines that start with ``#`` are headings; a heading ends a passage, and is part of the titles
            of the passages under it.
    """
    counts: dict[str, int] = {}
    for heading, text in _passages_of_lines(lines, markdown=markdown):
        title = f"{name}: {heading}" if heading else name
        counts[title] = counts.get(title, 0) + 1
        yield (title if counts[title] == 1 else f"{title} (part {counts[title]})"), text


def _passages_of_lines(lines: Iterable[str], *, markdown: bool) -> Iterator[tuple[str, str]]:
    """Yield `(heading, text)` of each passage, which collects paragraphs up to the size of a passage."""
    pieces: list[str] = []
    count, length, current = 0, 0, ""
    for heading, paragraph in _paragraphs(lines, markdown=markdown):
        for piece in _cut_paragraph(paragraph):
            size = len(_NON_BLANK.findall(piece))
            full = count + size > PASSAGE_WORDS or length + len(piece) > _MAX_CHARACTERS
            if pieces and (heading != current or full):
                yield current, "\n\n".join(pieces)
                pieces, count, length = [], 0, 0
            current = heading
            pieces.append(piece)
            count, length = count + size, length + len(piece)
    if pieces:
        yield current, "\n\n".join(pieces)


def _paragraphs(lines: Iterable[str], *, markdown: bool) -> Iterator[tuple[str, str]]:
    """Yield `(heading, paragraph)`; blank lines and headings separate paragraphs."""
    block: list[str] = []
    heading, fenced = "", False
    for raw in lines:
        line = raw.rstrip()
        if markdown and line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        match = _HEADING.match(line) if markdown and not fenced else None
        if line and not match:
            block.append(line)
            continue
        if block:
            yield heading, "\n".join(block).strip()
            block = []
        if match:
            heading = _CLOSING.sub("", line[match.end() :]).strip()
    if block:
        yield heading, "\n".join(block).strip()


def _cut_paragraph(paragraph: str) -> Iterator[str]:
    """Cut a paragraph into pieces of at most `PASSAGE_WORDS` words and `_MAX_CHARACTERS` characters."""
    start = end = after_sentence = 0
    count = count_after = 0
    for match in _NON_BLANK.finditer(paragraph):
        full = count == PASSAGE_WORDS or match.end() - start > _MAX_CHARACTERS
        if full and count:
            # Cut at the last sentence end if it is in the second half of the piece, else after the last word.
            stop = after_sentence if count_after * 2 > count else end
            yield paragraph[start:stop].strip()
            count = count - count_after if stop == after_sentence else 0
            start, count_after = stop, 0
        end = match.end()
        count += 1
        while end - start > _MAX_CHARACTERS:  # one endless word
            yield paragraph[start : start + _MAX_CHARACTERS].strip()
            start, count, count_after = start + _MAX_CHARACTERS, 1, 0
        if match.group().rstrip("\"')]\u201d\u2019").endswith(_SENTENCE_BREAK):
            after_sentence, count_after = end, count
    if paragraph[start:].strip():
        yield paragraph[start:].strip()
