"""A pilot of CBDR's pipeline: measure one unit of each kind of work on a handful of questions.

The preferred passages depend on the probe, which a handful of questions cannot train.  So the pilot does not run the
stages themselves.  It generates answers, reads states, scores pairs and takes training steps on prompts like those of
the stages, and records seconds and tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from suffice.cli.local import hub_name
from suffice.errors import DataError
from suffice.loops.retrieval import PoolBM25, Question
from suffice.loops.retrieval.bm25 import passage_text
from suffice.policy.rounds import Passage
from suffice_gates.models._transformers_loading import off_the_device
from suffice_gates.models.transformers_model import TransformersModel
from suffice_gates.probes import ProbeCard
from suffice_gates.training.examples import Examples
from suffice_gates.training.preference_file import Preference
from suffice_gates.training.preferences import candidates_of
from suffice_gates.training.probe import train_probe
from suffice_gates.training.reranker_trainer import load_base, pair_scorer
from suffice_gates.training.step_time import time_steps
from suffice_papers.cbdr.journaled import OnStage
from suffice_papers.cbdr.names import ALIGNED, display_name
from suffice_papers.cbdr.plan import CbdrSettings
from suffice_papers.cbdr.work import PROBE_STEP, RERANKER_STEP, answer_of, pair_of, pass_of

_PROBE_BATCHES = 4
"""Batches of states for measuring a step of the probe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The cost of some units of work.

    Attributes:
        n: Number of units.
        seconds: Total seconds of these units, without loading a model.
        read: Tokens of each prompt that the model read; empty if no language model was asked.
        written: Tokens of each reply; empty if none was generated.
    """

    n: int
    seconds: float
    read: tuple[float, ...] = ()
    written: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Measured:
        """Return a measurement from the values of `to_dict`."""
        return cls(
            n=int(values["n"]),
            seconds=float(values["seconds"]),
            read=tuple(map(float, values["read"])),
            written=tuple(map(float, values["written"])),
        )


def pilot_cbdr(
    questions: Sequence[Question],
    model: TransformersModel,
    reranker: str,
    *,
    n: int,
    others: Mapping[str, str],
    settings: CbdrSettings,
    device: str | None = None,
    on_progress: OnStage | None = None,
) -> dict[str, Measured]:
    """Measure a unit of each kind of work of `run_cbdr` on some questions.

    Args:
        questions: Questions with candidate passages; the first `n` questions with at least two different passages are
            used.
        model: The target model, which is moved off its GPU while the reranker takes training steps.
        reranker: Id or folder of the cross-encoder to align.
        n: Number of questions.
        others: Further cross-encoders by their name in the tables.
        settings: Settings of the pipeline.
        device: A torch device for the rerankers; None for torch's default.
        on_progress: Called with the name of a measurement, the number of measurements done, and the number of all
            measurements.

    Returns:
        The measurements by the names of `suffice_papers.cbdr.work`.

    Raises:
        DataError: No question has two different passages.
        MissingExtraError: The extra `torch` is not fully installed.
        ModelError: A model failed.
    """
    return _Pilot(questions, model, reranker, n=n, others=others, settings=settings, device=device).run(on_progress)


class _Pilot:
    def __init__(
        self,
        questions: Sequence[Question],
        model: TransformersModel,
        reranker: str,
        *,
        n: int,
        others: Mapping[str, str],
        settings: CbdrSettings,
        device: str | None,
    ) -> None:
        self._model, self._base, self._others, self._device = model, reranker, dict(others), device
        self._settings = settings
        ranked = ((q, candidates_of(q, PoolBM25(), settings.candidates)[0]) for q in questions)
        self._asked = [*islice(((q, pool) for q, pool in ranked if len(pool) > 1), n)]
        if not self._asked:
            raise DataError(
                "no question has two different passages, so nothing could be preferred: give such questions"
            )

    def run(self, on_progress: OnStage | None) -> dict[str, Measured]:
        """Take all measurements."""
        report = on_progress or (lambda _what, _done, _total: None)
        depths = sorted({0, 1, *self._settings.depths})
        rerankers = {display_name(self._base): self._base, **self._others}
        work: dict[str, Callable[[], Measured]] = {
            **{answer_of(k): partial(self._answers, k) for k in depths},
            **{pass_of(k): partial(self._passes, k) for k in (0, 1)},
            PROBE_STEP: self._probe_steps,
            **{pair_of(name): partial(self._pairs, folder) for name, folder in rerankers.items()},
            RERANKER_STEP: self._reranker_steps,
        }
        result: dict[str, Measured] = {}
        for what, measure in work.items():
            report(what, len(result), len(work))
            result[what] = measure()
        report("pilot", len(work), len(work))
        result[pair_of(ALIGNED)] = result[pair_of(display_name(self._base))]  # the same network with other weights
        return result

    def _prompts(self, passages: int) -> list[tuple[str, list[Passage]]]:
        return [(question.question, pool[:passages]) for question, pool in self._asked]

    def _tokens(self, prompts: Sequence[tuple[str, Sequence[Passage]]]) -> tuple[float, ...]:
        model = self._model
        messages = [(model.rag_prompt if pool else model.prompt).messages(text, pool) for text, pool in prompts]
        return tuple(float(len(model.prompt_ids(item))) for item in messages)

    def _answers(self, passages: int) -> Measured:
        prompts = self._prompts(passages)
        texts, contexts = [text for text, _ in prompts], [pool for _, pool in prompts] if passages else None
        self._model.answers(texts[:1], None if contexts is None else contexts[:1])  # warms up
        began = time.perf_counter()
        replies = self._model.answers(texts, contexts)
        seconds = time.perf_counter() - began
        written = tuple(float(sum(c.output_tokens for c in reply.costs.values())) for reply in replies)
        return Measured(n=len(texts), seconds=seconds, read=self._tokens(prompts), written=written)

    def _passes(self, passages: int) -> Measured:
        prompts = self._prompts(0)
        if passages:
            prompts = [(question.question, [passage]) for question, pool in self._asked for passage in pool]
        texts, contexts = [text for text, _ in prompts], [pool for _, pool in prompts] if passages else None
        self._model.read_batch(texts[:1], None if contexts is None else contexts[:1])
        began = time.perf_counter()
        self._model.read_batch(texts, contexts)
        return Measured(n=len(texts), seconds=time.perf_counter() - began, read=self._tokens(prompts))

    def _pairs(self, folder: str) -> Measured:
        name, revision = hub_name(folder)
        settings = self._settings.reranker
        encoder = load_base(
            name, settings, revision=revision, device=self._device, seed=self._settings.seed, new_head=False
        )
        pairs = [(q.question, passage_text(p.title, p.text)) for q, pool in self._asked for p in pool]
        score = pair_scorer(encoder, settings)
        score(pairs[:1])
        began = time.perf_counter()
        score(pairs)
        return Measured(n=len(pairs), seconds=time.perf_counter() - began)

    def _reranker_steps(self) -> Measured:
        preferences = [
            Preference(query=question.question, pos=tuple(texts[:1]), neg=tuple(texts[1:]))
            for question, pool in self._asked
            for texts in [[passage_text(passage.title, passage.text) for passage in pool]]
        ]
        base, revision = hub_name(self._base)
        with off_the_device(self._model.loaded):
            n, seconds = time_steps(
                base,
                preferences,
                self._settings.reranker,
                revision=revision,
                device=self._device,
                seed=self._settings.seed,
            )
        return Measured(n=n, seconds=seconds)

    def _probe_steps(self) -> Measured:
        """Train a probe for one epoch on random states, since the duration does not depend on their values."""
        settings = replace(self._settings.probe, epochs=1)
        rows = _PROBE_BATCHES * settings.batch_size
        states = np.random.default_rng(0).normal(size=(rows, int(self._model.loaded.config.hidden_size)))
        labels = (np.arange(rows) % 2).astype(np.float64)
        examples = Examples(ids=tuple(map(str, range(rows))), states=states.astype(np.float32), labels=labels)
        card = ProbeCard(model=self._model.id, revision=self._model.revision, layer=self._model.layers[0])
        train_probe(examples, examples, card, settings=settings)  # warms up
        began = time.perf_counter()
        train_probe(examples, examples, card, settings=settings)
        return Measured(n=_PROBE_BATCHES, seconds=time.perf_counter() - began)
