"""The gates and learned stopping rules on the page of rivals, all fitted or chosen on tune questions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from suffice.cli.console import status
from suffice.errors import DataError, NotFoundError, UnknownSignalError
from suffice.loops import RetrievalLoop
from suffice.loops.retrieval import PoolBM25, Question
from suffice.policy.signals import Enricher
from suffice.recordings import Recording
from suffice_gates.gates import even_betas, fit_complexity
from suffice_gates.models import (
    ConfidenceMonitor,
    ReflectionGate,
    ReplyStates,
    SampleSpread,
    TransformersModel,
    fit_directions,
)
from suffice_gates.probes import ReplyProbes
from suffice_gates.probes.collect import StatePrompt
from suffice_gates.training.reply_probes import fit_reply_probes
from suffice_papers.rivals.bench import Bench
from suffice_papers.rivals.lines import RivalLine, line_of
from suffice_papers.rivals.stop_values import learn_stop
from suffice_reader.minilm import MiniLM

_SAMPLES = 5
_PROBED = (0, 1, 3)
"""Numbers of passages in the prompts that probes are fitted on."""

_READ_BY_VALUES = ("answer_margin", "answer_stable", "answer_length")
_N_THRESHOLDS = 12


def gate_lines(bench: Bench) -> list[RivalLine]:
    """Measure Adaptive-RAG, Probing-RAG, CtrlA, SeaKR, Stop-RAG and Self-RAG on the plain loop of the page.

    Everything is fitted or chosen on the tune questions.  Passages are added one by one in the same order as for fixed
    numbers of passages, so that only the stops differ.
    """
    model = TransformersModel(
        bench.reader.loaded,
        layers=range(1, bench.reader.loaded.n_layers + 1),
        prompt=bench.reader.prompt,
        position=bench.reader.position,
        max_tokens=bench.reader.max_tokens,
        name=bench.reader.name,
    )
    lines, measures = [], list[Enricher]()
    with status("fitting gates", quiet=bench.quiet):
        try:
            probes = fit_reply_probes(ReplyStates(model), _prompts(bench.tune), _golds(bench.tune))
            measures.append(ReplyProbes(probes, ReplyStates(model)))
        except DataError as error:
            lines.append(_not_run("Probing-RAG", error))
        measures += [ConfidenceMonitor(model, fit_directions(model)[0]), SampleSpread(model, n=_SAMPLES)]
    loop = RetrievalLoop(
        model=model, retriever=PoolBM25(), policy=bench.policy(start_round=0), enrichers=tuple(measures)
    )
    tune, evaluation = bench.recorded("tune-gates", loop, bench.tune), bench.recorded("gates", loop, bench.evaluation)
    lines.append(_adaptive_rag(bench, model, tune))
    read = {signal for enricher in measures for signal in enricher.capabilities}
    lines += [_chosen(bench, signal, tune, evaluation) for signal in _RULES if signal in read]
    return [*lines, _stop_rag(bench, tune, evaluation), _self_rag(model)]


_RULES = {
    "p_enough": ("Probing-RAG", ">"),
    "new_confidence": ("CtrlA", ">="),
    "sample_spread": ("SeaKR", "<="),
}
"""The paper of each signal, and its comparison with a threshold."""


def _not_run(name: str, error: Exception) -> RivalLine:
    return RivalLine.not_run(name, "gate", str(error).partition(":")[0])


def _prompts(questions: Sequence[Question]) -> list[StatePrompt]:
    """Return the prompts to fit probes on.

    For each question and each number k in `_PROBED`, there is a prompt with the question's best k passages.
    """
    retriever = PoolBM25()
    prompts = []
    for question in questions:
        ranked = tuple(retriever.rank(question.question, pool=question.passages))
        prompts += [
            StatePrompt(id=question.question_id, question=question.question, passages=ranked[:k]) for k in _PROBED
        ]
    return prompts


def _golds(questions: Sequence[Question]) -> dict[str, Sequence[str]]:
    return {question.question_id: question.answers for question in questions}


def _chosen(bench: Bench, signal: str, tune: Recording, evaluation: Recording) -> RivalLine:
    """Choose the threshold of a signal on tune, and measure it on the evaluation questions.

    The chosen threshold has the most right answers on tune; among ties, the fewest calls.
    """
    name, comparison = _RULES[signal]
    column = tune.column(signal)
    thresholds = even_betas(column[np.isfinite(column)], _N_THRESHOLDS)
    if not thresholds:
        return RivalLine.not_run(name, "gate and stop", f"{signal} is undefined in every round of the tune questions")

    def line_at(threshold: float, recording: Recording) -> RivalLine:
        rule = f"{signal} {comparison} {threshold!r}"
        label = f"{name}: {signal} {comparison} {threshold:.3g} by tune"
        return line_of(label, "gate and stop", recording, bench.policy(start_round=0, rule=rule))

    def rank(threshold: float) -> tuple[float, float]:
        line = line_at(threshold, tune)
        return float(line.right.mean()), -float(line.calls.mean())

    return line_at(max(thresholds, key=rank), evaluation)


def _stop_rag(bench: Bench, tune: Recording, evaluation: Recording) -> RivalLine:
    """Measure the learned stopping rule; if nothing could be learned, the line contains the reason."""
    try:
        policy, _ = learn_stop(tune, _READ_BY_VALUES, metric="em", start_round=0, answer_position=bench.reader.position)
    except (DataError, UnknownSignalError) as error:
        return _not_run("Stop-RAG", error)
    return line_of("Stop-RAG", "learned stop", evaluation, policy)


def _adaptive_rag(bench: Bench, model: TransformersModel, tune: Recording) -> RivalLine:
    """Measure the classifier's routes; if it could not be fitted, the line contains the reason."""
    try:
        gate = fit_complexity(tune, MiniLM())
    except DataError as error:
        return _not_run("Adaptive-RAG", error)
    policy = bench.policy(start_round=0)
    loop = RetrievalLoop(model=model, retriever=PoolBM25(), policy=policy, gate=gate)
    recording = bench.recorded("adaptive-rag", loop, bench.evaluation)
    return line_of("Adaptive-RAG", "gate", recording, bench.policy(start_round=0, rule="adaptive_rag"))


def _self_rag(model: TransformersModel) -> RivalLine:
    """Return a line with the reason why Self-RAG is not run: this model was not trained with its tokens."""
    try:
        ReflectionGate(model)
    except NotFoundError:
        return RivalLine.not_run("Self-RAG", "gate", "the model has no reflection tokens")
    raise DataError(f"{model.id!r} has reflection tokens: record it behind ReflectionGate and add its line")
