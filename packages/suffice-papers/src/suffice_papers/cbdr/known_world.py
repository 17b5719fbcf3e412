"""Measure how well probes read a tiny model's knowledge from its hidden states, beside controls that should fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice._version import __version__
from suffice.common.results import Result
from suffice.common.tables import Column, Table, render
from suffice.errors import DataError, MissingExtraError
from suffice.evaluation.statistics import Area, area_under_roc
from suffice.loops.models.prompts import PREFILLED
from suffice.loops.retrieval import Question, dataset_hash, load_questions
from suffice.policy.metrics import exact_match
from suffice.policy.rounds import Floats, Mask, Passage
from suffice.policy.signals.margins import sequence_logprob
from suffice_gates.models.transformers_model import TransformersModel
from suffice_papers.cbdr.world import PROCESSOR_NOTE

CONTROLS = ("tokens of the question", "training counts of its tokens", "random labels")
"""Features that must not separate known from unknown questions."""

_STRENGTHS = (0.003, 0.02, 0.1)
_FOLDS = 4
_DRAWS = 5
_BATCH = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWorld(Result):
    """Measurements of one tiny model on its eval questions; probes are logistic regressions fitted on tune questions.

    Attributes:
        seed: Seed of the world.
        data: Hash of the eval questions.
        n: Number of eval questions.
        correct: Share of questions answered correctly closed book, by number of exposures of the fact.
        layers: Area under the ROC curve of "answers correctly" for a probe of the states, by layer.
        controls: Area under the ROC curve of each control; for `random labels`, the mean over draws.
        logprob: Area under the ROC curve of the answer's log-probability, for comparison.
        told: Share of questions answered correctly with the passage that states the fact.
        untold: Share of questions answered correctly with another question's passage.
        increase: Share of questions for which the passage that states the fact has a higher Inc (raises confidence
            more) than another passage; by probe: `qa`, `qa+rag`.
        increase_unknown: The same share, among the questions that the model does not know.
    """

    seed: int
    data: str
    n: int
    correct: Mapping[int, float]
    layers: Mapping[int, Area]
    controls: Mapping[str, float]
    logprob: Area
    told: float
    untold: float
    increase: Mapping[str, float]
    increase_unknown: Mapping[str, float]

    def tables(self) -> list[Table]:
        """Return the tables of this one seed."""
        return known_world_tables([self])


@dataclass(frozen=True, slots=True)
class _Half:
    """States and answers of one split.

    Index 0 is closed book, 1 is with the passage that states the fact, and 2 is with another passage.
    """

    questions: list[Question]
    right: list[Mask]
    states: list[npt.NDArray[np.float32]]
    logprobs: Floats

    @property
    def groups(self) -> list[str]:
        """The entity of each question."""
        return [item.question_id.split("-")[0] for item in self.questions]


def known_world(folder: str | Path) -> KnownWorld:
    """Measure a model written by `train_tiny`.

    Raises:
        ModelError: The model cannot be loaded.
        DataError: Its questions are missing, or it answers all or none of them correctly.
    """
    path = Path(folder)
    model = TransformersModel(path, layers=(0, 1, 2), prompt=PREFILLED, max_tokens=4, batch_size=_BATCH)
    tune, evaluation = (_half(model, load_questions(path / f"{split}.jsonl")) for split in ("tune", "eval"))
    facts = json.loads((path / "world.json").read_text(encoding="utf-8"))
    right, levels = evaluation.right[0], np.array([int(item.level or 0) for item in evaluation.questions])
    layers = {
        layer: area_under_roc(_fit_probe(tune.states[0][:, layer], tune.right[0], tune.groups)(s), right)
        for layer, s in enumerate(np.moveaxis(evaluation.states[0], 1, 0))
    }
    best = max(layers)
    increase, unknown = _increases(tune, evaluation, best)
    return KnownWorld(
        seed=int(facts["seed"]),
        data=dataset_hash(evaluation.questions),
        n=len(right),
        correct={int(level): float(right[levels == level].mean()) for level in np.unique(levels)},
        layers=layers,
        controls=_controls(tune, evaluation, facts["facts"], best, int(facts["seed"])),
        logprob=area_under_roc(evaluation.logprobs, right),
        told=float(evaluation.right[1].mean()),
        untold=float(evaluation.right[2].mean()),
        increase=increase,
        increase_unknown=unknown,
    )


def _half(model: TransformersModel, questions: list[Question]) -> _Half:
    """Generate the answers to a split's questions and read the states, under each of the three prompts of `_Half`."""
    stating = [[item for item in q.passages if item.passage_id in q.supporting] for q in questions]
    no_passages: list[list[Passage]] = [[] for _ in questions]
    right, states, logprobs = [], [], np.zeros(0)
    for passages in (no_passages, stating, [*stating[1:], stating[0]]):
        texts = [item.question for item in questions]
        replies = model.answers(texts, passages)
        right.append(
            np.array([exact_match(r.answer or "", q.answers) == 1 for r, q in zip(replies, questions, strict=True)])
        )
        states.append(model.read_batch(texts, passages))
        if not logprobs.size:
            logprobs = np.array([sequence_logprob(reply.tokens) for reply in replies])
    return _Half(questions, right, states, logprobs)


