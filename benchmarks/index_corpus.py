"""Passages of any number with the statistics of real text, for `bench_index`.

Words are drawn one by one.  The 1,000 most frequent words of the bundled questions' 4,480 passages have the frequencies
that they have there, stop words included; the rest of the tokens (33 %) falls off as a power of the rank, with the exponent
(1.67) at which a sample of the bundled size has as many distinct words as the bundled passages have.  The vocabulary then
grows as real ones do: 5.6 million words are expected in 2.1 billion tokens, where Pyserini reports 5,345,463 (stemmed) terms
for the 21,015,324 passages of DPR's Wikipedia.  The words of the ranks that the bundled passages have are theirs, so that
the bundled questions ask for words of realistic frequency; later ones are syllables.  Lengths are drawn from those of the
bundled passages, which are themselves in the corpus, at random places: each question has its passages, in which its words
occur together.  Other passages have no topic, so that bounds prune less than in real text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np

from suffice.loops.retrieval import BUNDLED_QUESTIONS, load_questions

HEAD = 1000
EXPONENT = 1.666
TITLE_WORDS = 3
SYLLABLES = [a + b + c for a in "bdfgklmnprstvz" for b in "aeiou" for c in ("", "n", "r")]
BLOCK = 10_000


def bundled() -> list[tuple[str, str]]:
    """Return title and text of each distinct bundled passage."""
    sets = map(load_questions, BUNDLED_QUESTIONS)
    return list({(p.title, p.text): None for questions in sets for q in questions for p in q.passages})


def questions() -> list[str]:
    """Return the bundled questions."""
    return [question.question for name in BUNDLED_QUESTIONS for question in load_questions(name)]


class Words:
    """The word of each rank."""

    def __init__(self, counts: Counter[str]) -> None:
        self._known = [word for word, _ in counts.most_common()]

    def of(self, rank: int) -> str:
        """Return the word of a rank, counted from 0."""
        if rank < len(self._known):
            return self._known[rank]
        parts = []
        while rank:
            rank, place = divmod(rank, len(SYLLABLES))
            parts.append(SYLLABLES[place])
        return "q" + "".join(parts)  # no bundled word by chance

    def cached(self, n: int) -> list[str]:
        """Return the words of the first ranks."""
        return [self.of(rank) for rank in range(n)]


def write_corpus(path: Path, n: int, seed: int) -> None:
    """Write a corpus as JSON lines of id, title and text."""
    rng = np.random.default_rng(seed)
    real = bundled()
    counts = Counter(word for passage in real for word in re.findall(r"\w+", " ".join(passage).lower()))
    total = counts.total()
    head = np.cumsum([count / total for _, count in counts.most_common(HEAD)])
    words = Words(counts)
    frequent = words.cached(1_000_000)
    lengths = np.array([len(text.split()) for _, text in real])
    places = dict(zip(np.sort(rng.choice(n, min(n, len(real)), replace=False)).tolist(), real, strict=False))
    with path.open("w") as file:
        for first in range(0, n, BLOCK):
            sizes = rng.choice(lengths, min(BLOCK, n - first)) + TITLE_WORDS
            u = rng.random(int(sizes.sum()))
            ranks = np.searchsorted(head, u, side="right").astype(np.int64)
            tail = ranks == HEAD
            share = (1 - u[tail]) / (1 - head[-1])  # uniform again
            ranks[tail] = np.minimum(HEAD * share ** (-1 / (EXPONENT - 1)), 1e15).astype(np.int64)
            drawn = [frequent[r] if r < len(frequent) else words.of(r) for r in ranks.tolist()]
            end = 0
            for i, size in enumerate(sizes.tolist(), start=first):
                start, end = end, end + size
                title, text = places.get(i) or (" ".join(drawn[start : start + 3]), " ".join(drawn[start + 3 : end]))
                file.write(json.dumps({"id": str(i), "title": title, "text": text}) + "\n")
