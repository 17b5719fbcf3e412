"""Gates from other papers that need passes of the model itself: their scores of questions, and their costs.

`known_scores` computes all scores for one local model; `model_gates` turns them into gates for `compare_gates`
(`suffice_gates.gates.compare.ScoredGate`: scores of tune and evaluation questions, price per question).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError, NotFoundError
from suffice.loops.models.sentences import first_sentence
from suffice.policy.rounds import Cost, Floats, Mask, Reply, Round, total_cost
from suffice.policy.signals import RETRIEVE, SIGNALS
from suffice_gates.gates.compare import GatePrice, ScoredGate
from suffice_gates.gates.question_only import fit_gate, question_folds
from suffice_gates.models.attention import dragin_scores
from suffice_gates.models.monitor import CONFIDENCE, HONESTY, ConfidenceMonitor, fit_directions
from suffice_gates.models.reflection import ReflectionGate
from suffice_gates.models.reply_states import ReplyStates
from suffice_gates.models.sampled import gram_uncertainty, semantic_entropy
from suffice_gates.models.states import required_questions
from suffice_gates.models.transformers_model import TransformersModel
from suffice_gates.models.uncertainty import sample_states

METHODS = {
    "entropy, mean": "mean entropy of the answer's tokens, after Malinin and Gales (2021)",
    "entropy, max": "highest entropy of the answer's tokens, after Malinin and Gales (2021)",
    "sequence log-probability": "of the closed-book answer, after Malinin and Gales (2021)",
    "semantic entropy": "over samples, discrete, Farquhar et al. (2024)",
    "seakr": "Gram determinant of the samples' end states, Yao et al. (2024)",
    "ctrla, honesty": "projection of the prompt's last state, after Liu et al. (2024)",
    "ctrla, confidence": "least confident new word of the answer, Liu et al. (2024)",
    "flare": "lowest token probability in the first sentence, Jiang et al. (2023)",
    "dragin": "highest RIND over the answer's tokens, Su et al. (2024)",
}
"""The source of each method, by name.  All scores are oriented so that high means known."""

LEARNED = {
    "probing-rag": "probes of layers on the mean state of the answer, Baek et al. (2025)",
    "self-rag": "P([No Retrieval]) against [Retrieval], Asai et al. (2024)",
}
"""Sources of the methods that learn from right and wrong tune answers, or during the training of the model, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeScores:
    """The scores of one method, and their costs.

    Attributes:
        scores: One score for each question, higher if the model more likely knows the answer; shape ``(n_questions,)``,
            NaN if undefined.
        cost: Mean cost per question of a system that computes only this score.
        offline: Cost that is paid only once, before the first question.
    """

    scores: Floats
    cost: Cost
    offline: Cost


def known_scores(
    model: TransformersModel,
    questions: Sequence[str],
    *,
    n_samples: int = 10,
    temperature: float = 1.0,
    rng: np.random.Generator,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, KnowledgeScores]:
    """Score questions by every method of `METHODS`, closed book.

    Answers and samples are generated once and shared between methods; the cost of each method includes them in full.

    Args:
        model: The model whose knowledge is measured.
        questions: At least one question.
        n_samples: Samples for semantic entropy and SeaKR, at least 2.
        temperature: Sampling temperature.
        rng: Draws the samples.
        on_progress: Called with the number of questions sampled and the number of all questions.

    Raises:
        DataError: `questions` is empty or contains blank text, or `n_samples` is too small.
        ModelError: A pass failed.
    """
    required_questions(questions)
    if not questions or n_samples < 2:  # noqa: PLR2004 - one sample agrees with itself
        raise DataError(f"need at least 1 question and 2 samples, got {len(questions)} and {n_samples!r}")
    replies = model.answers(questions)
    answering = [total_cost(reply.costs) for reply in replies]
    scores = {
        "entropy, mean": _with_mean_cost(_signal_values(replies, "answer_entropy_mean", -1.0), answering),
        "entropy, max": _with_mean_cost(_signal_values(replies, "answer_entropy_max", -1.0), answering),
        "sequence log-probability": _with_mean_cost(_signal_values(replies, "answer_logprob_sum", 1.0), answering),
        **_sampled(model, questions, n_samples, temperature, rng=rng, on_progress=on_progress),
        **_directed(model, questions, replies),
        "flare": _with_mean_cost([_lowest_probability(reply) for reply in replies], answering),
        "dragin": _dragin(model, questions, replies),
    }
    return {name: scores[name] for name in METHODS}


