"""Read a source, and settle the questions that it leaves open.

An answer comes from the log itself or from the user; otherwise, an error offers the choices that can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from suffice._version import __version__
from suffice.errors import DataError, UnsettledError
from suffice.evaluation.replay.outcomes import PARTIAL, WHOLE
from suffice.importers.alarms import ALARMS, find_alarms
from suffice.importers.checks.alarm import Alarm, Read
from suffice.importers.checks.own_alarms import unread_note
from suffice.importers.checks.reading import Reading
from suffice.importers.comparing import comparison_metadata, comparison_notes, comparison_of
from suffice.importers.confirming import Scored, as_options, confirmed_note, confirmed_rows
from suffice.importers.readers import read_run
from suffice.importers.tables.parted_run import PartedRun
from suffice.importers.two_judges import refuse_two_judges
from suffice.importers.whole_answers import whole_reason
from suffice.importers.words.choices import with_named_runs
from suffice.importers.words.names import last_name
from suffice.policy.comparisons import Comparison
from suffice.policy.embedding import Embedder
from suffice.policy.normalizers import DEFAULT_NORMALIZER
from suffice.policy.signals.position import AnswerPosition
from suffice.recordings.runs import ATTEMPTS, MODEL_NAMES
from suffice.recordings.schema import CURRENCY, DOLLAR

_SMALL = 8_000_000
"""The most bytes of a source whose choices are tried before they are offered."""


@dataclass(frozen=True, slots=True)
class Source:
    """A source to import, and the function `settle`, which answers the questions that the log leaves open.

    `earlier` returns the value of `UnsettledError.earlier`.  It is called once, for the first question to the user.
    """

    path: Path
    embedder: Embedder | None
    folder: Callable[[], Path]
    settle: Callable[[UnsettledError], Any] | None
    tries: bool = True
    is_trial: bool = False
    earlier: Callable[[], tuple[str, str]] | None = None

    def read(self, options: dict[str, Any]) -> tuple[PartedRun, dict[str, Any], Reading, list[Alarm], list[str]]:
        """Read the source, and add the answers to questions to `options`.

        The last item returned contains notes on these answers.
        """
        notes: list[str] = []
        earlier = self.earlier
        while True:
            try:
                run = read_run(self.path, options, self.embedder, self.folder, computes=not self.is_trial)
                return (run, *_reviewed(run, options), notes)
            except UnsettledError as found:
                error = with_named_runs(found, options.get("columns", {}))
                counted_rows = partial(self._scored, options)
                option = error.confirmed or confirmed_rows(error, options.get("where", ()), counted_rows)
                if option and not _overrule(options, as_options(error, error.choices[option][0])):
                    notes.append(confirmed_note(error, option))
                    _settled(options, error, error.choices[option][0])
                    continue
                error = self._tried(options, error)
                if earlier is not None:
                    error.earlier, earlier = earlier(), None
                if self.settle is None:
                    raise error from found
                notes += [error.question] if error.parameter == "answer_position" else []
                _settled(options, error, self.settle(error))

    def _tried(self, options: Mapping[str, Any], error: UnsettledError) -> UnsettledError:
        """Remove the choices with which the source cannot be read.

        If only `--expected` choices would remain, keep all choices.  There is nothing to stop in such a log, and the user learns this
        from the errors of the choices that would be removed.
        """
        if not self.tries:
            return error
        after = {option: self._after(options, error, own[0]) for option, own in error.choices.items()}
        works = {option: own for option, own in error.choices.items() if after[option] is not False}
        if not (len(works) == len(error.choices) or all(option.startswith("--expected ") for option in works)):
            confirmed = error.confirmed if error.confirmed in works else ""
            error = UnsettledError(error.question, error.parameter, works, confirmed)
        error.then = self._then(options, error, [after[option] for option in works])
        return error

    def _then(
        self, options: Mapping[str, Any], error: UnsettledError, after: Sequence[object]
    ) -> UnsettledError | None:
        """Return the next question if it is the same after every choice; else None.

        Choices of the next question with which the source cannot be read are left out.
        """
        asked = [item for item in after if isinstance(item, UnsettledError)]
        if not asked or len(asked) < len(after) or len({(item.question, *item.choices) for item in asked}) > 1:
            return None
        trial = dict(options)
        _settled(trial, error, next(iter(error.choices.values()))[0])
        then = asked[0]
        works = {option: own for option, own in then.choices.items() if self._after(trial, then, own[0]) is not False}
        return UnsettledError(then.question, then.parameter, works) if works else None

    def _after(self, options: Mapping[str, Any], error: UnsettledError, choice: Any) -> UnsettledError | bool:
        """Return the question that follows a choice; without one, return whether the source can be read with the choice."""
        trial = dict(options)
        _settled(trial, error, choice)
        try:
            self._read_alone(trial)
        except UnsettledError as then:
            return then
        except DataError:
            return False
        return True

    def _scored(self, options: Mapping[str, Any], where: Mapping[str, str]) -> Scored | None:
        """Count right answers if only the rows of a filter are read, ignoring all alarms; None if these rows cannot be read."""
        trial = {**options, "where": {**options.get("where", {}), **where}, "expected": [*ALARMS]}
        try:
            return Scored.of(self._read_alone(trial))
        except DataError:
            return None

    def _read_alone(self, options: dict[str, Any]) -> Reading:
        """Read the source without asking any question."""
        return replace(self, settle=None, tries=False, is_trial=True, earlier=None).read(options)[2]


def is_small(path: Path) -> bool:
    """Return whether a source is small enough to be read once for each choice of a question."""
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file()) <= _SMALL


def _overrule(options: Mapping[str, Any], more: Mapping[str, Any]) -> bool:
    """Return whether new options would replace values that were given."""
    return any(not {*own}.isdisjoint(options.get(name, ())) for name, own in more.items() if isinstance(own, dict))


def _reviewed(run: PartedRun, options: Mapping[str, Any]) -> tuple[dict[str, Any], Reading, list[Alarm]]:
    """Read a run again to check it; raise if it was probably misread.

    Returns:
        The metadata of the recording (without its notes), the figures of the run, and its alarms.
    """
    refuse_two_judges(run, options)
    notes, comparison = [*run.notes], comparison_of(run, options)
    metadata = _metadata(run, options, comparison, notes)
    whole = whole_reason(run, options) if comparison.normalizer == DEFAULT_NORMALIZER else ""
    if whole:
        metadata[WHOLE] = whole
        notes.append(f"{whole} (suffice decide --metric f1 judges by it)")
    reading = run.review(comparison, whole)
    if partial := reading.partial_note:
        metadata[PARTIAL] = partial
        notes.append(partial)
    read = read_of(run, reading, options)
    alarms = find_alarms(read)
    alarms = [alarm for alarm in alarms if alarm.name not in run.expected]
    expected = options.get("expected", ())
    for alarm in alarms:
        if alarm.level == "stop" and alarm.name not in expected:
            raise alarm.error(read.columns)
    cautions = [alarm for alarm in alarms if alarm.name not in expected]
    answered = {alarm.name: alarm.sentence for alarm in alarms if alarm.name in expected}
    if alarms:
        metadata["reading"] = {"cautions": {alarm.name: alarm.sentence for alarm in cautions}, "expected": answered}
    run.notes = [*(alarm.note for alarm in cautions), *notes, *unread_note(read, notes)]
    return metadata, reading, alarms


def read_of(run: PartedRun, reading: Reading, options: Mapping[str, Any]) -> Read:
    """Return the facts about a run that the checks for alarms use."""
    columns = {item.ours: item.theirs for item in run.readings}
    sources = {name for item in run.readings for name in item.sources}
    names = {item.ours: item.named for item in run.readings}
    return Read(
        facts=reading.facts,
        source=run.source,
        columns=columns,
        options=options,
        doubt=run.doubt,
        sources=sources,
        names=names,
    )


def _settled(options: dict[str, Any], error: UnsettledError, choice: Any) -> None:
    """Add a choice to the options; it may set one parameter or several."""
    for name, value in as_options(error, choice).items():
        before = options.get(name)
        if value is None:
            options.pop(name, None)
        elif isinstance(before, dict):
            options[name] = {**before, **value}
        else:
            options[name] = [*before, *value] if isinstance(before, list) else value


def _metadata(run: PartedRun, options: Mapping[str, Any], comparison: Comparison, notes: list[str]) -> dict[str, Any]:
    """Return the metadata of the recording, and append notes on the comparison of answers to `notes`."""
    notes += comparison_notes(run, options, comparison)
    result = {
        "source": run.source,
        "depends": {**run.depends, **_attempts(run, options)},
        "suffice": __version__,
        **comparison_metadata(options, comparison),
    }
    if run.currency != DOLLAR:
        result[CURRENCY] = run.currency
    position = AnswerPosition.parse(options["answer_position"]).to_dict() if "answer_position" in options else {}
    if run.form:
        position["form"] = run.form
    if position:
        result["config"] = {"answer_position": position}
    if run.readings:
        result["read_from"] = {item.ours: item.theirs for item in run.readings}
    return result


def _attempts(run: PartedRun, options: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the models in the order that the user gives (``round=model:cheap,dear``), as an entry for `depends`.

    Without such an order, return an empty object.
    """
    name, _, words = (options.get("columns") or {}).get("round", "").rpartition(":")
    models = [word.strip() for word in words.split(",")]
    of_models = last_name(name) in MODEL_NAMES and options.get("first_round") != 0 and len(models) == run.longest
    return {ATTEMPTS: models} if of_models else {}
