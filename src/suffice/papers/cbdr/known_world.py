"""What a tiny model's hidden states tell of its knowledge, beside controls that must tell nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice._version import __version__
from suffice.errors import DataError
from suffice.llm.prompts import PREFILLED
from suffice.llm.transformers_model import TransformersModel
from suffice.metrics import exact_match
from suffice.results import jsonable
from suffice.retrieval import Question, dataset_hash, load_questions
from suffice.rounds import Floats, Mask, Passage
from suffice.signals.uncertainty import sequence_logprob
from suffice.statistics import Area, area_under_roc
from suffice.tables import Column, Table, render

__all__ = ["CONTROLS", "KnownWorld", "known_world", "known_world_page", "known_world_tables"]

CONTROLS = ("tokens of the question", "training counts of its tokens", "random labels")
"""What must not tell known from unknown."""

_STRENGTHS = (0.003, 0.02, 0.1)
_FOLDS = 4
_DRAWS = 5
_BATCH = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWorld:
    """Measurements of one tiny model on its eval questions; probes are logistic regressions fitted on tune.

    Attributes:
        seed: Of the world.
        data: Hash of the eval questions.
        n: Eval questions.
        correct: By exposures, the share answered correctly closed book.
        layers: By layer, the area under the ROC curve of "answers correctly" of a probe of its states.
        controls: By control, the same; `random labels` is the mean over draws.
        logprob: The same of the answer's log-probability, for comparison.
        told: Share answered correctly with the passage that states the fact.
        untold: The same with another question's passage, which does not.
        increase: By probe (`qa`, `qa+rag`), the share of questions whose Inc is higher for the passage that states the
            fact than for the other one.
        increase_unknown: The same over the questions that the model does not know.
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

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        found = jsonable(asdict(self))
        assert isinstance(found, dict)
        return found


@dataclass(frozen=True, slots=True)
class _Half:
    """One split, read and answered: closed book (0), with the stating passage (1), with another one (2)."""

    questions: list[Question]
    right: list[Mask]
    states: list[npt.NDArray[np.float32]]
    logprobs: Floats

    @property
    def groups(self) -> list[str]:
        """The entity of each question."""
        return [_entity(item) for item in self.questions]


def known_world(folder: str | Path) -> KnownWorld:
    """Measure a model that `train_tiny` wrote.

    Raises:
        ModelError: There is no such model.
        DataError: Its questions are missing, or it answers all or none of them.
    """
    path = Path(folder)
    model = TransformersModel(path, layers=(0, 1, 2), prompt=PREFILLED, max_tokens=4, batch_size=_BATCH)
    tune, evaluation = (_half(model, load_questions(path / f"{split}.jsonl")) for split in ("tune", "eval"))
    facts = json.loads((path / "world.json").read_text(encoding="utf-8"))
    right, levels = evaluation.right[0], np.array([int(item.level or 0) for item in evaluation.questions])
    layers = {
        layer: area_under_roc(_fit(tune.states[0][:, layer], tune.right[0], tune.groups)(s), right)
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


def _entity(question: Question) -> str:
    return question.question_id.split("-")[0]


def _half(model: TransformersModel, questions: list[Question]) -> _Half:
    """Answer and read a split three times; the other passage states the fact of the next question."""
    told = [[item for item in q.passages if item.passage_id in q.supporting] for q in questions]
    nothing: list[list[Passage]] = [[] for _ in questions]
    right, states, logprobs = [], [], np.zeros(0)
    for passages in (nothing, told, [*told[1:], told[0]]):
        texts = [item.question for item in questions]
        replies = model.answers(texts, passages)
        right.append(
            np.array([exact_match(r.answer or "", q.answers) == 1 for r, q in zip(replies, questions, strict=True)])
        )
        states.append(model.read_batch(texts, passages))
        if not logprobs.size:
            logprobs = np.array([sequence_logprob(reply.tokens) for reply in replies])
    return _Half(questions, right, states, logprobs)


def _fit(features: npt.NDArray[Any], labels: Mask, groups: Sequence[str]) -> Any:
    """Fit a logistic regression, its strength chosen by cross-validation over entities; return what scores with it."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold

    if len(np.unique(labels)) == 1:
        raise DataError(
            f"the model answers {'every' if labels[0] else 'no'} tune question correctly: nothing tells known from unknown. "
            "Train it to the end, or another seed"
        )
    folds = list(GroupKFold(_FOLDS).split(features, labels, groups))

    def made(strength: float, rows: npt.NDArray[np.intp]) -> Any:
        return LogisticRegression(C=strength, max_iter=2000).fit(features[rows], labels[rows])

    def held_out(strength: float) -> float:
        areas = [
            area_under_roc(made(strength, kept).decision_function(features[out]), labels[out]).value
            for kept, out in folds
        ]
        return float(np.nanmean(areas))

    best = made(max(_STRENGTHS, key=held_out), np.arange(len(labels)))
    return lambda states: best.predict_proba(states)[:, 1]


def _increases(tune: _Half, evaluation: _Half, layer: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return how often Inc ranks the stating passage first, of a probe of the QA prompt and of one of both prompts."""
    both = np.concatenate([states[:, layer] for states in tune.states])
    probes = {
        "qa": _fit(tune.states[0][:, layer], tune.right[0], tune.groups),
        "qa+rag": _fit(both, np.concatenate(tune.right), tune.groups * len(tune.states)),
    }
    unknown = ~evaluation.right[0]
    every, some = {}, {}
    for name, probe in probes.items():
        # Inc of both passages takes away the same confidence without a passage.
        told, other = (probe(states[:, layer]) for states in evaluation.states[1:])
        first = (told > other) + 0.5 * (told == other)
        every[name], some[name] = float(first.mean()), float(first[unknown].mean())
    return every, some


def _controls(
    tune: _Half, evaluation: _Half, facts: Sequence[Mapping[str, Any]], layer: int, seed: int
) -> dict[str, float]:
    """Return the areas of what must tell nothing."""
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
        name: area_under_roc(_fit(read(tune), tune.right[0], tune.groups)(read(evaluation)), right).value
        for name, read in zip(CONTROLS, (bag, frequency), strict=False)
    }
    rng, drawn = np.random.default_rng((seed, 3)), []
    for _ in range(_DRAWS):
        probe = _fit(tune.states[0][:, layer], rng.permutation(tune.right[0]), tune.groups)
        drawn.append(area_under_roc(probe(evaluation.states[0][:, layer]), rng.permutation(right)).value)
    return {**area, CONTROLS[-1]: float(np.mean(drawn))}


