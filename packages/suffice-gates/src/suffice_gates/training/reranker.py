"""Training of a cross-encoder on a model's preferences, by InfoNCE with sentence-transformers' trainer.

Source: "Rethinking LLM Parametric Knowledge as Confidence for Effective and Efficient RAG" (CBDR), section 3.2 and
appendix C.  An aligned reranker helps the model it was aligned with (table 2: NQ, top 3: +4.7 points) and hardly any
other model (+0.2).  But on HotpotQA, top 1, both models gain equally, and for the model that the reranker was aligned
with, general rerankers work better.

On several devices: ``accelerate launch -m suffice reranker train ...``; the trainer does the rest.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from suffice._version import __version__
from suffice.common.files import remove_leftovers, replacing_folder, write_file
from suffice.common.results import jsonable
from suffice.common.tables import Table
from suffice.errors import ConfigMismatchError, DataError, ModelError
from suffice.evaluation.statistics import Resampling
from suffice.policy.metrics import answer_key
from suffice.policy.rounds import Floats
from suffice.policy.seen import Seen
from suffice.recordings.journal import differences
from suffice_gates.models._transformers_batches import is_out_of_memory, release_memory
from suffice_gates.rerank import RERANKER_CARD, CrossEncoderScorer
from suffice_gates.training.preference_file import Preference
from suffice_gates.training.ranking import RankingReport, ScorePairs, compare_rankings, rank_metrics
from suffice_gates.training.reranker_trainer import (
    LOGGED,
    RerankerSettings,
    changed_settings,
    in_parts,
    load_base,
    make_trainer,
    more_parts,
    pair_scorer,
    planned_memory,
    quiet,
)

__all__ = ["FEWEST", "RERANKER_CARD", "RerankerRun", "RerankerSettings", "preferences_hash", "train_reranker"]

_LOG = logging.getLogger(__name__)

FEWEST = 2
"""Smallest number of training questions; a useful reranker takes thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankerRun:
    """Outcome of training a reranker.

    Attributes:
        path: The folder of the trained cross-encoder; its `reranker.json` contains these values.
        steps: Training steps.
        best_step: The step whose weights were kept; None without dev questions, because the last weights are then kept.
        history: MRR on dev by step.
        report: Metrics before and after; None without questions to report on.
        reported_on: `test`, or `dev (selected here)`.
        seconds: Duration of this run.
        accumulate: Number of parts into which each batch was cut at the end of training.
        notes: Remarks on memory.
    """

    path: Path
    steps: int
    best_step: int | None
    history: tuple[tuple[int, float], ...]
    report: RankingReport | None
    reported_on: str
    seconds: float
    accumulate: int = 1
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "steps": self.steps,
            "best_step": self.best_step,
            "dev_mrr": [{"step": step, "mrr": value} for step, value in self.history],
            "reported_on": self.reported_on,
            "report": None if self.report is None else self.report.to_dict(),
            "seconds": self.seconds,
            "accumulate": self.accumulate,
            "notes": list(self.notes),
        }

    def table(self) -> Table | None:
        """Return the metrics before and after as a table; None without questions to report on."""
        if self.report is None:
            return None
        return self.report.table(f"ranking what the model prefers, per cent, on {self.reported_on}")


