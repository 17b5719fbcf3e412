"""Preference data: which passages make a model surer of its answer, and which less sure.

Source: "Rethinking LLM Parametric Knowledge as Confidence for Effective and Efficient RAG" (CBDR), section 3.2:
``Inc(Q, C) = Conf(H_{Q+C}) - Conf(H_Q)``; the largest increases are positives, the largest decreases negatives.  The
paper takes the top 5 of each from 8 candidates, which would make some passages both: here a positive has Inc > 0 and a
negative Inc < 0.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

from suffice._version import __version__
from suffice.errors import ConfigMismatchError, DataError
from suffice.files import write_file
from suffice.retrieval import PoolBM25, Question, Retriever, dataset_hash
from suffice.retrieval.tokens import passage_text
from suffice.rounds import Passage
from suffice.store.journal import Journal, differences
from suffice.train.confidence import Confidence
from suffice.train.preference_file import PROMPT, Preference, card_path, preference_lines

__all__ = ["PreferenceSummary", "Scored", "build_preferences", "candidates_of"]

_KIND, _VERSION = "suffice.preferences", 1
_AT_ONCE = 16
"""Questions between two writes to the journal: what a kill may cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What each candidate does to the model's confidence in one question.

    Attributes:
        question_id: The question.
        query: Its text.
        confidence: Without passages, in [0, 1]; NaN where the state was undefined.
        texts: The candidates, each once.
        increases: Inc of each candidate, in [-1, 1]; NaN where undefined.
        repeated: Candidates that were left out because their text stood there before.
        empty: Candidates that were left out because they have no text.
    """

    question_id: str
    query: str
    confidence: float
    texts: tuple[str, ...]
    increases: tuple[float, ...]
    repeated: int = 0
    empty: int = 0

    def select(self, k: int) -> tuple[list[int], list[int]]:
        """Return the candidates of the `k` largest increases above 0 and of the `k` largest decreases below 0.

        >>> scored = Scored(
        ...     question_id="q", query="?", confidence=0.5, texts=("a", "b", "c"), increases=(0.1, -0.2, float("nan"))
        ... )
        >>> scored.select(5)
        ([0], [1])
        """
        up = [i for i, inc in enumerate(self.increases) if inc > 0]
        down = [i for i, inc in enumerate(self.increases) if inc < 0]
        return sorted(up, key=lambda i: -self.increases[i])[:k], sorted(down, key=lambda i: self.increases[i])[:k]

    def dropped(self) -> str | None:
        """Return why the question teaches nothing; None where it does."""
        if not self.texts:
            return "no candidates"
        if math.isnan(self.confidence):
            return "undefined confidence"
        up, down = self.select(1)
        if up and down:
            return None
        return "neither positives nor negatives" if not up and not down else "no negatives" if up else "no positives"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceSummary:
    """Outcome of building preference data.

    Attributes:
        path: The preference file; its card lies beside it.
        questions: Questions asked for.
        kept: Questions in the file.
        positives: Positives in the file.
        negatives: Negatives in the file.
        dropped: Questions left out, by reason.
        candidates: Candidates that were scored.
        left_out: Candidates left out, by reason.
        passes: Prompts that the model read in this run, by prompt: `qa`, `rag`.
    """

    path: Path
    questions: int
    kept: int
    positives: int
    negatives: int
    dropped: Mapping[str, int]
    candidates: int
    left_out: Mapping[str, int]
    passes: Mapping[str, int] = field(default_factory=lambda: {"qa": 0, "rag": 0})

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "path": str(self.path),
            "questions": self.questions,
            "kept": self.kept,
            "positives": self.positives,
            "negatives": self.negatives,
            "dropped": dict(self.dropped),
            "candidates": self.candidates,
            "left_out": dict(self.left_out),
            "passes": dict(self.passes),
        }


def candidates_of(question: Question, retriever: Retriever, n: int) -> tuple[list[Passage], int, int]:
    """Return a question's candidate passages, best first, and how many repeat another or have no text.

    None where the retriever ranks pools and the question has none.

    The retriever is asked for more where passages repeat, so that `n` different ones come where there are as many.

    >>> from suffice.retrieval import load_questions
    >>> candidates, repeated, empty = candidates_of(load_questions("hotpotqa_tune", limit=1)[0], PoolBM25(), 8)
    >>> len(candidates), repeated, empty
    (8, 0, 0)
    """
    wanted = n
    while True:
        try:
            found = retriever.rank(question.question, pool=question.passages or None, k=wanted)
        except DataError:
            if question.passages:
                raise
            return [], 0, 0  # the retriever ranks pools, and this question has none
        texts = [" ".join(passage_text(passage.title, passage.text).lower().split()) for passage in found]
        first = {text: i for i, text in reversed(list(enumerate(texts)))}
        kept = [passage for i, passage in enumerate(found) if first[texts[i]] == i and passage.text.strip()]
        if len(kept) >= n or len(found) < wanted:
            empty = sum(not passage.text.strip() for i, passage in enumerate(found) if first[texts[i]] == i)
            return kept[:n], len(texts) - len(first), empty
        wanted *= 2


def build_preferences(
    questions: Sequence[Question],
    confidence: Confidence,
    path: str | Path,
    *,
    retriever: Retriever | None = None,
    candidates: int = 8,
    k: int = 5,
    prompt: str = PROMPT,
    shift: Mapping[str, Any] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> PreferenceSummary:
    """Score every question's candidates and write what the model prefers, with a card of the increases.

    A question is read once without passages and once with each candidate.  Interrupted at any instant, it goes on where
    it was when it is called again with the same arguments; called again when all is done, it reads nothing.

    Args:
        questions: With pools of their own, or for a retriever with a corpus.
        confidence: The model's confidence.
        path: The preference file; its card and, until it is complete, its journal lie beside it.
        retriever: Finds the candidates; default: BM25 over a question's pool.
        candidates: Candidates of a question, at least 2.
        k: Most positives and most negatives of a question.
        prompt: Written into every line, for rerankers that are language models.
        shift: How well the probe does under both prompts, from `measure_shift`; kept in the card.
        on_progress: Called with the questions done and their number.

    Raises:
        ConfigMismatchError: The file, or its journal, was begun with another configuration.
        DataError: A parameter is out of range, no question has candidates, or something else lies at `path`.
        ModelError: The model failed; what was read is kept.
    """
    path, retriever = Path(path), retriever or PoolBM25()
    _check(questions, candidates, k)
    config = {
        "questions": dataset_hash(questions),
        "n_questions": len(questions),
        "confidence": dict(confidence.fingerprint()),
        "retriever": dict(retriever.fingerprint()),
        "candidates": candidates,
        "k": k,
        "prompt": prompt,
    }
    finished = _finished(path, config)
    if finished is not None:
        return finished
    journal = Journal(path.with_name(f"{path.name}.journal"), config)
    passes = Counter({"qa": 0, "rag": 0})
    with closing(journal):
        done = dict(journal.finished())
        left = [question for question in questions if question.question_id not in done]
        for start, stop in pairwise([*range(0, len(left), _AT_ONCE), len(left)]):
            for scored in _score(left[start:stop], confidence, retriever, candidates, passes):
                journal.finish(scored.question_id, [_plain(scored)])
            if on_progress is not None:
                on_progress(len(questions) - len(left) + stop, len(questions))
        rows = dict(journal.finished())
    everything = [_scored(rows[question.question_id][0]) for question in questions]
    summary = _write(path, everything, config, shift=shift, passes=passes)
    journal.delete()
    return summary


def _check(questions: Sequence[Question], candidates: int, k: int) -> None:
    ids = [question.question_id for question in questions]
    if not ids or len(set(ids)) != len(ids):
        raise DataError(f"{len(ids)} questions with {len(set(ids))} distinct ids: at least one, no id twice")
    if candidates < 2:  # noqa: PLR2004 - a positive and a negative
        raise DataError(f"candidates is {candidates!r}; allowed is 2 or more: one to prefer, one to reject")
    if k < 1:
        raise DataError(f"k is {k!r}; allowed is 1 or more")


def _score(
    questions: Sequence[Question], confidence: Confidence, retriever: Retriever, n: int, passes: Counter[str]
) -> list[Scored]:
    """Read a group of questions: all of them without passages, then every pair of question and candidate."""
    pools = [candidates_of(question, retriever, n) for question in questions]
    asked = [(question, pool) for question, pool in zip(questions, pools, strict=True) if pool[0]]
    alone = confidence.of([question.question for question, _ in asked])
    pairs = [(question.question, [passage]) for question, (passages, _, _) in asked for passage in passages]
    given = iter(confidence.of([text for text, _ in pairs], [passages for _, passages in pairs]).tolist())
    passes.update(qa=len(asked), rag=len(pairs))
    base = dict(zip((question.question_id for question, _ in asked), alone.tolist(), strict=True))
    found = []
    for question, (passages, repeated, empty) in zip(questions, pools, strict=True):
        before = base.get(question.question_id, math.nan)
        found.append(
            Scored(
                question_id=question.question_id,
                query=question.question,
                confidence=before,
                texts=tuple(passage_text(passage.title, passage.text).strip() for passage in passages),
                increases=tuple(next(given) - before for _ in passages),
                repeated=repeated,
                empty=empty,
            )
        )
    return found


def _plain(scored: Scored) -> dict[str, Any]:
    return {
        "question_id": scored.question_id,
        "query": scored.query,
        "confidence": _or_none(scored.confidence),
        "texts": list(scored.texts),
        "increases": [_or_none(inc) for inc in scored.increases],
        "repeated": scored.repeated,
        "empty": scored.empty,
    }


def _scored(row: Mapping[str, Any]) -> Scored:
    numbers = {
        "confidence": _or_nan(row["confidence"]),
        "texts": tuple(row["texts"]),
        "increases": tuple(map(_or_nan, row["increases"])),
    }
    return Scored(**{**row, **numbers})


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _write(
    path: Path,
    everything: Sequence[Scored],
    config: Mapping[str, Any],
    *,
    shift: Mapping[str, Any] | None,
    passes: Mapping[str, int],
) -> PreferenceSummary:
    if not any(scored.texts for scored in everything):
        raise DataError(
            "no question has candidates: give questions with paragraphs of their own, or a retriever with a corpus"
        )
    preferences, records = [], []
    dropped: Counter[str] = Counter()
    for scored in everything:
        why = scored.dropped()
        if why is not None:
            dropped[why] += 1
            continue
        up, down = scored.select(config["k"])
        pos, neg = (tuple(scored.texts[i] for i in chosen) for chosen in (up, down))
        preferences.append(Preference(query=scored.query, pos=pos, neg=neg, prompt=config["prompt"]))
        increases = {"pos": [scored.increases[i] for i in up], "neg": [scored.increases[i] for i in down]}
        records.append({"question_id": scored.question_id, "confidence": scored.confidence, **increases})
    left_out = {
        "repeated": sum(scored.repeated for scored in everything),
        "no text": sum(scored.empty for scored in everything),
        "undefined increase": sum(math.isnan(inc) for scored in everything for inc in scored.increases),
    }
    text = preference_lines(preferences)
    summary = PreferenceSummary(
        path=path,
        questions=len(everything),
        kept=len(preferences),
        positives=sum(len(item.pos) for item in preferences),
        negatives=sum(len(item.neg) for item in preferences),
        dropped=dict(sorted(dropped.items())),
        candidates=sum(len(scored.texts) for scored in everything),
        left_out={reason: count for reason, count in left_out.items() if count},
        passes=dict(passes),
    )
    card = {
        "kind": _KIND,
        "version": _VERSION,
        "suffice": __version__,
        "sha256": sha256(text.encode()).hexdigest(),
        "config": config,
        "summary": {**summary.to_dict(), "path": path.name},
        "shift": None if shift is None else dict(shift),
        "records": records,
    }
    # The card first: a kill between the two leaves no preference file, and the same call writes both again.
    write_file(card_path(path), json.dumps(card, ensure_ascii=False, allow_nan=False, indent=1) + "\n")
    write_file(path, text)
    return summary


def _finished(path: Path, config: Mapping[str, Any]) -> PreferenceSummary | None:
    """Return the outcome of an earlier run that wrote this file; None where there is no file.

    Raises:
        ConfigMismatchError: It was written with another configuration.
        DataError: It has no card, or another one.
    """
    if not path.exists():
        return None
    try:
        card = json.loads(card_path(path).read_text(encoding="utf-8"))
        old, was, digest = card["config"], card["summary"], card["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(
            f"{path} is there already and has no card ({card_path(path).name}) that tells what is in it: move it away, "
            "or write to another file"
        ) from None
    changed = differences(old, json.loads(json.dumps(config)))
    if changed:
        raise ConfigMismatchError(
            f"{path} was written with another configuration ({'; '.join(changed)}): move it away, or write to another file"
        )
    if sha256(path.read_bytes()).hexdigest() != digest:
        raise DataError(f"{path} was changed after it was written: move it away, or write to another file")
    return PreferenceSummary(**{**was, "path": path, "passes": {"qa": 0, "rag": 0}})
