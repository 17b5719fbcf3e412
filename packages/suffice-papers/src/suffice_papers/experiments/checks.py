"""Check an experiment before it costs anything."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from suffice.cli.models import api_key
from suffice.common.tables import counted
from suffice.errors import DataError, SufficeError
from suffice.evaluation.replay import Price, component_prices
from suffice.loops.models import EntailmentJudge
from suffice.policy.signals import GATE, LOGPROB_NEEDS, QUERY
from suffice.policy.signals.semantic import JUDGE
from suffice_papers.experiments.cbdr_cells import check_cell, is_finished
from suffice_papers.experiments.choices import DraftOptions, ModelChoice
from suffice_papers.experiments.plan import Cell, Experiment
from suffice_papers.experiments.stages import CellFolder
from suffice_papers.tasr.cells import TasrCell

_PATIENCE_S = 5.0
_PORTS = {"http": 80, "https": 443}


def find_problems(experiment: Experiment, out: Path) -> list[str]:
    """Return all problems that would end the run or leave its tables empty, without a request to a model.

    A model is checked only if it still has to answer questions.
    """
    problems: list[str] = []
    unreachable = cache(_unreachable)  # cells share endpoints
    for cell in experiment.cells():
        folder = CellFolder(out, cell, experiment)
        try:
            if experiment.protocol == "cbdr":  # it divides the questions itself, and checks its own journals
                check_cell(folder)
            else:
                folder.check()
                _check_apart(cell, experiment)
            cell_prices(cell, experiment)
            listed_cell(cell, experiment, Path(), Path())  # checks what it is compared with
        except SufficeError as error:
            problems.append(str(error))
        problems += _cell_problems(folder, unreachable)
    return list(dict.fromkeys(problems))


def _check_apart(cell: Cell, experiment: Experiment) -> None:
    """Raise if some of a cell's eval questions are also its tune questions, by id or text."""
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
        DataError: The published cell to compare with has another setting or another prompt.
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
    """Return the price of a cell's tokens by component; None if unknown, {} if a local model costs nothing.

    Raises:
        DataError: There is a list of prices, and a model at an endpoint, or a judge, is not in it.
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
        models[EntailmentJudge.name] = experiment.signals.judge_model
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


def _cell_problems(folder: CellFolder, unreachable: Callable[[str], str | None]) -> Iterator[str]:
    cell = folder.cell
    questions = {split: cell.data.questions(split) for split in cell.splits}
    for split, listed in questions.items():
        bare = [question.question_id for question in listed if not question.answers]
        if bare:
            yield (
                f"data {cell.data.name!r}: {len(bare)} of {counted(len(listed), f'{split} question')} have no gold answer ({bare[0]!r}): the tables need F1"
            )
        lacking = [question.question_id for question in listed if not question.passages]
        needed = folder.experiment.protocol != "semantic" and cell.retriever.options.corpus is None
        if lacking and needed:
            yield (
                f"the cell {cell.configuration}: {len(lacking)} of {counted(len(listed), f'{split} question')} have no passages ({lacking[0]!r}), "
                "and the retriever has no corpus"
            )
    if (
        not is_finished(folder)
        if folder.experiment.protocol == "cbdr"
        else any(folder.pending(split, listed) for split, listed in questions.items())
    ):
        yield from _model_problems(cell.model, unreachable)
        yield from _needs_problems(cell, folder.experiment)


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


def _model_problems(model: ModelChoice, unreachable: Callable[[str], str | None]) -> Sequence[str]:
    options = model.options
    if not model.is_remote:
        path = Path(options.model)
        if options.local and path.is_absolute() and not path.is_dir():
            return [f"model {model.name!r}: the folder {options.model!r} does not exist"]
        return []
    try:
        key = api_key(options.api_key_env)
    except DataError as error:
        return [f"model {model.name!r}: {error}"]
    url = model.url
    if url is None and key is None:
        return [f"model {model.name!r}: give base-url, or put a key for OpenAI's endpoint into {options.api_key_env}"]
    why = None if url is None else unreachable(url)
    return [] if why is None else [f"model {model.name!r} cannot be reached at {url!r}: {why}"]


def _unreachable(url: str) -> str | None:
    """Try to connect to an endpoint; return the reason if that fails, else None."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or parts.hostname is None:
        return "expected http://HOST/... or https://HOST/..."
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY")):
        return None  # a proxy connects, and only a request would show whether it can
    try:
        socket.create_connection((parts.hostname, parts.port or _PORTS[parts.scheme]), timeout=_PATIENCE_S).close()
    except (OSError, ValueError) as error:
        return str(error)
    return None
