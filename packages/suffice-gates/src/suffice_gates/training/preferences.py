"""Preference data: the passages that raise or lower a model's confidence in its answer.

Source: "Rethinking LLM Parametric Knowledge as Confidence for Effective and Efficient RAG" (CBDR), section 3.2:
``Inc(Q, C) = Conf(H_{Q+C}) - Conf(H_Q)``; the largest increases are positives, the largest decreases negatives.  The
paper takes 5 positives and 5 negatives from 8 candidates, so that some passages would be both.  Here a positive must
have Inc > 0, and a negative Inc < 0.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

from suffice._version import __version__
from suffice.common.files import write_file
from suffice.common.results import jsonable
from suffice.errors import ConfigMismatchError, DataError
from suffice.loops.retrieval import AsyncRetriever, PoolBM25, Question, Retriever, dataset_hash, ranked_now
from suffice.loops.retrieval.bm25 import passage_text
from suffice.policy.rounds import Passage
from suffice.recordings.journal import Journal, differences
from suffice.recordings.shards import Shard, shard_files_beside
from suffice_gates.probes.confidence import Confidence
from suffice_gates.training.preference_file import PROMPT, Preference, card_path, preference_lines

_KIND, _VERSION = "suffice.preferences", 1
_QUESTIONS_PER_WRITE = 16
"""Questions between two writes to the journal: the most that an interruption loses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateScores:
    """The effect of each candidate on the model's confidence in one question.

    Attributes:
        question_id: The question.
        query: Its text.
        confidence: Confidence without passages, in [0, 1]; NaN where the state was undefined.
        texts: The candidates, without repeats.
        increases: Inc of each candidate, in [-1, 1]; NaN where undefined.
        repeated: Number of candidates left out because an earlier candidate has the same text.
        empty: Number of candidates left out because they have no text.
    """

    question_id: str
    query: str
    confidence: float
    texts: tuple[str, ...]
    increases: tuple[float, ...]
    repeated: int = 0
    empty: int = 0

    def select(self, k: int) -> tuple[list[int], list[int]]:
        """Return the candidates with the `k` largest increases and those with the `k` largest decreases.

        >>> scores = CandidateScores(
        ...     question_id="q", query="?", confidence=0.5, texts=("a", "b", "c"), increases=(0.1, -0.2, float("nan"))
        ... )
        >>> scores.select(5)
        ([0], [1])
        """
        up = [i for i, inc in enumerate(self.increases) if inc > 0]
        down = [i for i, inc in enumerate(self.increases) if inc < 0]
        return sorted(up, key=lambda i: -self.increases[i])[:k], sorted(down, key=lambda i: self.increases[i])[:k]

    def unusable(self) -> str | None:
        """Return the reason why the question cannot be used; None if it can be used."""
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
        path: The preference file; its card is beside it.
        questions: Questions requested.
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
        return {**asdict(self), "path": str(self.path)}


def candidates_of(question: Question, retriever: Retriever | AsyncRetriever, n: int) -> tuple[list[Passage], int, int]:
    """Return a question's candidate passages, best first, and the numbers of repeated and of empty passages left out.

    There are no candidates if the retriever ranks pools and the question has no pool.  If passages repeat, more
    passages are requested from the retriever, so that up to `n` different passages are returned.

    >>> from suffice.loops.retrieval import load_questions
    >>> candidates, repeated, empty = candidates_of(load_questions("hotpotqa_tune", limit=1)[0], PoolBM25(), 8)
    >>> len(candidates), repeated, empty
    (8, 0, 0)
    """
    wanted = n
    while True:
        try:
            passages = ranked_now(retriever, question.question, pool=question.passages or None, k=wanted)
        except DataError:
            if question.passages:
                raise
            return [], 0, 0  # the retriever ranks pools, and this question has no pool
        texts = [" ".join(passage_text(passage.title, passage.text).lower().split()) for passage in passages]
        first = {text: i for i, text in reversed(list(enumerate(texts)))}
        distinct = [passage for i, passage in enumerate(passages) if first[texts[i]] == i and passage.text.strip()]
        if len(distinct) >= n or len(passages) < wanted:
            empty = sum(not passage.text.strip() for i, passage in enumerate(passages) if first[texts[i]] == i)
            return distinct[:n], len(texts) - len(first), empty
        wanted *= 2


