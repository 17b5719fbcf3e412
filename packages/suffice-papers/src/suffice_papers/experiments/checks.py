"""Find all problems of an experiment before it costs anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from suffice.common.display.svg import check_charts_extra
from suffice.common.tables import counted
from suffice.errors import DataError, MissingExtraError, SufficeError
from suffice.evaluation.replay import Price, component_prices
from suffice.policy.signals import GATE, LOGPROB_NEEDS, QUERY, TRIAL
from suffice.policy.signals.semantic import JUDGE
from suffice_papers.experiments.cbdr_cells import check_cell, is_finished
from suffice_papers.experiments.choices import DraftOptions
from suffice_papers.experiments.hub import at_hub
from suffice_papers.experiments.parts import part_problems, unreachable
from suffice_papers.experiments.plan import Cell, Experiment
from suffice_papers.experiments.space import space_notes, space_problems
from suffice_papers.experiments.stages import CellFolder
from suffice_papers.tasr.cells import TasrCell


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacles:
    """Everything that would end a run, or prevent the recording of some of its cells.

    Attributes:
        shared: Problems that end the whole run or leave its tables wrong.
        by_cell: Problems that end single cells: a missing model, endpoint or package.
        estimates: Estimated needs of disk and memory that this machine cannot meet; a run can begin nevertheless.
        notes: Estimated needs of disk.
    """

    shared: tuple[str, ...]
    by_cell: Mapping[str, tuple[str, ...]]
    estimates: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def listed(self) -> list[str]:
        """All problems, without repeats."""
        of_cells = (problem for problems in self.by_cell.values() for problem in problems)
        return list(dict.fromkeys([*self.shared, *of_cells, *self.estimates]))


def find_problems(experiment: Experiment, out: Path) -> list[str]:
    """Return all problems that would end the run or leave its tables empty, without a request to a model."""
    return find_obstacles(experiment, out).listed


def find_obstacles(experiment: Experiment, out: Path) -> Obstacles:
    """Find all problems of an experiment, without a request to a model.

    A model is checked only if it still has to answer questions.
    """
    for looked_up in (at_hub, unreachable):  # what was missing an hour ago may be there now
        looked_up.cache_clear()
    shared, by_cell, open_cells = list(experiment.absent), dict[str, tuple[str, ...]](), []
    shared += [f"data {item.name!r}: {item.problem}" for item in experiment.data if item.exists and item.problem]
    for cell in experiment.cells():
        folder = CellFolder(out, cell, experiment)
        is_open = True
        if has_questions(cell, experiment):
            shared += _recorded_problems(folder)
            shared += _question_problems(folder)
            is_open = _is_open(folder)
        if not is_open:
            continue
        open_cells.append(cell)
        shared += _needs_problems(cell, experiment)
        if problems := tuple(part_problems(cell, experiment)):
            by_cell[cell.name] = problems
    try:
        check_charts_extra()  # the tables come with figures
    except MissingExtraError as error:
        shared.append(str(error))
    estimates = tuple(space_problems(open_cells, experiment, out))
    notes = tuple(space_notes(open_cells, experiment))
    return Obstacles(shared=tuple(dict.fromkeys(shared)), by_cell=by_cell, estimates=estimates, notes=notes)


def has_questions(cell: Cell, experiment: Experiment) -> bool:
    """Return whether the questions of a cell, and the questions of the cell that calibrates it, can be loaded."""
    tune = cell.data if experiment.protocol == "cbdr" else experiment.tune_cell(cell).data
    return cell.data.problem is None and tune.problem is None


def _recorded_problems(folder: CellFolder) -> Iterator[str]:
    """Yield the first reason why a cell cannot be continued or compared."""
    cell, experiment = folder.cell, folder.experiment
    try:
        if experiment.protocol == "cbdr":  # it divides the questions itself, and checks its own journals
            check_cell(folder)
        else:
            folder.check()
            _check_apart(cell, experiment)
        cell_prices(cell, experiment)
        listed_cell(cell, experiment, Path(), Path())  # checks what it is compared with
    except SufficeError as error:
        yield str(error)


def _check_apart(cell: Cell, experiment: Experiment) -> None:
    """Raise if the cell has an eval question with the id or the text of one of its tune questions."""
    tune = experiment.tune_cell(cell).data.questions("tune")
    ids, texts = {q.question_id for q in tune}, {q.question.casefold() for q in tune}
    common = [q for q in cell.data.questions("eval") if q.question_id in ids or q.question.casefold() in texts]
    if common:
        both = counted(len(common), "eval question is also a tune question", "eval questions are also tune questions")
        raise DataError(
            f"the cell {cell.name}: {both} ({common[0].question_id!r}): what is fitted on a question cannot be judged on it"
        )


def listed_cell(cell: Cell, experiment: Experiment, tune: Path, evaluation: Path) -> TasrCell:
    """Return a cell of TASR's tables: one run of a configuration, and its recordings.

    Raises:
        DataError: The published cell that this cell reproduces has another setting or another prompt.
    """
    return TasrCell(
        name=cell.configuration,
        model=cell.model.name,
        retriever=cell.retriever.name,
        corpus=cell.data.corpus,
        setting=cell.data.setting,
        tune=tune,
        eval=evaluation,
        prompt=cell.prompt,
        published=experiment.published.get(cell.configuration.rpartition("/")[0], ""),
    )


def cell_prices(cell: Cell, experiment: Experiment) -> dict[str, Price] | None:
    """Return the price of a cell's tokens by component; None if unknown, {} for a local model, whose tokens are free.

    Raises:
        DataError: A list of prices is given, but lacks the cell's judge, or lacks the cell's model although the model
            is at an endpoint.
    """
    if experiment.prices is None:
        return None
    options = cell.model.options
    own, models = {"generator": options.model}, {}
    if cell.rival is not None and cell.rival.looping.method is not None:
        own[QUERY] = options.model
    if cell.rival is not None and cell.rival.gating.reads_with is not None:
        own[GATE] = cell.rival.gating.reads_with
    if experiment.signals.judge_model is not None:
        models[experiment.signals.judge_component] = experiment.signals.judge_model
    if experiment.protocol == "thinking":
        own[TRIAL] = options.model
    if isinstance(options, DraftOptions):
        own = {"writer": options.model, "critic": options.critic_model or options.model}
        if options.judge.judge_model is not None:
            models[JUDGE] = options.judge.judge_model
    judges = component_prices(experiment.prices, models)
    try:
        return {**component_prices(experiment.prices, own), **judges}
    except DataError:
        if cell.model.is_remote:
            raise
        return {**dict.fromkeys(own, Price(uncached=0, cached=0, output=0)), **judges} if judges else {}


def _question_problems(folder: CellFolder) -> Iterator[str]:
    """Yield a problem if questions of a cell lack gold answers, or the passages that its loop needs."""
    cell = folder.cell
    for split in cell.splits:
        listed = cell.data.questions(split)
        bare = [question.question_id for question in listed if not question.answers]
        if bare:
            yield (
                f"data {cell.data.name!r}: {len(bare)} of {counted(len(listed), f'{split} question')} have no gold answer ({bare[0]!r}): the tables need them"
            )
        lacking = [question.question_id for question in listed if not question.passages]
        needed = folder.experiment.protocol not in ("semantic", "thinking") and cell.retriever.options.corpus is None
        if lacking and needed:
            yield (
                f"the cell {cell.configuration}: {len(lacking)} of {counted(len(listed), f'{split} question')} have no passages ({lacking[0]!r}), "
                "and the retriever has no corpus"
            )


def _is_open(folder: CellFolder) -> bool:
    """Return whether a cell still has questions to ask."""
    if folder.experiment.protocol == "cbdr":
        return not is_finished(folder)
    return folder.is_pending


def _needs_problems(cell: Cell, experiment: Experiment) -> Iterator[str]:
    """Yield a problem if a cell's loop needs a capability that its model lacks."""
    model, options, rival = cell.model, cell.model.options, cell.rival
    is_local = not model.scripted and bool(options.local)
    if rival is None:
        if names := experiment.signals.own_signal if not is_local else None:
            yield f"model {model.name!r}: own-signal {names[0]!r} reads passes of a model that runs here: write local = true"
        return
    where = f"rival {rival.name!r}"
    needs = rival.looping.needs
    if rival.looping.method is not None and not (is_local or model.is_remote):
        yield (
            f"{where} writes a chain, and model {model.name!r} only answers from passages: name others as models = [...]"
        )
    elif rival.gating.reflects and not is_local:
        yield f"{where} reads tokens of a model that runs here: write local = true for model {model.name!r}"
    elif "attentions" in needs and not is_local:
        yield f"{where} reads attentions, which an endpoint does not give: write local = true for model {model.name!r}"
    elif needs & LOGPROB_NEEDS and not options.logprobs:
        yield f"{where} needs log-probabilities: write logprobs = true for model {model.name!r}"