def model_gates(
    model: TransformersModel,
    tune: Sequence[str],
    evaluation: Sequence[str],
    *,
    seed: int = 42,
    n_samples: int = 10,
    known: Mask | None = None,
) -> list[ScoredGate]:
    """Return the methods as gates for `suffice_gates.gates.compare_gates`, which chooses their thresholds on tune.

    Self-RAG is included if the model has its tokens, Probing-RAG if `known` is given.

    Args:
        model: The model.
        tune: Questions on which thresholds are chosen.
        evaluation: Questions on which gates are evaluated.
        seed: Seed of the samples.
        n_samples: Samples for semantic entropy and SeaKR.
        known: Mask of the tune questions whose closed-book answer is right; None if unknown.

    Raises:
        DataError: There are no questions, too few samples, or too few questions in `known`, or outside it, for
            Probing-RAG.
    """
    rng = np.random.default_rng(seed)
    own = known_scores(model, tune, n_samples=n_samples, rng=rng)
    other = known_scores(model, evaluation, n_samples=n_samples, rng=rng)
    learned = _reflecting(model, tune, evaluation)
    if known is not None and len(np.unique(known)) > 1:
        learned.append(_probing(model, tune, evaluation, known, question_folds(tune)))
    return [
        *learned,
        *(
            ScoredGate(
                name=name,
                tune=own[name].scores,
                evaluation=scored.scores,
                price=GatePrice(
                    fit_seconds=scored.offline.seconds,
                    calls=scored.cost.calls,
                    tokens=scored.cost.tokens,
                    seconds=scored.cost.seconds,
                ),
                source=METHODS[name],
            )
            for name, scored in other.items()
        ),
    ]


def _with_mean_cost(scores: Sequence[float], costs: Sequence[Cost], offline: Cost | None = None) -> KnowledgeScores:
    """Return the scores of a method with the mean of their costs."""
    total = total_cost({str(i): cost for i, cost in enumerate(costs)})
    n = len(scores)
    mean = Cost(
        calls=total.calls / n,
        uncached_tokens=total.uncached_tokens / n,
        cached_tokens=total.cached_tokens / n,
        output_tokens=total.output_tokens / n,
        seconds=total.seconds / n,
    )
    return KnowledgeScores(scores=np.asarray(scores, dtype=np.float64), cost=mean, offline=offline or Cost())


def _signal_values(replies: Sequence[Reply], name: str, sign: float) -> list[float]:
    compute = SIGNALS[name].compute
    assert compute is not None
    return [sign * compute([Round(index=0, answer=r.answer, answer_tokens=r.answer_tokens)]) for r in replies]