def _words(question: Question) -> tuple[str, str]:
    """Return the two words of a question that change: relation and entity."""
    parts = question.question.rstrip(".").split()
    return parts[2], parts[4]


def known_world_tables(found: Sequence[KnownWorld]) -> list[Table]:
    """Return the tables of one or more seeds."""
    share, area = ".1f", ".3f"
    levels = sorted({level for item in found for level in item.correct})
    first = found[0]
    note = (
        "Questions of entities that no probe was fitted on; logistic regressions fitted on tune, their strength chosen "
        "there by cross-validation over entities."
    )
    return [
        Table(
            title="Share of eval questions answered correctly closed book, %, by how often training told the fact",
            columns=(
                Column("seed"),
                *(Column(str(level), share, scale=100) for level in levels),
                Column("with the passage", share, scale=100),
                Column("with another", share, scale=100),
            ),
            rows=tuple(
                (str(item.seed), *(item.correct[level] for level in levels), item.told, item.untold) for item in found
            ),
        ),
        Table(
            title="Area under the ROC curve of 'answers correctly closed book'",
            columns=(
                Column("seed"),
                Column("n"),
                *(Column(f"states of layer {layer}", area, interval=True) for layer in first.layers),
                Column("log-probability of the answer", area),
                *(Column(name, area) for name in CONTROLS),
            ),
            rows=tuple(
                (
                    str(item.seed),
                    str(item.n),
                    *((value.value, value.low, value.high) for value in item.layers.values()),
                    item.logprob.value,
                    *(item.controls[name] for name in CONTROLS),
                )
                for item in found
            ),
            notes=(note,),
        ),
        Table(
            title="Share of questions whose Inc is higher for the passage that states the fact than for another, %",
            columns=(
                Column("seed"),
                *(
                    Column(f"probe of {name}, {who}", share, scale=100)
                    for name in first.increase
                    for who in ("all", "unknown")
                ),
            ),
            rows=tuple(
                (
                    str(item.seed),
                    *(value for name in item.increase for value in (item.increase[name], item.increase_unknown[name])),
                )
                for item in found
            ),
        ),
    ]


def known_world_page(found: Sequence[KnownWorld]) -> str:
    """Return the tables as a page, with the hash of each seed's questions."""
    data = ", ".join(f"seed {item.seed}: {item.data}" for item in found)
    head = (
        "# A model with known knowledge\n\nTiny Llamas trained on invented worlds, one for each seed; "
        "[what that is for](../explanation/tiny-world.md). Made by\n"
        f"`suffice demo tiny-model OUT --seed {found[0].seed} --measure {len(found)} --markdown FILE`, "
        f"Suffice {__version__}; hashes of the eval questions: {data}.\n"
    )
    return "\n".join([head, render(known_world_tables(found), "md")])