def _fit_probe(features: npt.NDArray[Any], labels: Mask, groups: Sequence[str]) -> Any:
    """Fit a logistic regression with cross-validation over entities, and return its scoring function."""
    try:
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import GroupKFold
    except ImportError as error:
        raise MissingExtraError("the probes of the known world (scikit-learn)", "torch", "suffice-papers") from error

    if len(np.unique(labels)) == 1:
        raise DataError(
            f"the model answers {'every' if labels[0] else 'no'} tune question correctly, so a probe cannot be fitted: "
            "finish the training, or use another seed"
        )
    folds = list(GroupKFold(_FOLDS).split(features, labels, groups))

    def fitted(strength: float, rows: npt.NDArray[np.intp]) -> Any:
        return LogisticRegression(C=strength, max_iter=2000).fit(features[rows], labels[rows])

    def held_out(strength: float) -> float:
        areas = [
            area_under_roc(fitted(strength, inside).decision_function(features[out]), labels[out]).value
            for inside, out in folds
        ]
        return float(np.nanmean(areas))

    best = fitted(max(_STRENGTHS, key=held_out), np.arange(len(labels)))
    return lambda states: best.predict_proba(states)[:, 1]


def _increases(tune: _Half, evaluation: _Half, layer: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return `increase` and `increase_unknown` of `KnownWorld`, each by probe."""
    both = np.concatenate([states[:, layer] for states in tune.states])
    probes = {
        "qa": _fit_probe(tune.states[0][:, layer], tune.right[0], tune.groups),
        "qa+rag": _fit_probe(both, np.concatenate(tune.right), tune.groups * len(tune.states)),
    }
    unknown = ~evaluation.right[0]
    overall, on_unknown = {}, {}
    for name, probe in probes.items():
        # Both Incs subtract the same confidence without a passage, so the comparison does not need it.
        stating, other = (probe(states[:, layer]) for states in evaluation.states[1:])
        first = (stating > other) + 0.5 * (stating == other)
        overall[name], on_unknown[name] = float(first.mean()), float(first[unknown].mean())
    return overall, on_unknown


def _controls(
    tune: _Half, evaluation: _Half, facts: Sequence[Mapping[str, Any]], layer: int, seed: int
) -> dict[str, float]:
    """Return the area under the ROC curve of each control: words, frequencies of words, and random labels."""
    counts: dict[str, int] = {}
    for fact in facts:
        for word in (fact["entity"], fact["relation"]):
            counts[word] = counts.get(word, 0) + int(fact["exposures"])
    words = sorted({word for half in (tune, evaluation) for item in half.questions for word in _words(item)})

    def bag(half: _Half) -> Floats:
        return np.array([[float(word in _words(item)) for word in words] for item in half.questions])

    def frequency(half: _Half) -> Floats:
        return np.array([[float(counts.get(word, 0)) for word in _words(item)] for item in half.questions])

    right = evaluation.right[0]
    area = {
        name: area_under_roc(_fit_probe(features(tune), tune.right[0], tune.groups)(features(evaluation)), right).value
        for name, features in zip(CONTROLS, (bag, frequency), strict=False)
    }
    rng, areas = np.random.default_rng((seed, 3)), []
    for _ in range(_DRAWS):
        probe = _fit_probe(tune.states[0][:, layer], rng.permutation(tune.right[0]), tune.groups)
        areas.append(area_under_roc(probe(evaluation.states[0][:, layer]), rng.permutation(right)).value)
    return {**area, CONTROLS[-1]: float(np.mean(areas))}


def _words(question: Question) -> tuple[str, str]:
    """Return the two variable words of a question: relation and entity."""
    parts = question.question.rstrip(".").split()
    return parts[2], parts[4]


def known_world_tables(measurements: Sequence[KnownWorld]) -> list[Table]:
    """Return the tables of several measurements, with one row per seed."""
    first = measurements[0]
    levels = sorted({level for item in measurements for level in item.correct})
    note = (
        "Questions of entities that no probe was fitted on; logistic regressions fitted on tune, their strength chosen "
        "there by cross-validation over entities."
    )
    seed: Mapping[Column, Callable[[KnownWorld], Any]] = {Column("seed"): lambda item: str(item.seed)}
    return [
        Table.of(
            "Share of eval questions answered correctly closed book, %, by how often training told the fact",
            measurements,
            {
                **seed,
                **{Column(str(level), ".1f", scale=100): _figure_of("correct", level) for level in levels},
                Column("with the passage", ".1f", scale=100): "told",
                Column("with another", ".1f", scale=100): "untold",
            },
        ),
        Table.of(
            "Area under the ROC curve of 'answers correctly closed book'",
            measurements,
            {
                **seed,
                Column("n"): lambda item: str(item.n),
                **{Column(f"states of layer {n}", ".3f", interval=True): _area(n) for n in first.layers},
                Column("log-probability of the answer", ".3f"): "logprob.value",
                **{Column(name, ".3f"): _figure_of("controls", name) for name in CONTROLS},
            },
            (note,),
        ),
        Table.of(
            "Share of questions whose Inc is higher for the passage that states the fact than for another, %",
            measurements,
            {
                **seed,
                **{
                    Column(f"probe of {name}, {who}", ".1f", scale=100): _figure_of(field, name)
                    for name in first.increase
                    for who, field in (("all", "increase"), ("unknown", "increase_unknown"))
                },
            },
        ),
    ]


def _figure_of(field: str, key: object) -> Callable[[KnownWorld], Any]:
    return lambda item: getattr(item, field)[key]


def _area(layer: int) -> Callable[[KnownWorld], tuple[float, float, float]]:
    return lambda item: (item.layers[layer].value, item.layers[layer].low, item.layers[layer].high)


def known_world_page(measurements: Sequence[KnownWorld]) -> str:
    """Return the tables as a page, with the hash of each seed's questions."""
    data = ", ".join(f"seed {item.seed}: {item.data}" for item in measurements)
    head = (
        "# A model with known knowledge\n\nTiny Llamas trained on invented worlds, one for each seed; "
        "[what that is for](../explanation/tiny-world.md). Made by\n"
        f"`suffice demo tiny-model OUT --set seed={measurements[0].seed} --measure {len(measurements)} --set markdown=FILE`, "
        f"Suffice {__version__}; hashes of the eval questions: {data}.\n\n"
        f"{PROCESSOR_NOTE}\n"
    )
    return "\n".join([head, render(known_world_tables(measurements), "md")])