def _sampled(
    model: TransformersModel,
    questions: Sequence[str],
    n_samples: int,
    temperature: float,
    *,
    rng: np.random.Generator,
    on_progress: Callable[[int, int], None] | None,
) -> Mapping[str, KnowledgeScores]:
    """Score samples by their semantic entropy and by the spread of their states."""
    meanings, spreads, sampling, reading = [], [], [], []
    for number, question in enumerate(questions, start=1):
        samples = model.samples(question, n=n_samples, temperature=temperature, rng=rng)
        states, cost = sample_states(model, question, samples, layer=model.loaded.n_layers // 2)
        meanings.append(-semantic_entropy([reply.answer or "" for reply in samples]))
        spreads.append(-gram_uncertainty(states))
        sampling.append(total_cost({str(i): total_cost(reply.costs) for i, reply in enumerate(samples)}))
        reading.append(sampling[-1] + cost)
        if on_progress is not None:
            on_progress(number, len(questions))
    return {"semantic entropy": _with_mean_cost(meanings, sampling), "seakr": _with_mean_cost(spreads, reading)}


def _directed(
    model: TransformersModel, questions: Sequence[str], replies: Sequence[Reply]
) -> Mapping[str, KnowledgeScores]:
    """Project states on the directions of CtrlA, in the layers that the model reads.

    For confidence, the states are those of the reply's new words, as in the paper.  For honesty, which the paper uses
    only to steer the generation, the state is that of the last prompt token.
    """
    reads = [model.read(question) for question in questions]
    honesty, offline = fit_directions(model, HONESTY)
    projected = honesty.project(np.stack([read.values for read in reads])).tolist()
    scores = {"ctrla, honesty": _with_mean_cost(projected, [read.cost for read in reads], offline)}
    confidence, offline = fit_directions(model, CONFIDENCE)
    monitor = ConfidenceMonitor(model, confidence)
    lowest = [monitor.lowest(question, reply.text) for question, reply in zip(questions, replies, strict=True)]
    costs = [total_cost({**reply.costs, "": cost}) for reply, (_, cost) in zip(replies, lowest, strict=True)]
    scores["ctrla, confidence"] = _with_mean_cost([value for value, _ in lowest], costs, offline)
    return scores


def _probing(
    model: TransformersModel, tune: Sequence[str], evaluation: Sequence[str], known: Mask, folds: npt.ArrayLike
) -> ScoredGate:
    """Build Probing-RAG as a gate: one logistic regression per layer on states of the answer, cross-fitted on tune."""
    source = ReplyStates(model)
    listed = list(dict.fromkeys([*tune, *evaluation]))
    began = time.perf_counter()
    reads = [source.read(question) for question in listed]
    reading = time.perf_counter() - began
    began = time.perf_counter()
    odds = []
    for row in range(len(model.layers)):
        values = {question: read.values[row] for question, read in zip(listed, reads, strict=True)}

        def of_layer(
            questions: Sequence[str], values: Mapping[str, npt.NDArray[np.float32]] = values
        ) -> npt.NDArray[np.floating]:
            return np.stack([values[question] for question in questions])

        fitted = fit_gate(of_layer, tune, known, folds)
        odds.append([_log_odds(fitted.cross_fitted), _log_odds(fitted.gate.scores(evaluation))])
    own, other = np.mean([pair[0] for pair in odds], axis=0), np.mean([pair[1] for pair in odds], axis=0)
    cost_of = {question: read.cost for question, read in zip(listed, reads, strict=True)}
    price = _with_mean_cost(other, [cost_of[question] for question in evaluation]).cost
    return ScoredGate(
        name="probing-rag",
        tune=own,
        evaluation=other,
        price=GatePrice(
            n_labels=len(tune),
            fit_seconds=time.perf_counter() - began + reading * len(tune) / len(listed),
            calls=price.calls,
            tokens=price.tokens,
            seconds=price.seconds,
        ),
        source=LEARNED["probing-rag"],
    )


def _log_odds(shares: Floats) -> Floats:
    bounded = np.clip(shares, 1e-12, 1 - 1e-12)
    return np.asarray(np.log(bounded) - np.log1p(-bounded), dtype=np.float64)


def _reflecting(model: TransformersModel, tune: Sequence[str], evaluation: Sequence[str]) -> list[ScoredGate]:
    """Return Self-RAG's decision as a gate; an empty list for a model without its tokens."""
    try:
        gate = ReflectionGate(model)
    except NotFoundError:
        return []
    own, other = ([gate.decide(question) for question in questions] for questions in (tune, evaluation))
    price = _with_mean_cost([0.0] * len(other), [verdict.cost for verdict in other]).cost
    scores = [np.array([-verdict.signals[RETRIEVE] for verdict in verdicts]) for verdicts in (own, other)]
    return [
        ScoredGate(
            name="self-rag",
            tune=scores[0],
            evaluation=scores[1],
            price=GatePrice(calls=price.calls, tokens=price.tokens, seconds=price.seconds),
            source=LEARNED["self-rag"],
        )
    ]


def _lowest_probability(reply: Reply) -> float:
    """Return FLARE's measure: the lowest token probability in the first sentence."""
    tokens = reply.tokens or ()
    sentence = [token.logprob for token in tokens[: first_sentence(tokens)]]
    return math.exp(min(sentence)) if sentence and not any(map(math.isnan, sentence)) else math.nan


def _dragin(model: TransformersModel, questions: Sequence[str], replies: Sequence[Reply]) -> KnowledgeScores:
    """Return DRAGIN's scores: minus the highest RIND of each reply.

    The costs include answering, and reading the reply again.
    """
    scores, costs = [], []
    for question, reply in zip(questions, replies, strict=True):
        values, cost = dragin_scores(model, question, reply)
        scores.append(-float(values.max()) if values.size else math.nan)
        costs.append(total_cost(reply.costs) + cost)
    return _with_mean_cost(scores, costs)