def build_preferences(
    questions: Sequence[Question],
    confidence: Confidence,
    path: str | Path,
    *,
    retriever: Retriever | AsyncRetriever | None = None,
    candidates: int = 8,
    k: int = 5,
    prompt: str = PROMPT,
    shift: Mapping[str, Any] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> PreferenceSummary:
    """Score the candidates of every question; write the preferences, and a card with the increases in confidence.

    Each question is read once without passages and once with each candidate.  After an interruption, the same call
    resumes; when the file is complete, it returns at once.

    Args:
        questions: Questions with their own pools; any questions if the retriever has a corpus.
        confidence: The model's confidence.
        path: The preference file. A card is written beside the file. Until the file is complete, a journal beside it
            keeps the results.
        retriever: Finds the candidates; default: BM25 over a question's pool.
        candidates: Candidates per question, at least 2.
        k: Largest number of positives, and of negatives, per question.
        prompt: Written into every line, for rerankers that are language models.
        shift: Quality of the probe on prompts without and with passages, from `measure_shift`; stored in the card.
        on_progress: Called with the number of questions done and the number of all questions.

    Raises:
        ConfigMismatchError: The file, or its journal, was begun with another configuration.
        DataError: A parameter is out of range, no question has candidates, or another file exists at `path`.
        ModelError: The model failed; the results so far are kept.
    """
    path, retriever = Path(path), retriever or PoolBM25()
    _check_questions(questions, candidates, k)
    config = _config(questions, confidence, retriever, candidates=candidates, k=k, prompt=prompt)
    finished = _finished_summary(path, config)
    if finished is not None:
        return finished
    passes = Counter({"qa": 0, "rag": 0})
    rows = _rows_of_shards(path, config)
    journal = Journal(_journal_path(path), config)
    with closing(journal):
        alone = [question for question in questions if question.question_id not in rows]
        _score_into(
            journal, alone, confidence, retriever, candidates=candidates, passes=passes, on_progress=on_progress
        )
        rows |= dict(journal.finished())
    by_question = [_scores_of(rows[question.question_id][0]) for question in questions]
    if not any(scores.texts for scores in by_question):
        # Nothing was computed, and the journals would refuse the other questions or retriever that the error asks for.
        _delete_journals(path, journal)
        raise DataError(
            "no question has candidates: use questions with their own paragraphs, or a retriever with a corpus"
        )
    summary = _write_preferences(path, by_question, config, shift=shift, passes=passes)
    _delete_journals(path, journal)
    return summary


def score_preferences(
    questions: Sequence[Question],
    confidence: Confidence,
    path: str | Path,
    shard: Shard,
    *,
    retriever: Retriever | AsyncRetriever | None = None,
    candidates: int = 8,
    k: int = 5,
    prompt: str = PROMPT,
    on_progress: Callable[[int, int], None] | None = None,
) -> int:
    """Score the candidates of one shard's questions into the shard's own journal.

    Return the number of questions that were scored in this run.

    Once all shards have ended, `build_preferences` with the same arguments writes the file from their journals.

    Args:
        questions: The questions of all shards.
        confidence: The model's confidence.
        path: The preference file.
        shard: The share of the questions to score.
        retriever: Finds the candidates.
        candidates: Candidates per question.
        k: Largest number of positives, and of negatives, per question.
        prompt: Written into every line.
        on_progress: Called with the number of questions done and the number of all questions.

    Raises:
        ConfigMismatchError: The file, or the journal, was begun with another configuration.
        DataError: A parameter is out of range.
        ModelError: The model failed; the results so far are kept.
    """
    path, retriever = Path(path), retriever or PoolBM25()
    _check_questions(questions, candidates, k)
    config = _config(questions, confidence, retriever, candidates=candidates, k=k, prompt=prompt)
    if _finished_summary(path, config) is not None:
        return 0
    with closing(Journal(_journal_path(path, shard), config)) as journal:
        own = [question for question in questions if shard.takes(question.question_id)]
        return _score_into(
            journal, own, confidence, retriever, candidates=candidates, passes=Counter(), on_progress=on_progress
        )


def _config(
    questions: Sequence[Question], confidence: Confidence, retriever: Retriever | AsyncRetriever, **settings: Any
) -> dict[str, Any]:
    """Return the settings and data that affect the preferences."""
    return {
        "questions": dataset_hash(questions),
        "n_questions": len(questions),
        "confidence": dict(confidence.fingerprint()),
        "retriever": dict(retriever.fingerprint()),
        **settings,
    }


def _journal_path(path: Path, shard: Shard | None = None) -> Path:
    return path.with_name(f"{path.name}.journal") if shard is None else shard.beside(path, ".journal")


def _delete_journals(path: Path, journal: Journal) -> None:
    journal.delete()
    for shard in shard_files_beside(path, ".journal"):
        shard.unlink(missing_ok=True)


def _rows_of_shards(path: Path, config: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Read the journals of all shards; return their rows by question.

    Raises:
        BusyError: A shard is still being scored.
        ConfigMismatchError: A shard was begun with another configuration.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    for shard in shard_files_beside(path, ".journal"):
        with closing(Journal(shard, config)) as journal:
            rows |= dict(journal.finished())
    return rows


def _score_into(
    journal: Journal,
    questions: Sequence[Question],
    confidence: Confidence,
    retriever: Retriever | AsyncRetriever,
    *,
    candidates: int,
    passes: Counter[str],
    on_progress: Callable[[int, int], None] | None,
) -> int:
    """Score the questions that are not yet in a journal, and return their number."""
    done = dict(journal.finished())
    pending = [question for question in questions if question.question_id not in done]
    for start, stop in pairwise([*range(0, len(pending), _QUESTIONS_PER_WRITE), len(pending)]):
        for scores in _score_questions(pending[start:stop], confidence, retriever, candidates, passes):
            journal.finish(scores.question_id, [jsonable(scores)])
        if on_progress is not None:
            on_progress(len(questions) - len(pending) + stop, len(questions))
    return len(pending)


def _check_questions(questions: Sequence[Question], candidates: int, k: int) -> None:
    ids = [question.question_id for question in questions]
    if not ids or len(set(ids)) != len(ids):
        raise DataError(
            f"{len(ids)} questions with {len(set(ids))} distinct ids: at least one question is needed, each with its own id"
        )
    if candidates < 2:  # noqa: PLR2004 - a positive and a negative
        raise DataError(f"candidates is {candidates!r}; allowed: 2 or more, one to prefer and one to reject")
    if k < 1:
        raise DataError(f"k is {k!r}; allowed: 1 or more")


def _score_questions(
    questions: Sequence[Question],
    confidence: Confidence,
    retriever: Retriever | AsyncRetriever,
    n: int,
    passes: Counter[str],
) -> list[CandidateScores]:
    """Score a group of questions: first all of them without passages, then every question with each candidate."""
    pools = [candidates_of(question, retriever, n) for question in questions]
    answerable = [(question, pool) for question, pool in zip(questions, pools, strict=True) if pool[0]]
    unaided = confidence.of([question.question for question, _ in answerable])
    pairs = [(question.question, [passage]) for question, (passages, _, _) in answerable for passage in passages]
    aided = iter(  # one value per pair, consumed in the same order below
        confidence.of([text for text, _ in pairs], [passages for _, passages in pairs]).tolist()
    )
    passes.update(qa=len(answerable), rag=len(pairs))
    base = dict(zip((question.question_id for question, _ in answerable), unaided.tolist(), strict=True))
    by_question = []
    for question, (passages, repeated, empty) in zip(questions, pools, strict=True):
        before = base.get(question.question_id, math.nan)
        by_question.append(
            CandidateScores(
                question_id=question.question_id,
                query=question.question,
                confidence=before,
                texts=tuple(passage_text(passage.title, passage.text).strip() for passage in passages),
                increases=tuple(next(aided) - before for _ in passages),
                repeated=repeated,
                empty=empty,
            )
        )
    return by_question


def _scores_of(row: Mapping[str, Any]) -> CandidateScores:
    numbers = {
        "confidence": _or_nan(row["confidence"]),
        "texts": tuple(row["texts"]),
        "increases": tuple(map(_or_nan, row["increases"])),
    }
    return CandidateScores(**{**row, **numbers})


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _write_preferences(
    path: Path,
    by_question: Sequence[CandidateScores],
    config: Mapping[str, Any],
    *,
    shift: Mapping[str, Any] | None,
    passes: Mapping[str, int],
) -> PreferenceSummary:
    preferences, records = [], []
    dropped: Counter[str] = Counter()
    for scores in by_question:
        why = scores.unusable()
        if why is not None:
            dropped[why] += 1
            continue
        up, down = scores.select(config["k"])
        pos, neg = (tuple(scores.texts[i] for i in chosen) for chosen in (up, down))
        preferences.append(Preference(query=scores.query, pos=pos, neg=neg, prompt=config["prompt"]))
        increases = {"pos": [scores.increases[i] for i in up], "neg": [scores.increases[i] for i in down]}
        records.append({"question_id": scores.question_id, "confidence": scores.confidence, **increases})
    left_out = {
        "repeated": sum(scores.repeated for scores in by_question),
        "no text": sum(scores.empty for scores in by_question),
        "undefined increase": sum(math.isnan(inc) for scores in by_question for inc in scores.increases),
    }
    text = preference_lines(preferences)
    summary = PreferenceSummary(
        path=path,
        questions=len(by_question),
        kept=len(preferences),
        positives=sum(len(item.pos) for item in preferences),
        negatives=sum(len(item.neg) for item in preferences),
        dropped=dict(sorted(dropped.items())),
        candidates=sum(len(scores.texts) for scores in by_question),
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
    # The card first: after an interruption between the two there is no preference file, and the same call writes both.
    write_file(card_path(path), json.dumps(card, ensure_ascii=False, allow_nan=False, indent=1) + "\n")
    write_file(path, text)
    return summary


def _finished_summary(path: Path, config: Mapping[str, Any]) -> PreferenceSummary | None:
    """Return the outcome of an earlier run that wrote this file; None if the file does not exist.

    Raises:
        ConfigMismatchError: The file was written with another configuration.
        DataError: The file has no card, or was changed after it was written.
    """
    if not path.exists():
        return None
    try:
        card = json.loads(card_path(path).read_text(encoding="utf-8"))
        old, summary, digest = card["config"], card["summary"], card["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(
            f"{path} already exists but has no card ({card_path(path).name}) that describes it: move it away, "
            "or write to another file"
        ) from None
    changed = differences(old, json.loads(json.dumps(config)))
    if changed:
        raise ConfigMismatchError(
            f"{path} was written with another configuration ({'; '.join(changed)}): move it away, or write to another file"
        )
    if sha256(path.read_bytes()).hexdigest() != digest:
        raise DataError(f"{path} was changed after it was written: move it away, or write to another file")
    return PreferenceSummary(**{**summary, "path": path, "passes": {"qa": 0, "rag": 0}})