def preferences_hash(preferences: Sequence[Preference]) -> str:
    """Return 16 hexadecimal digits that identify questions, positives and negatives, in their order."""
    digest = sha256()
    for item in preferences:
        digest.update(json.dumps([item.query, item.pos, item.neg], ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()[:16]


def train_reranker(
    model: str | Path,
    preferences: Sequence[Preference],
    out: str | Path,
    *,
    dev: Sequence[Preference] = (),
    test: Sequence[Preference] = (),
    settings: RerankerSettings | None = None,
    aligned_with: Mapping[str, Any] | None = None,
    revision: str | None = None,
    device: str | None = None,
    seed: int = 0,
) -> RerankerRun:
    """Train a cross-encoder to put the passages a model prefers before those it rejects.

    Each positive competes with the negatives of its question.  Checkpoints are kept in ``<out>.checkpoints`` until
    training ends; after an interruption, the same call resumes from the last one and ends with the same weights.

    Args:
        model: Id or folder of a cross-encoder with one label, or of an encoder that gets a new head.
        preferences: Training questions.
        out: The folder to write.
        dev: Questions for early stopping and for choosing the step with the best MRR; without dev questions all steps
            are trained.
        test: Questions to report on; without test questions the report is on `dev`, and states that.
        settings: Training settings; default: those of the paper.
        aligned_with: Identity of the model that the preferences come from, for the card.
        revision: Revision of the base model at the hub.
        device: `cpu` to train on the CPU although there is an accelerator; None for torch's default.
        seed: Seed of the row order, of dropout and of a new head.

    Raises:
        ConfigMismatchError: The folder or its checkpoints belong to another configuration.
        DataError: There are too few questions, a question is in two sets, or `out` exists and is not empty.
        MissingExtraError: The extra `torch` is not fully installed.
        ModelError: The base model cannot be loaded, or has several labels.
    """
    plan, out = settings or RerankerSettings(), Path(out)
    _check_sets(preferences, dev, test)
    base, data = CrossEncoderScorer(model, revision=revision).fingerprint(), _identities(preferences, dev, test)
    config = {"base": dict(base), "settings": asdict(plan), "seed": seed, "data": data}
    _check_folder_is_free(out, config, plan)
    began = time.perf_counter()

    def load() -> Any:
        with quiet():
            return load_base(str(model), plan, revision=revision, device=device, seed=seed)

    def trainer_of(encoder: Any, chosen: RerankerSettings) -> Any:
        return make_trainer(encoder, preferences, dev, chosen, folder, device=device, seed=seed)

    encoder = load()
    report_set = test or dev
    before = rank_metrics(report_set, pair_scorer(encoder, plan)) if report_set else None
    chosen, notes = in_parts(plan, planned_memory(encoder, plan, device))
    folder = _checkpoints(out, config)
    while lack := _lack_of_memory(trainer := trainer_of(encoder, chosen), out):
        cut = _in_more_parts(chosen, trainer, str(model), lack)
        notes += (
            f"memory ran out, so each batch is cut into {cut.accumulate} parts instead of {chosen.accumulate}: {lack}",
        )
        _LOG.warning("%s", notes[-1])
        chosen = cut
        del trainer, encoder
        release_memory()
        encoder = load()  # the weights of the last checkpoint replace its own
    run = RerankerRun(
        path=out,
        **_steps_of(trainer.state, selects=bool(dev)),
        report=None if before is None else _compared(before, report_set, pair_scorer(encoder, plan), seed),
        reported_on="test" if test else "dev (selected here)" if dev else "",
        seconds=time.perf_counter() - began,
        accumulate=chosen.accumulate or 1,
        notes=notes,
    )
    if trainer.is_world_process_zero():
        seen = Seen.of((), [item.query for item in (*preferences, *dev)])
        _write_reranker(encoder, run, {**config, **seen.to_dict()}, aligned_with)
    return run


def _identities(*sets: Sequence[Preference]) -> dict[str, dict[str, Any]]:
    names = ("train", "dev", "test")
    return {name: {"questions": len(one), "hash": preferences_hash(one)} for name, one in zip(names, sets, strict=True)}


def _compared(before: Floats, questions: Sequence[Preference], score: ScorePairs, seed: int) -> RankingReport:
    after, queries = rank_metrics(questions, score), [item.query for item in questions]
    return compare_rankings(before, after, resampling=Resampling(seed=seed), clusters=queries)


def _steps_of(state: Any, *, selects: bool) -> dict[str, Any]:
    """Return the steps of a run, the best one on dev, and MRR on dev by step."""
    best = state.best_model_checkpoint if selects else None
    return {
        "steps": int(state.global_step),
        "best_step": None if best is None else int(str(best).rsplit("-", 1)[1]),
        "history": tuple((int(e["step"]), float(e[LOGGED])) for e in state.log_history if LOGGED in e),
    }


def _in_more_parts(chosen: RerankerSettings, trainer: Any, model: str, lack: str) -> RerankerSettings:
    """Return settings that cut each batch into more parts, after memory ran out.

    Raises:
        ModelError: A batch cannot be cut further, or several devices train.
    """
    parts = more_parts(chosen)
    if parts is None or trainer.args.world_size > 1:
        raise ModelError(
            f"memory does not suffice to train {model!r} with {chosen.batch // (chosen.accumulate or 1)} row(s) at a "
            f"time ({lack}): --set checkpointing=true, or fewer negatives, shorter passage-tokens or a smaller batch"
        )
    return replace(chosen, accumulate=parts)


def _lack_of_memory(trainer: Any, out: Path) -> str:
    """Train, or resume from the last checkpoint; return the error text if memory ran out, else ""."""
    try:
        with quiet():
            trainer.train(resume_from_checkpoint=_last_checkpoint(out))
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return f"{type(error).__name__}: {error!s:.120}"
    return ""


def _check_sets(train: Sequence[Preference], dev: Sequence[Preference], test: Sequence[Preference]) -> None:
    if len(train) < FEWEST:
        raise DataError(
            f"{len(train)} question(s) to train on; at least {FEWEST} are needed, and a useful reranker takes thousands"
        )
    set_of: dict[str, str] = {}
    for name, questions in (("train", train), ("dev", dev), ("test", test)):
        for item in questions:
            other = set_of.setdefault(answer_key(item.query), name)
            if other != name:
                raise DataError(
                    f"{item.query!r:.80} is in both {other} and {name}: training, selection and "
                    "report need different questions"
                )


def _check_folder_is_free(out: Path, config: Mapping[str, Any], settings: RerankerSettings) -> None:
    """Check that `out` can be written.

    Raises:
        ConfigMismatchError: Checkpoints of another configuration exist.
        DataError: `out` exists and is not empty.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out} already exists: move it away, or give another folder")
    config_file = _folder(out) / "config.json"
    if config_file.is_file():
        old = json.loads(config_file.read_text(encoding="utf-8"))
        changed = changed_settings(old.pop("settings", {}), settings)
        changed += differences(old, json.loads(json.dumps({k: v for k, v in config.items() if k != "settings"})))
        if changed:
            raise ConfigMismatchError(
                f"training of {out} was begun with another configuration ({'; '.join(changed)}): resume with the old one, "
                f"or remove {config_file.parent}"
            )


def _folder(out: Path) -> Path:
    return out.with_name(f"{out.name}.checkpoints")


def _checkpoints(out: Path, config: Mapping[str, Any]) -> Path:
    """Create the folder of the checkpoints, with their configuration in a file."""
    folder = _folder(out)
    write_file(folder / "config.json", json.dumps(config, ensure_ascii=False, indent=1) + "\n")
    return folder


def _last_checkpoint(out: Path) -> str | None:
    from transformers.trainer_utils import get_last_checkpoint

    last = get_last_checkpoint(str(_folder(out)))
    return None if last is None else str(last)


def _write_reranker(
    encoder: Any, run: RerankerRun, config: Mapping[str, Any], aligned_with: Mapping[str, Any] | None
) -> None:
    """Write the trained model atomically and remove the checkpoints."""
    card = {
        "kind": "suffice.reranker",
        "version": 1,
        "suffice": __version__,
        "aligned_with": None if aligned_with is None else dict(aligned_with),
        **config,
        **run.to_dict(),
    }
    remove_leftovers(run.path)
    with replacing_folder(run.path) as folder, quiet():
        encoder.save_pretrained(str(folder), create_model_card=False)
        write_file(
            folder / RERANKER_CARD, json.dumps(jsonable(card), ensure_ascii=False, allow_nan=False, indent=1) + "\n"
        )
    shutil.rmtree(_folder(run.path), ignore_errors=True)
