"""Adaptive-RAG's classifier as a gate: retrieve never, once, or as often as the loop does (Jeong et al., 2024)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.common.files import write_file
from suffice.common.json_text import refuse_constant
from suffice.errors import ConfigMismatchError, DataError, SchemaError
from suffice.evaluation.replay import outcome, seen_from
from suffice.evaluation.replay.checks import require_whole
from suffice.loops.models.protocols import Verdict
from suffice.policy.calibration.calibrator import map_from_dict
from suffice.policy.embedding import Embedder, identity
from suffice.policy.rounds import Cost, Floats, Mask
from suffice.policy.seen import Seen
from suffice.policy.signals import COMPLEXITY, KNOWN
from suffice.recordings.recording import Recording
from suffice_gates.gates.answered import questions_of, require_round_0
from suffice_gates.gates.question_only import QuestionGate, adaptive_labels, fit_gate, question_folds
from suffice_gates.models.states import required_questions

FORMAT = "suffice.question_gate"
VERSION = 1
CARD, WEIGHTS = "card.json", "model.safetensors"
_ARRAYS = ("mean", "scale", "weights", "intercepts")
_FIELDS = {
    "format",
    "version",
    "encoder",
    "classes",
    "wanted",
    "strength",
    "calibration",
    "weights_sha256",
    "provenance",
}
_RIGHT = 0.5


class ComplexityGate:
    """Predicts how much retrieval a question needs, from the text of the question alone.

    A policy acts on the predicted class through the rule `adaptive_rag`.

    The signals of the gate are `complexity`, the likeliest class (0: no retrieval, 1: one retrieval, 2: more), and
    `p_known`, the calibrated probability of class 0.

    Args:
        classifier: The classifier, fitted by `fit_complexity`.
        embedder: Embeds the questions.
        provenance: Data, figures and questions of the fit; JSON-ready.
        name: Name in reports.
    """

    capabilities = frozenset({COMPLEXITY, KNOWN})

    def __init__(
        self,
        classifier: QuestionGate,
        embedder: Embedder,
        *,
        provenance: Mapping[str, Any] | None = None,
        name: str = "adaptive-rag",
    ) -> None:
        self.classifier, self.source, self.name = classifier, embedder, name
        self.provenance = dict(provenance or {})

    def __repr__(self) -> str:
        return f"ComplexityGate({self.source.id!r}, classes={self.classifier.classes!r})"

    @property
    def seen(self) -> Seen | None:
        """The questions that the gate was fitted on; None if they were not recorded."""
        return Seen.from_dict(self.provenance)

    def fingerprint(self) -> Mapping[str, Any]:
        """All settings that affect the gate's verdicts: encoder, classes, weights and calibration."""
        card = {key: value for key, value in self._card().items() if key not in ("format", "version", "provenance")}
        return {"kind": "question gate", **card}

    def decide(self, question: str) -> Verdict:
        """Encode the question and return `complexity` and `p_known`; NaN if the encoder returns no finite vector.

        Raises:
            DataError: The question is empty.
            ModelError: The encoder failed.
        """
        required_questions([question])
        vectors, cost = self.source.embed_costed([question])
        began = time.perf_counter()
        values = np.asarray(vectors, dtype=np.float64)
        known = self.classifier.calibration.predict(self.classifier.raw(values))
        signals = {COMPLEXITY: float(self.classifier.likeliest(values)[0]), KNOWN: float(known[0])}
        return Verdict(signals=signals, cost=cost + Cost(seconds=time.perf_counter() - began))

    async def decide_async(self, question: str) -> Verdict:
        """Like `decide`, in a worker thread."""
        return await asyncio.to_thread(self.decide, question)

    @cached_property
    def _stored(self) -> bytes:
        from safetensors.numpy import save

        return bytes(save({name: np.ascontiguousarray(getattr(self.classifier, name)) for name in sorted(_ARRAYS)}))

    def _card(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "encoder": identity(self.source),
            "classes": list(self.classifier.classes),
            "wanted": self.classifier.wanted,
            "strength": self.classifier.strength,
            "calibration": self.classifier.calibration.to_dict(),
            "weights_sha256": hashlib.sha256(self._stored).hexdigest(),
            "provenance": self.provenance,
        }

    def save(self, folder: str | Path) -> None:
        """Write `model.safetensors` and `card.json`, each whole or not at all."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        write_file(target / WEIGHTS, self._stored)
        write_file(target / CARD, json.dumps(self._card(), indent=2, allow_nan=False, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, folder: str | Path, embedder: Embedder) -> ComplexityGate:
        """Read a gate without executing anything in its files.

        Args:
            folder: A folder written by `save`.
            embedder: The embedder that the gate was fitted on.

        Raises:
            DataError: A file cannot be read.
            SchemaError: This release cannot read the gate, or the weights do not match the card.
            ConfigMismatchError: The gate was fitted on vectors of another encoder.
        """
        card, stored = read_card(folder), _bytes_of(Path(folder) / WEIGHTS)
        if hashlib.sha256(stored).hexdigest() != card["weights_sha256"]:
            raise SchemaError(f"the weights in {str(folder)!r} do not match the card: copy both files of one gate")
        if card["encoder"] != identity(embedder):
            raise ConfigMismatchError(
                f"the gate was fitted on vectors of {card['encoder']!r}, and the encoder is {identity(embedder)!r}: use that "
                "one, or fit a gate on this one"
            )
        arrays = _arrays(stored, folder)
        try:
            classifier = QuestionGate(
                read=embedder.embed,
                classes=tuple(map(int, card["classes"])),
                wanted=int(card["wanted"]),
                strength=float(card["strength"]),
                calibration=map_from_dict(card["calibration"]),
                **arrays,
            )
        except (TypeError, ValueError) as error:
            raise SchemaError(f"the card of {str(folder)!r} has values of the wrong kind: {error}") from None
        sets = 1 if len(classifier.classes) == 2 else len(classifier.classes)  # noqa: PLR2004 - one set tells two classes apart
        width = len(arrays["mean"])
        shapes = {"mean": (width,), "scale": (width,), "weights": (sets, width), "intercepts": (sets,)}
        if {name: array.shape for name, array in arrays.items()} != shapes:
            raise SchemaError(f"the weights in {str(folder)!r} do not have the shapes of a gate: {shapes!r}")
        return cls(classifier, embedder, provenance=card["provenance"])


def is_complexity_gate(folder: Path) -> bool:
    """Return whether the card in a folder has the format of a complexity gate."""
    try:
        card = json.loads(folder.joinpath(CARD).read_bytes())
    except (OSError, ValueError):
        return False  # not this format; the reader of probes reports the error
    return isinstance(card, dict) and card.get("format") == FORMAT


def read_card(folder: str | Path) -> dict[str, Any]:
    """Return the card of a gate that `ComplexityGate.save` wrote.

    Raises:
        DataError: The file does not exist.
        SchemaError: The file is another kind of card, or a field is missing or unknown.
    """
    path = Path(folder) / CARD
    try:
        data = json.loads(_bytes_of(path), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{str(path)!r} is not JSON: {error}") from None
    if not isinstance(data, dict) or (data.get("format"), data.get("version")) != (FORMAT, VERSION):
        raise SchemaError(f"{str(path)!r} is not the card of a question gate: its format must be {FORMAT!r}, {VERSION}")
    if set(data) != _FIELDS or not isinstance(data["provenance"], dict):
        raise SchemaError(
            f"{str(path)!r} has other fields than the card of a question gate: {sorted(set(data) ^ _FIELDS)}"
        )
    return data


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"the gate's file {str(path)!r} cannot be read: {error.strerror or error}") from None


def _arrays(stored: bytes, folder: str | Path) -> dict[str, Floats]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays: dict[str, npt.NDArray[Any]] = load(stored)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise SchemaError(f"the weights in {str(folder)!r} are not a safetensors file: {error}") from None
    if set(arrays) != set(_ARRAYS) or any(array.dtype != np.float64 or not array.ndim for array in arrays.values()):
        raise SchemaError(f"the weights in {str(folder)!r} must be {', '.join(_ARRAYS)}, all float64")
    return arrays


def fit_complexity(
    recording: Recording, embedder: Embedder, *, metric: str = "em", multi_hop: npt.ArrayLike = True
) -> ComplexityGate:
    """Fit the classifier on recorded tune questions (Adaptive-RAG, section 3.2).

    A question's label is the smallest number of retrievals that leads to a right answer: none (round 0), one (round 1),
    or all (the last round). If no answer is right, the label is all retrievals where `multi_hop` is true, and one
    retrieval where it is false. The paper fine-tunes a T5; this function fits a logistic regression on the embedder's
    vectors, with a penalty chosen by cross-validation.

    Args:
        recording: Full-width rounds from round 0 on, with the questions' texts.
        embedder: Embeds the questions.
        metric: An answer is right if this metric is at least one half.
        multi_hop: True if the data set's questions need several retrievals; one value for all, or one for each question.

    Raises:
        DataError: Round 0, a question's text or its metric is missing, or all labels are of one class.
        CensoredError: A rule ended the recording of some questions.
    """
    require_round_0(recording)
    complete = recording.select(recording.ends != "failed")
    require_whole(complete, "the label of a question needs all ways of answering it")
    texts = questions_of(complete)
    values, last = outcome(complete, metric), complete.seen.sum(axis=1) - 1
    ways = np.column_stack([values[:, 0], values[:, 1], np.take_along_axis(values, last[:, None], axis=1)[:, 0]])
    unknown: Mask = np.asarray(np.isnan(ways).any(axis=1), dtype=np.bool_)
    if unknown.any():
        raise DataError(
            f"{metric!r} is unknown without, with one or with all retrievals for {int(unknown.sum())} of {len(unknown)} "
            f"questions, the first is {complete.question_ids[int(np.argmax(unknown))]!r}: leave them out (Recording.select)"
        )
    direct, single, multi = (ways >= _RIGHT).T
    labels = adaptive_labels(direct, single, multi, multi_hop=multi_hop)
    fitted = fit_gate(embedder.embed, texts, labels, question_folds(complete.question_ids), wanted=0)
    counts = np.bincount(labels, minlength=3).tolist()
    provenance = {
        "data_hash": recording.data_hash,
        "metric": metric,
        "labels": dict(zip(("none", "single", "multi"), counts, strict=True)),
        **seen_from(complete).to_dict(),
    }
    return ComplexityGate(fitted.gate, embedder, provenance=provenance)
