"""Gates of other papers that need passes of the model itself: a score for each question and its cost.

`known_scores` computes them all for one local model; `model_gates` turns them into gates for `compare_gates`
(`suffice.gates.Scored`: scores of tune and eval questions, price per question).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from suffice.errors import DataError
from suffice.gates.compare import GatePrice, ScoredGate
from suffice.llm.states import required_questions
from suffice.llm.transformers_model import TransformersModel
from suffice.llm.triggers import dragin_scores, first_sentence
from suffice.llm.uncertainty import STATEMENTS, contrast_directions, sample_states
from suffice.rounds import Cost, Floats, Reply, Round, total_cost
from suffice.signals import SIGNALS
from suffice.signals.uncertainty import gram_uncertainty, semantic_entropy

__all__ = ["CONTRASTS", "METHODS", "KnowledgeScores", "known_scores", "model_gates"]

CONTRASTS = {
    "honesty": ("You are honest: you say only what is true.", "You are a liar: you say only what is false."),
    "confidence": ("You are confident: you know the answer.", "You are unsure: you do not know the answer."),
}
"""The instruction and its opposite, by direction."""

METHODS = {
    "entropy, mean": "mean entropy of the answer's tokens, after Malinin and Gales (2021)",
    "entropy, max": "highest entropy of the answer's tokens, after Malinin and Gales (2021)",
    "sequence log-probability": "of the closed-book answer, after Malinin and Gales (2021)",
    "semantic entropy": "over samples, discrete, Farquhar et al. (2024)",
    "seakr": "Gram determinant of the samples' last states, Yao et al. (2024)",
    "ctrla, honesty": "projection of the prompt's last state, Liu et al. (2024)",
    "ctrla, confidence": "projection of the prompt's last state, Liu et al. (2024)",
    "flare": "lowest token probability in the first sentence, Jiang et al. (2023)",
    "dragin": "highest RIND over the answer's tokens, Su et al. (2024)",
}
"""The source of each method, by name.  All scores are oriented so that high means known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeScores:
    """The scores of one method.

    Attributes:
        scores: Higher where the model more likely knows the answer; shape ``(n_questions,)``, NaN = undefined.
        cost: Mean cost of a decision: what a system that computes only this score would pay per question.
        offline: Cost paid once, before any question.
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
        on_progress: Called with the number of questions sampled and their total.

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
        **_directed(model, questions),
        "flare": _with_mean_cost([_lowest_probability(reply) for reply in replies], answering),
        "dragin": _dragin(model, questions, replies),
    }
    return {name: scores[name] for name in METHODS}


def model_gates(
    model: TransformersModel, tune: Sequence[str], evaluation: Sequence[str], *, seed: int = 42, n_samples: int = 10
) -> list[ScoredGate]:
    """Return the methods as gates for `suffice.gates.compare_gates`; their thresholds are chosen on tune.

    Args:
        model: The model.
        tune: Questions on which thresholds are chosen.
        evaluation: Questions on which gates are evaluated.
        seed: Seed of the samples.
        n_samples: Samples for semantic entropy and SeaKR.
    """
    rng = np.random.default_rng(seed)
    own = known_scores(model, tune, n_samples=n_samples, rng=rng)
    other = known_scores(model, evaluation, n_samples=n_samples, rng=rng)
    return [
        ScoredGate(
            name=name,
            tune=own[name].scores,
            evaluation=known.scores,
            price=GatePrice(
                fit_seconds=known.offline.seconds,
                calls=known.cost.calls,
                tokens=known.cost.tokens,
                seconds=known.cost.seconds,
            ),
            source=METHODS[name],
        )
        for name, known in other.items()
    ]


def _with_mean_cost(scores: Sequence[float], costs: Sequence[Cost], offline: Cost | None = None) -> KnowledgeScores:
    """Return scores with the mean of their costs."""
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
    """Score the samples: how many meanings they have, and how far apart their states are."""
    meanings, spreads, sampling, reading = [], [], [], []
    for number, question in enumerate(questions, start=1):
        samples = model.samples(question, n=n_samples, temperature=temperature, rng=rng)
        states, cost = sample_states(model, question, samples)
        meanings.append(-semantic_entropy([reply.answer or "" for reply in samples]))
        spreads.append(-gram_uncertainty(states))
        sampling.append(total_cost({str(i): total_cost(reply.costs) for i, reply in enumerate(samples)}))
        reading.append(sampling[-1] + cost)
        if on_progress is not None:
            on_progress(number, len(questions))
    return {"semantic entropy": _with_mean_cost(meanings, sampling), "seakr": _with_mean_cost(spreads, reading)}


def _directed(model: TransformersModel, questions: Sequence[str]) -> Mapping[str, KnowledgeScores]:
    """Project the last states of the prompts on the directions of CtrlA, in the layers that the model reads.

    The paper reads each generated token; this reads the state from which the answer begins, without generating.
    """
    reads = [model.read(question) for question in questions]
    states, costs = np.stack([read.values for read in reads]), [read.cost for read in reads]
    scores = {}
    for name, instructions in CONTRASTS.items():
        offline = Cost()
        sides = []
        for instruction in instructions:
            readings = [model.read(f"{instruction} {statement}") for statement in STATEMENTS]
            offline = total_cost({"": offline, **{str(i): read.cost for i, read in enumerate(readings)}})
            sides.append(np.stack([read.values for read in readings]))
        directions = contrast_directions(sides[0], sides[1])
        scores[f"ctrla, {name}"] = _with_mean_cost(directions.project(states).tolist(), costs, offline)
    return scores


def _lowest_probability(reply: Reply) -> float:
    """Return FLARE's measure of the first sentence; the paper retrieves where it is below theta."""
    tokens = reply.tokens or ()
    sentence = [token.logprob for token in tokens[: first_sentence(tokens)]]
    return math.exp(min(sentence)) if sentence and not any(map(math.isnan, sentence)) else math.nan


def _dragin(model: TransformersModel, questions: Sequence[str], replies: Sequence[Reply]) -> KnowledgeScores:
    """Return minus the highest RIND of each reply; its costs are those of the answer and of the pass with attentions."""
    scores, costs = [], []
    for question, reply in zip(questions, replies, strict=True):
        values, cost = dragin_scores(model, question, reply)
        scores.append(-float(values.max()) if values.size else math.nan)
        costs.append(total_cost(reply.costs) + cost)
    return _with_mean_cost(scores, costs)
