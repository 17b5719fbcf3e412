"""Runs of agents as trajectories: each step is a round, and its answer is the state of the files so far.

A graded run has the metric `resolved`.  A step whose state is the final one gets the run's grade.  The states of other steps
were not graded and count as not resolved.  So stopping a failed run early loses nothing, and stopping a successful run early
loses at most its whole grade.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path

from suffice.common.tables import counted, cut_list
from suffice.errors import DataError
from suffice.importers.answers.imported import ImportedRun
from suffice.importers.answers.outcomes import LISTS, RESOLVED, read_outcomes
from suffice.importers.files.recognise import OF_AGENTS, Head, data_files, heads_of
from suffice.importers.importers import recognised_by
from suffice.importers.rounds.trajectories import ImportedTrajectory, unknown_metrics
from suffice.importers.transcripts.steps import Step
from suffice.importers.transcripts.visible import VisibleFiles
from suffice.policy.rounds import End, Round
from suffice.policy.signals import StepSignals, compute_signals

_ON_DEMAND = ("since_change", "checks_green_since_change", "context_tokens")


@dataclass(slots=True, kw_only=True)
class AgentRun:
    """A run of an agent; a reader adds its steps in order.

    Attributes:
        name: The id of the task, otherwise of the session.
        task: The task's text; "" if unknown.
        end: The reason for the end; `exhausted` means that the agent ended the run.
        resolved: The run's grade in [0, 1]; None if the transcript has none.
        model: The model's name; None if unknown.
        total: The price of the whole run, USD; NaN if it is unknown, or if the transcript has the prices of steps.
        cut: Whether the transcript is truncated.
        files: The state of the files before the first step.
        steps: The steps so far.
        skipped: Number of events of each kind that is unknown to the reader.
    """

    name: str
    task: str = ""
    end: End = "exhausted"
    resolved: float | None = None
    model: str | None = None
    total: float = math.nan
    cut: bool = False
    files: VisibleFiles = field(default_factory=VisibleFiles)
    steps: list[Step] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.end = "failed" if self.cut else self.end

    def close(self) -> None:
        """Set the end reason to `failed` if the run waits for a tool, or its transcript is truncated."""
        self.cut |= bool(self.steps) and any(not use.answered for use in self.steps[-1].uses)
        self.end = "failed" if self.cut else self.end

    def rounds(self) -> tuple[Round, ...]:
        """Return the steps as rounds, each with its effect on the files and its signals."""
        rounds = StepRounds(deepcopy(self.files))
        for step in self.steps:
            rounds.add(step)
        return tuple(rounds.rounds)


class StepRounds:
    """Converts an agent's steps to rounds one by one, live or in an import.

    Args:
        files: The state of the files before the first step.

    Attributes:
        rounds: The rounds so far.
    """

    def __init__(self, files: VisibleFiles) -> None:
        self.rounds: list[Round] = []
        self._files, self._measured = files, StepSignals()

    def add(self, step: Step) -> Round:
        """Return the round of the next step, after its tools have run."""
        for use in step.uses:
            use.note(self._files)
        signals = self._measured.add(
            [use.text for use in step.uses], failed=[use.failed for use in step.uses], dollars=step.dollars
        )
        answer = self._files.digest or step.answer
        bare = Round(index=len(self.rounds) + 1, answer=answer, costs={"generator": step.cost}, signals=signals)
        own = compute_signals([*self.rounds, bare], _ON_DEMAND, state={})
        self.rounds.append(replace(bare, signals={**signals, **own}))
        return self.rounds[-1]


def transcript_importer(
    source: str, runs_of: Callable[[Sequence[Path]], Iterable[AgentRun]], recognises: Callable[[Head], bool]
) -> Callable[..., ImportedRun]:
    """Return the importer of a transcript format.

    Args:
        source: The name of the format.
        runs_of: Reads the runs of some files.
        recognises: Returns True if a file has the format.
    """

    @recognised_by(recognises)
    def read(path: str | Path, *, outcomes: str | Path | None = None) -> ImportedRun:
        """Read transcripts of this format.

        Args:
            path: A file, or a folder.
            outcomes: A file with the outcomes of runs, see `read_outcomes`; None = the SWE-bench reports in the folder, or else the
            transcripts' own outcomes.

        Raises:
            DataError: The transcripts have no steps, or none of their runs has an outcome in the file.
        """
        heads, unread = heads_of(file for file in data_files(path) if file.stat().st_size or file == Path(path))
        if not heads:
            raise next(iter(unread.values()))
        own = [head.path for head in heads if recognises(head)] or [head.path for head in heads]
        others = [head for head in heads if head.path not in own and not head.cut]
        cut = [
            head.path for head in heads if head.path not in own and head.cut
        ]  # the signs of the format may be in the rest
        beginnings = {file: [item for item in runs_of([file]) if item.steps] for file in cut}
        missing = [*unread, *(file for file, begun in beginnings.items() if not begun)]
        grades: dict[str, float] = {}
        for report in [Path(outcomes)] if outcomes is not None else [head.path for head in others if _is_report(head)]:
            grades |= read_outcomes(report)
        runs = [*runs_of(own), *(item for begun in beginnings.values() for item in begun)]
        run = run_of_agents(source, runs, grades)
        if missing:
            names = cut_list(file.name for file in missing)
            run.notes.append(
                f"{counted(len(missing), 'file')} cut before the first step, or damaged, left out: {names}"
            )
        if others:
            names = cut_list(head.path.name for head in others)
            told = ", and from those with grades whether runs succeeded" if grades and outcomes is None else ""
            run.notes.append(
                f"files that are not of this format lie in the folder, and no steps are read from them{told}: {names}"
            )
        return run

    setattr(recognises, OF_AGENTS, True)
    read.__name__ = read.__qualname__ = f"read_{source}"
    return read


def run_of_agents(source: str, runs: Sequence[AgentRun], outcomes: Mapping[str, float]) -> ImportedRun:
    """Convert runs of agents to trajectories.

    Args:
        source: The format.
        runs: The runs; those without steps are left out.
        outcomes: Grades by id, which replace those of the transcripts.

    Raises:
        DataError: No run has a step, or no run has one of the given outcomes.
    """
    own = [run for run in runs if run.steps]
    if not own:
        raise DataError(f"the {source} transcripts have no steps: {len(runs)} runs without a call of a model")
    several = Counter(run.name for run in own)
    seen: Counter[str] = Counter()
    names = []
    for run in own:
        seen[run.name] += 1
        names.append(run.name if several[run.name] == 1 else f"{run.name}#{seen[run.name]}")
    if outcomes and not outcomes.keys() & {*names, *several}:
        raise DataError(
            f"no outcome is that of a run: the runs are {own[0].name!r}, ..., the outcomes {next(iter(outcomes))!r}, ...; "
            "give the file with the ids of these runs (--outcomes)"
        )
    trajectories = []
    shared: set[str] = set()
    for run, name in zip(own, names, strict=True):
        grade = outcomes.get(name, outcomes.get(run.name, math.nan if run.resolved is None else run.resolved))
        if name != run.name and name not in outcomes and run.name in outcomes:
            shared.add(run.name)
        trajectories.append(_trajectory(run, name, grade))
    models = {run.model for run in own}
    return ImportedRun(
        source=source,
        trajectories=trajectories,
        notes=[*_notes(own, trajectories, len(runs) - len(own)), *_note_on_shared(shared)],
        expected=("missing-values",),  # a run has no result before its first change
        depends={"model": models.pop()} if len(models) == 1 and None not in models else {},
    )


def _note_on_shared(tasks: Collection[str]) -> Iterator[str]:
    """Yield a note on tasks with several runs that share one outcome."""
    if tasks:
        first = min(tasks)
        yield (
            f"one outcome grades all runs of {counted(len(tasks), 'task')} with several; to grade them apart, give the outcomes of {first + '#1'!r}, "
            f"{first + '#2'!r}, ..., in the order of the transcripts"
        )


def _trajectory(run: AgentRun, name: str, grade: float) -> ImportedTrajectory:
    rounds = run.rounds()
    return ImportedTrajectory(
        question_id=name,
        cluster=run.name,
        question=run.task,
        rounds=rounds,
        end=run.end,
        metrics=tuple({**unknown_metrics(), RESOLVED: value} for value in step_grades(rounds, grade)),
        labels={"model": run.model} if run.model else {},
    )


def step_grades(rounds: Sequence[Round], grade: float) -> list[float]:
    """Return the grade of stopping at each round: the run's grade if the state is the final one, else 0.

    >>> step_grades([Round(index=i, answer=state) for i, state in enumerate(["a1", "b2", "b2"], start=1)], 1.0)
    [0.0, 1.0, 1.0]
    """
    final = rounds[-1].answer
    earlier = [math.nan if final is None else grade * (step.answer == final) for step in rounds[:-1]]
    return [*earlier, grade]


def _notes(runs: Sequence[AgentRun], trajectories: Sequence[ImportedTrajectory], empty: int) -> Iterator[str]:
    yield (
        "an answer stands for the files that the run has changed so far, as far as its commands and tools show it; a program "
        "may change files without saying so"
    )
    silent = sum(item.rounds[-1].answer is None for item in trajectories)
    if silent:
        yield f"{silent:,} of {len(runs):,} runs show no change of a file: nothing is known of their results before the end"
    n_graded = sum(not math.isnan(item.metrics[-1][RESOLVED]) for item in trajectories)
    if n_graded:
        yield (
            f"{n_graded:,} of {len(runs):,} runs were graded; where a step's files are not the final ones nobody graded them, and "
            f"{RESOLVED} counts as 0 there: a run that failed loses nothing, one that succeeded at most itself"
        )
    else:
        yield "no run was graded (--outcomes FILE says which succeeded): a step counts as right if its files are the final ones"
    known = [run.total for run in runs if not math.isnan(run.total)]
    if known:
        yield f"the log says what {len(known):,} whole runs cost ({sum(known):,.2f} USD), and not what each step cost: it is left out"
    cut = sum(run.cut for run in runs)
    if cut:
        yield f"{cut:,} of {len(runs):,} transcripts lack their end: what is there is read, and they count as failed before their own end"
    if empty:
        yield f"{empty:,} runs have no step, and are left out"
    unknown = sum((run.skipped for run in runs), Counter[str]())
    if unknown:
        yield "events of unknown kinds, left out: " + cut_list(f"{kind} ({n:,})" for kind, n in unknown.most_common())


def _is_report(head: Head) -> bool:
    """Return whether a file is a SWE-bench report, which has outcomes."""
    values = [value for value in head.record.values() if isinstance(value, dict)]
    return head.form == "json" and (
        any(isinstance(head.record.get(name), list) for name in LISTS)
        or any(isinstance(value.get(RESOLVED), bool) for value in values)
    )
