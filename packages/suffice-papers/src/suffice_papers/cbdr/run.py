"""CBDR end to end on one model and question set: labels, states, probe, preferences, reranker and gate.

"Rethinking LLM Parametric Knowledge as Confidence for Effective and Efficient RAG": sections 3 and 4, appendices C, F
and H.  Answers, states, preference data, the reranker and the orders of the passages are kept in one folder and reused.
The probes, which take seconds, and the check of the probe under both prompts are computed again in each run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from suffice.cli.local import hub_name
from suffice.errors import ConfigMismatchError
from suffice.evaluation.statistics import Resampling
from suffice.loops.retrieval import PoolBM25, Question, Retriever
from suffice.policy.rounds import Floats
from suffice.recordings.journal import differences
from suffice_gates.gates import GateEvaluation, GatePoint, Transitions, transitions
from suffice_gates.gates.answered import Answered, answered_recording
from suffice_gates.models._transformers_loading import off_the_device
from suffice_gates.models.state_files import StoredStates, read_states
from suffice_gates.models.states import QA
from suffice_gates.models.transformers_model import TransformersModel
from suffice_gates.probes import LabelRule, is_right
from suffice_gates.probes.collect import StatePrompt, collect_states
from suffice_gates.probes.confidence import ProbeConfidence
from suffice_gates.rerank import CrossEncoderScorer, Reranked
from suffice_gates.training.examples import Split
from suffice_gates.training.preference_file import Preference, read_preferences
from suffice_gates.training.preferences import PreferenceSummary, build_preferences
from suffice_gates.training.probe_run import LabelledStates, ProbeRun, run_training
from suffice_gates.training.ranking import rank_metrics
from suffice_gates.training.reranker import RERANKER_CARD, preferences_hash, train_reranker
from suffice_gates.training.reranker_trainer import changed_settings, load_base, pair_scorer
from suffice_gates.training.shift import Shift, draw_contexts, measure_prompt
from suffice_papers.cbdr.gates import gate_points, probe_signal
from suffice_papers.cbdr.journaled import JournaledWork, OnStage
from suffice_papers.cbdr.names import ALIGNED, CLOSED_BOOK, ONE_PASSAGE, RETRIEVER, answers_of_order, display_name
from suffice_papers.cbdr.plan import CbdrSettings, Parts, divide
from suffice_papers.cbdr.work import shift_sample
from suffice_papers.multinomial import draws_by_place


@dataclass(frozen=True, eq=False, kw_only=True)
class CbdrRun:
    """The outcome of a run of the pipeline.

    Attributes:
        parts: Number of questions in each part.
        known: Share of right closed-book answers among the probe's questions and the test questions.
        probes: Training runs by layer and epochs; the probe that is best on dev is used for the reranker and the gate.
        best: Layer and epochs of that best probe.
        shift: Quality of the best probe under both prompts, on test questions.
        preferences: Summaries of the preference data for training and test.
        ranking: P@K, R@K and MRR@K, with intervals, of each reranker on the test preferences, in the order of `NAMES`.
        reranker: The folder of the aligned reranker.
        accuracy: Share of right answers, with its interval, by order of the passages (the retriever's own order, then
            that of each reranker) and by depth.
        gates: Points with the aligned reranker, by depth. Their order is: never; each beta of each probe; random gates
            at the rates of the best probe; always; always, with each other order of passages; perfect. A gate's
            difference to always retrieving has a p-value adjusted over all probes, betas and depths. A gate may also be
            dominated by a label-blind gate in another order of passages.
        changes: Answers that change between neighbouring betas, by depth.
        settings: Settings of the run.
        seconds: Duration of each stage in this run.
    """

    parts: Mapping[str, int]
    known: float
    probes: Mapping[tuple[int, int], ProbeRun]
    best: tuple[int, int]
    shift: Shift
    preferences: Mapping[str, PreferenceSummary]
    ranking: Mapping[str, tuple[tuple[float, float, float], ...]]
    reranker: Path
    accuracy: Mapping[tuple[str, int], tuple[float, float, float]]
    gates: Mapping[int, tuple[GatePoint, ...]]
    changes: Mapping[int, tuple[Transitions, ...]]
    settings: CbdrSettings
    seconds: Mapping[str, float]


def run_cbdr(
    questions: Sequence[Question],
    model: TransformersModel,
    reranker: str | Path,
    out: str | Path,
    *,
    others: Sequence[str] | Mapping[str, str] = (),
    settings: CbdrSettings | None = None,
    device: str | None = None,
    on_progress: OnStage | None = None,
) -> CbdrRun:
    """Run the paper's pipeline; after an interruption, the same call resumes.

    The target model is moved off its GPU while the reranker is trained.

    Args:
        questions: Questions with gold answers and their own candidate passages.
        model: The target model; probes are trained on its layers.
        reranker: Id or folder of the cross-encoder to align.
        out: The output folder.
        others: Further cross-encoders to compare without training: a list of ids and folders, or a mapping from names
            in the tables to ids and folders.
        settings: Settings of the pipeline; default: those of the paper.
        device: A torch device for the rerankers; None for torch's default.
        on_progress: Called with the name of a stage, the number of units of the stage that are done, and the number of
            all its units.

    Raises:
        ConfigMismatchError: The folder was begun with another configuration.
        DataError: There are too few questions, or the model knows none or all of them.
        MissingExtraError: The extra `torch` is not fully installed.
        ModelError: A model failed; earlier results are kept.
    """
    settings = settings or CbdrSettings()
    return _Pipeline(
        questions=questions,
        model=model,
        base=str(reranker),
        others=dict(others) if isinstance(others, Mapping) else {display_name(name): name for name in others},
        out=Path(out),
        settings=settings,
        device=device,
        label=LabelRule.parse(settings.label),
        report=on_progress or (lambda _stage, _done, _total: None),
    ).run()


@dataclass(kw_only=True)
class _Pipeline:
    """The stages of a run; each uses the output of earlier stages."""

    questions: Sequence[Question]
    model: TransformersModel
    base: str
    others: Mapping[str, str]
    out: Path
    settings: CbdrSettings
    device: str | None
    label: LabelRule
    report: OnStage
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._work = JournaledWork(model=self.model, out=self.out, report=self.report)

    def run(self) -> CbdrRun:
        """Run all stages in their order."""
        parts = divide(self.questions, self.settings)
        for name in (self.base, *self.others.values()):  # if one cannot be loaded, fail before the costly stages
            self._encoder(name)
        asked = parts.asked(self.questions)
        with self._stage("closed-book answers"):
            direct = self._work.answers(CLOSED_BOOK, asked, None)
        labels = self._labels(asked, direct)
        with self._stage("hidden states"):
            states = self._states(asked)
        with self._stage("probes"):
            probes = self._probes(
                LabelledStates(states=states, labels=labels, texts={q.question_id: q.question for q in self.questions}),
                parts.probe,
            )
        best = max(probes, key=lambda at: max(c.dev_auroc for c in probes[at].candidates))
        confidence = ProbeConfidence(probes[best].probe, self.model, allow=("rag",))
        with self._stage("both prompts"):
            shift = self._shift(parts.test, confidence, direct)
        with self._stage("preference data"):
            prefer, summaries = self._preferences(parts, confidence, shift)
        with self._stage("reranker"):
            aligned = self._train(prefer["train"])
        folders = {display_name(self.base): self.base, **self.others, ALIGNED: str(aligned)}
        with self._stage("ranking"):
            ranking = {name: self._ranking(folder, prefer["test"]) for name, folder in folders.items()}
        with self._stage("answers with passages"):
            answers_by_order = {RETRIEVER: self._ordered_answers(RETRIEVER, PoolBM25(), parts.test)}
            answers_by_order |= {
                name: self._ordered_answers(name, self._reranked(folder), parts.test)
                for name, folder in folders.items()
            }
        with self._stage("gate"):
            scores = self._scores(parts.test, probes)
            orders = {
                name: self._benches(parts.test, direct, answers, scores) for name, answers in answers_by_order.items()
            }
            benches = orders.pop(ALIGNED)
            betas = self.settings.betas
            gates = gate_points(benches, orders, tuple(probes), best=best, betas=betas, seed=self.settings.seed)
            changes = {
                depth: transitions(evaluation, probe_signal(*best), betas) for depth, evaluation in benches.items()
            }
        return CbdrRun(
            parts={
                "probe, train": len(parts.probe.train),
                "probe, dev": len(parts.probe.dev),
                "preferences": len(parts.prefer),
                "test": len(parts.test),
            },
            known=float(np.mean(list(labels.values()))),
            probes=probes,
            best=best,
            shift=shift,
            preferences=summaries,
            ranking=ranking,
            reranker=aligned,
            accuracy={
                (name, depth): self._accuracy(parts.test, answers)
                for name, by_depth in answers_by_order.items()
                for depth, answers in by_depth.items()
            },
            gates=gates,
            changes=changes,
            settings=self.settings,
            seconds=self.seconds,
        )

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        """Time a stage and report its start and end."""
        self.report(name, 0, 1)
        began = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - began
        self.report(name, 1, 1)

    def _labels(self, questions: Sequence[Question], answers: Mapping[str, str | None]) -> dict[str, float]:
        marks = {q.question_id: is_right(answers[q.question_id], q.answers, self.label) for q in questions}
        return {name: mark for name, mark in marks.items() if not np.isnan(mark)}

    def _states(self, questions: Sequence[Question]) -> StoredStates:
        prompted = [StatePrompt(id=q.question_id, question=q.question) for q in questions]
        summary = collect_states(
            self.model,
            prompted,
            self.out / QA,
            on_progress=lambda done, total: self.report("hidden states", done, total),
        )
        return read_states(summary.path)

    def _probes(self, data: LabelledStates, split: Split) -> dict[tuple[int, int], ProbeRun]:
        """Train a probe for each layer and number of epochs."""
        runs: dict[tuple[int, int], ProbeRun] = {}
        usable = sum(name in data.labels for name in split.train)
        for layer in self.model.layers:
            for epochs in self.settings.epochs:
                self.report(f"probe, layer {layer}, {epochs} epochs", len(runs), 1)
                run = run_training(
                    data,
                    split,
                    layers=(layer,),
                    seeds=(self.settings.seed,),
                    settings=replace(self.settings.probe, epochs=epochs),
                    train_size=min(self.settings.train_size, usable),
                )
                run.probe.save(self.out / "probes" / f"layer-{layer}-epochs-{epochs}")
                runs[layer, epochs] = run
        return runs

    def _shift(
        self, questions: Sequence[Question], confidence: ProbeConfidence, direct: Mapping[str, str | None]
    ) -> Shift:
        """Measure the probe under both prompts on some questions; the answers with a passage are also journaled."""
        rng = np.random.default_rng(self.settings.seed)
        sample = shift_sample(questions, self.settings.shift, rng)
        pairs = draw_contexts(sample, rng=rng, candidates=self.settings.candidates)
        drawn, passages = [question for question, _ in pairs], [[passage] for _, passage in pairs]
        texts = [question.question for question in drawn]
        given = self._work.answers(f"{ONE_PASSAGE}, {len(drawn)} questions", drawn, passages)
        qa, rag = (
            measure_prompt(
                pairs,
                confidence.of(texts, context),
                [answers[question.question_id] for question in drawn],
                label=self.label,
            )
            for context, answers in ((None, direct), (passages, given))
        )
        return Shift(qa=qa, rag=rag, label=str(self.label))

    def _preferences(
        self, parts: Parts, confidence: ProbeConfidence, shift: Shift
    ) -> tuple[dict[str, list[Preference]], dict[str, PreferenceSummary]]:
        summaries = {
            name: build_preferences(
                questions,
                confidence,
                self.out / "preferences" / f"{name}.jsonl",
                candidates=self.settings.candidates,
                k=self.settings.k,
                shift=shift.to_dict(),
                on_progress=lambda done, total: self.report("preference data", done, total),
            )
            for name, questions in (("train", parts.prefer), ("test", parts.test))
        }
        return {name: read_preferences(summary.path) for name, summary in summaries.items()}, summaries

    def _train(self, preferences: Sequence[Preference]) -> Path:
        """Train the reranker for all its epochs, without selecting a step and without test questions."""
        out = self.out / "reranker"
        if (out / RERANKER_CARD).is_file():
            card = json.loads((out / RERANKER_CARD).read_text(encoding="utf-8"))
            changed = differences(
                {"data": card["data"]["train"]["hash"]}, {"data": preferences_hash(preferences)}
            ) + changed_settings(card["settings"], self.settings.reranker)
            if changed:
                raise ConfigMismatchError(
                    f"{out} was aligned with other data or settings ({'; '.join(changed)}): move it away, or give another folder"
                )
            return out
        base, revision = hub_name(self.base)
        with off_the_device(self.model.loaded):
            return train_reranker(
                base,
                preferences,
                out,
                settings=self.settings.reranker,
                aligned_with={
                    key: self.model.fingerprint()[key]
                    for key in ("model", "revision", "content")
                    if key in self.model.fingerprint()
                },
                revision=revision,
                device=self.device,
                seed=self.settings.seed,
            ).path

    def _ranking(self, folder: str, preferences: Sequence[Preference]) -> tuple[tuple[float, float, float], ...]:
        settings = self.settings.reranker
        scores = rank_metrics(preferences, pair_scorer(self._encoder(folder), settings))
        return _means_with_intervals(scores, self.settings.resampling)

    def _encoder(self, folder: str) -> Any:
        name, revision = hub_name(folder)
        settings, seed = self.settings.reranker, self.settings.seed
        return load_base(name, settings, revision=revision, device=self.device, seed=seed, new_head=False)

    def _reranked(self, folder: str) -> Retriever:
        name, revision = hub_name(folder)
        scorer = CrossEncoderScorer(name, revision=revision, device=self.device, dtype="auto")
        return Reranked(PoolBM25(), scorer, candidates=self.settings.candidates)

    def _ordered_answers(
        self, name: str, ranked: Retriever, questions: Sequence[Question]
    ) -> dict[int, dict[str, str | None]]:
        """Return the answers with the first passages of an order, by depth and question."""
        orders = self._work.orders(name, ranked, questions, max(self.settings.depths))
        return {
            depth: self._work.answers(
                answers_of_order(name, depth), questions, [passages[:depth] for passages in orders]
            )
            for depth in self.settings.depths
        }

    def _accuracy(self, questions: Sequence[Question], answers: Mapping[str, str | None]) -> tuple[float, float, float]:
        marks = [is_right(answers[q.question_id], q.answers, self.label) for q in questions]
        known = np.array([[mark for mark in marks if not np.isnan(mark)]])
        return _means_with_intervals(known, self.settings.resampling)[0]

    def _usable(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions whose answers can be marked right or wrong."""
        return [q for q in questions if not np.isnan(is_right("", q.answers, self.label))]

    def _scores(self, questions: Sequence[Question], probes: Mapping[tuple[int, int], ProbeRun]) -> dict[str, Floats]:
        """Return the probabilities of every probe for the usable questions, by name of the signal."""
        # One pass over each question alone reads the states of all layers, for every probe.
        states = self.model.read_batch([q.question for q in self._usable(questions)])
        return {
            probe_signal(*at): run.probe.predict(states[:, run.probe.card.check_source(self.model)])
            for at, run in probes.items()
        }

    def _benches(
        self,
        questions: Sequence[Question],
        direct: Mapping[str, str | None],
        answers_by_depth: Mapping[int, Mapping[str, str | None]],
        scores: Mapping[str, Floats],
    ) -> dict[int, GateEvaluation]:
        """Return by depth an evaluation of the test questions, with both answers and every probe's probabilities."""
        usable = self._usable(questions)
        benches = {}
        for depth, answers in answers_by_depth.items():
            answered = [
                Answered(
                    question_id=q.question_id,
                    question=q.question,
                    golds=q.answers,
                    closed_book=direct[q.question_id],
                    retrieved=answers[q.question_id],
                    type=q.type,
                )
                for q in usable
            ]
            benches[depth] = GateEvaluation(
                answered_recording(answered, scores),
                metrics=tuple(dict.fromkeys((self.label.measure, "contains", "em", "f1"))),
                resampling=self.settings.resampling,
            )
        return benches


def _means_with_intervals(values: Floats, resampling: Resampling) -> tuple[tuple[float, float, float], ...]:
    """Return the mean of each row with its interval."""
    means = draws_by_place(resampling, values.shape[1]).intervals(values)
    return tuple(zip(means.delta.tolist(), means.low.tolist(), means.high.tolist(), strict=True))
