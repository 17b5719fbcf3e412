"""`suffice decide`: advise in one sentence whether to change a loop."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import typer

from suffice.cli import options
from suffice.cli.console import status
from suffice.cli.options import ASK, Where, chosen_loop, tune_of_loop, where_words
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting, is_from_file
from suffice.common.files import quoted
from suffice.common.tables import Table, counted
from suffice.errors import DataError
from suffice.evaluation.replay.outcomes import abandoned, has_outcome, is_agreement, outcome
from suffice.policy.normalizers import MATCH, title
from suffice.recordings import Recording, read_recording
from suffice.verdicts.decisions import SAVABLE, Advice, Trial, decide
from suffice.verdicts.decisions.advice import SELECTED_HERE
from suffice.verdicts.decisions.figures import bar_heading

if TYPE_CHECKING:
    from suffice.verdicts.decisions import Labels

_FIXED = re.compile(r"\bfixed_k\((\d+)\)")
_LOWERED = re.compile(r"\b([Ll])ower the cap(?: from (\d+))? to (\d+)")
_PLAIN_RULES = {
    "answer_stable": "answer repeats",
    "stable_twice": "answer repeats twice",
    "similar": "answer hardly changes",
}
"""Rules that a first decision nearly always tries, in words."""

_QUIET = re.compile(
    r"rules whose signals|not tried: |losses are means over|\w+ is undefined in [0-4](?:\.\d+)? % of rounds"
)
"""Notes that a first screen leaves to ``--details``."""
_VOTES = {
    r"lead\((\d+)\)": r"stop when one answer leads by \1",
    r"settled\(\d+\)": "stop when the rest cannot change it",
    r"esc\((\d+)\)": r"stop when \1 in a row are the same",
    "adaptive_consistency": "stop when one answer is 95 % likely to win",
}
"""Rules that stop a vote among samples, in words."""

_OUT, _OUT_OF_LABELS = Path("decision.json"), Path("decision_by_labels.json")


@dataclass(frozen=True, kw_only=True)
class _Declared:
    """Options that are declared before the first verdict and hold for all later questions."""

    panel: ClassVar[str] = "What is declared once"

    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            help="The metric to preserve: a column in [0, 1], more is better; default: f1, em for multiple choice, the log's only score, or agreement.",
        ),
    ] = None
    max_loss: Annotated[
        float | None,
        typer.Option("--max-loss", help="The largest mean loss that you would accept; default: 0.02, two points."),
    ] = None
    risk: Annotated[
        float | None, typer.Option("--risk", help="The risk that advice loses more, in (0, 1); default: 0.05.")
    ] = None
    cost: Annotated[
        str | None,
        typer.Option("--cost", help=f"The cost to save: {', '.join(SAVABLE)}; default: calls, retrievals, or money."),
    ] = None
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline", help="'recorded' (default), the log's own stops, a rule as fixed_k(5), or 'MODEL alone'."
        ),
    ] = None
    selector: Annotated[
        str | None,
        typer.Option(
            "--selector", help="Chooses the round whose answer to return; default: last, or the majority of samples."
        ),
    ] = None
    orders: Annotated[
        int | None,
        Setting(
            "statistics",
            "orders",
            min=1,
            help="For independent samples: average losses over this many orders; default: 100.",
        ),
    ] = None

    label_noise: Annotated[
        float | None,
        Setting(
            "statistics",
            "label-noise",
            help="With --ask: the largest share of labels that are wrong at random; default: 0.",
        ),
    ] = None

    min_saving: Annotated[
        float | None,
        Setting(
            "statistics",
            "min-saving",
            help="The least share of the cost that is worth a change; default: any, for steps of agents 0.05.",
        ),
    ] = None

    success_price: Annotated[
        float | None,
        Setting(
            "statistics",
            "success-price",
            help="With --metric 'abandon(NAME)': the value of a success, in the currency of the costs; says what giving up saves and loses in money.",
        ),
    ] = None

    def given(self, context: typer.Context, *, of_labels: bool, is_later: bool) -> dict[str, Any]:
        """Return the options as arguments of `decide`.

        A value that comes from suffice.toml is left out if it does not apply to a later decision or to the given metric.
        """
        given = {
            "metric": self.metric,
            "max_loss": self.max_loss,
            "alpha": self.risk,
            "cost": None if self.cost is None else options.allowed(self.cost, SAVABLE, "--cost"),
            "baseline": self.baseline,
            "selector": self.selector,
            "orders": self.orders,
            "label_noise": self.label_noise,
            "min_saving": self.min_saving,
            "success_price": self.success_price,
        }
        if is_later and is_from_file(context, "max_loss"):
            given["max_loss"] = None
        if (is_later or not of_labels) and is_from_file(context, "label_noise"):
            given["label_noise"] = None
        if is_from_file(context, "success_price") and not abandoned(self.metric or ""):
            given["success_price"] = None
        return given


def decide_command(
    context: typer.Context,
    path: options.Recorded,
    declared: _Declared,
    tune: options.TuneQuestions,
    pricing: options.Pricing,
    output: Output,
    where: Where = None,
    signal: Annotated[
        list[str] | None,
        typer.Option("--signal", help="A confidence in an answer or a run, beside columns called so; repeatable."),
    ] = None,
    leave_out_failed: Annotated[
        bool,
        Setting(
            "statistics", "leave-out-failed", help="Leave out questions that failed; otherwise they count as lost."
        ),
    ] = False,
    previous: Annotated[
        Path | None, typer.Option("--continue", help="An earlier decision: add the new questions to its evidence.")
    ] = None,
    ask: Annotated[
        Path | None,
        typer.Option(
            "--ask",
            help="No golds? Writes the questions in which a label can matter (.jsonl, .csv), and reads your labels from it.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The decision; default: decision.json. One on some of these questions is continued."
        ),
    ] = None,
) -> None:
    """You may come back with more questions as often as you like: a decision on some of them is continued.

    Example: suffice decide run.parquet --metric em
    """
    target = out or previous or (_OUT if ask is None else _OUT_OF_LABELS)
    labels = None if ask is None else _labels_of(ask, path, target)
    recording = chosen_loop(read_recording(path), where) if where else read_recording(path)
    earlier = _earlier(previous, target, recording, path) if previous or target.exists() else None
    given = declared.given(context, of_labels=ask is not None, is_later=earlier is not None)
    of_tune = tune.given()
    if "tune" in of_tune:
        of_tune["tune"] = tune_of_loop(of_tune["tune"], where)
    with status("comparing", quiet=output.as_json):
        advice = decide(
            recording,
            **given,
            **of_tune,
            prices=pricing.of(recording),
            leave_out_failed=leave_out_failed,
            previous=earlier,
            signals=signal or (),
            labels=labels,
        )
    advice = replace(advice, where=tuple(where or (earlier.where if earlier else ())))
    advice.save(target)
    sheet = {} if labels is None else _written_sheet(ask, recording, advice, labels)
    again = ""
    if earlier is not None and advice.n == earlier.n and ask is None:
        again = (
            f"No question of {path} is new to {previous or target}, which is repeated here; if the log was wrong then, or has other scores "
            f"now, this judges it anew: suffice decide {quoted(path)}{where_words(advice.where)} -o OTHER.json\n"
        )
    then = _next_step(
        advice, recording, path, target, ask, unjudged=not given.get("metric") and is_agreement(advice.trial.metric)
    )
    names = recording.table.column_names
    screen = Screen(
        sentences=[f"{again}{in_plain_words(advice.lead, advice.trial.metric, names)}"],
        tables=_tables(advice, names, details=output.details),
        shown=1 + (advice.worth is not None and not advice.trial.unjudged) + (advice.spending is not None),
        aside={bar_heading(advice.trial.max_loss), advice.trial.cost, advice.trial.metric},
        quiet=_QUIET,
        files={**({} if quoted(target) in then else {"decision": target}), **sheet},
        then=then,
    )
    output.show({**advice.to_dict(), "file": str(target)} if output.as_json else {}, screen)


def _tables(advice: Advice, names: Collection[str], *, details: bool) -> list[Table]:
    """Return the tables of a decision; without `details`, their cells use the same words as the decision's sentence."""
    if details:
        return [_with_limits(table, advice.trial) for table in advice.tables()]
    return [_in_words(table, advice.trial, names) for table in advice.tables()]


def _with_limits(table: Table, trial: Trial) -> Table:
    """Write the fixed budgets in a table of the decision as numbers of rounds.

    All other policies keep their names, which options accept.
    """
    noun = "sample" if trial.loop.samples else "round"
    rows = tuple(tuple(_limit(cell, noun) if isinstance(cell, str) else cell for cell in row) for row in table.rows)
    return replace(table, rows=rows)


def _in_words(table: Table, trial: Trial, names: Collection[str]) -> Table:
    """Write a table of the decision in the words of the decision's sentence; its title says how the questions were divided."""
    rows, score = [*_with_limits(table, trial).rows], title(trial.metric, names)
    names = {"policy": "what you could do", "saved": f"{trial.cost} saved, %", "change": f"{score}: change"}
    columns = [replace(column, name=names.get(column.name, column.name)) for column in table.columns]
    places = [place for place, column in enumerate(columns) if column.interval]
    for at, row in enumerate(rows):
        cells = [_plain_cell(cell) if isinstance(cell, str) else cell for cell in row]
        for place in places:
            cells[place] = _range(columns[place].text(cells[place]))
        rows[at] = tuple(cells)
    notes = tuple(_plain_rules(_limited(note)) for note in table.notes)
    head, _, divided = table.title.partition(": ")
    heading = head if not divided else divided if ", " in divided else ""
    heading = heading.replace(" judge,", " count,").replace("fitted the candidates", "chose what to try")
    return replace(table, title=heading, columns=tuple(columns), rows=tuple(rows), notes=notes)


def in_plain_words(text: str, metric: str, others: Collection[str] = ()) -> str:
    """Rewrite a sentence of an advice without names of rules and metrics, and without the brackets of intervals.

    Args:
        text: The sentence.
        metric: The metric by which the decision judges.
        others: Names of other columns.  If one of them is a score, "the score" is followed by the metric's name.

    >>> in_plain_words("to stop by answer_stable would change f1 by +5.6 [-10.6, +25.9] points", "f1")
    'to stop once the answer repeats would change the score by +5.6 (-10.6 to +25.9) points'
    >>> in_plain_words("it changes f1 by +1.0 points (selected here: these questions also chose it)", "f1", ["score"])
    'it changes the score (F1) by +1.0 points (chosen on these same questions)'
    """
    text = _limited(text.replace(SELECTED_HERE, "(chosen on these same questions)"))
    for name, words in _PLAIN_RULES.items():
        text = re.sub(rf"([Ss])top by {name}\b", rf"\1top once the {words}", text)
    text = _plain_rules(text)
    score = "share of right answers" if metric == MATCH else title(metric, others)
    if score != metric:
        text = re.sub(rf"\b(change|changes|of) {metric}\b", rf"\1 the {score}", text)
    return _range(text)


def _plain_cell(text: str) -> str:
    """Write a cell in words.

    The number of further questions is left out, since the decision's sentence has it.

    >>> _plain_cell("stable_twice"), _plain_cell("not proved yet, about 1,300 more"), _plain_cell("loses more")
    ('stop once the answer repeats twice', 'not enough data', 'loses too much')
    >>> [_plain_cell(text) for text in ("settled(10)", "esc(3)")]
    ['stop when the rest cannot change it', 'stop when 3 in a row are the same']
    """
    if text in _PLAIN_RULES:
        return f"stop once the {_PLAIN_RULES[text]}"
    for rule, words in _VOTES.items():
        if vote := re.fullmatch(rule, text):
            return vote.expand(words)
    if text.startswith(("not proved yet", "waits for ")):
        return "not enough data"
    return {"loses more": "loses too much", "closed_book": "never retrieve"}.get(text) or _plain_rules(text)


def _plain_rules(text: str) -> str:
    """Write the names of rules in words, except inside a comparison, and except names that are English words.

    >>> _plain_rules("stable_twice"), _plain_rules("waits for stable_twice"), _plain_rules("answer_stable >= 1")
    ('answer repeats twice', 'waits for answer repeats twice', 'answer_stable >= 1')
    """
    for name, words in _PLAIN_RULES.items():
        if "_" in name:
            text = re.sub(rf"(?<![\w'\"`=]){name}(?![\w'\"`]| [<>=])", words, text)
    return text


def _range(text: str) -> str:
    """Write intervals in words.

    >>> _range("+5.6 [-10.6, +25.9]")
    '+5.6 (-10.6 to +25.9)'
    """
    return re.sub(r"\[([-+][\d.]+), ([-+][\d.]+)\]", r"(\1 to \2)", text)


def _limited(text: str) -> str:
    """Reword the cap of a loop as the number of rounds that it may take.

    >>> _limited("Lower the cap from 5 to 2"), _limited("to lower the cap to 3"), _limited("waits for fixed_k(2)")
    ('Allow at most 2 rounds instead of 5', 'to allow at most 3 rounds', 'waits for a limit of 2 rounds')
    """

    def allowed(match: re.Match[str]) -> str:
        instead = f" instead of {match[2]}" if match[2] else ""
        return f"{'A' if match[1] == 'L' else 'a'}llow at most {counted(int(match[3]), 'round')}{instead}"

    return _FIXED.sub(lambda match: f"a limit of {counted(int(match[1]), 'round')}", _LOWERED.sub(allowed, text))


def _limit(text: str, noun: str) -> str:
    """Write a cell in words if it names a fixed number of rounds or the present behaviour of the loop.

    The caps in any other cell are reworded by `_limited`.

    >>> [_limit(text, "round") for text in ("fixed_k(1)", "now: cap 5", "now", "waits for fixed_k(2)")]
    ['at most 1 round', 'keep 5 rounds', 'keep what you have', 'waits for a limit of 2 rounds']
    """
    if fixed := _FIXED.fullmatch(text):
        return f"at most {counted(int(fixed[1]), noun)}"
    what, _, have = text.partition(": ")
    kept = re.sub(r"^cap (\d+)$", lambda cap: counted(int(cap[1]), noun), have)
    return f"keep {kept or 'what you have'}" if what == "now" else _limited(text)


def _labels_of(ask: Path, path: Path, target: Path) -> Labels:
    """Read the labels of a sheet."""
    from suffice.verdicts.decisions import Labels

    if ask in (path, target):
        named = "log" if ask == path else "decision"
        raise DataError(f"--ask {quoted(ask)} names the {named}: give the labelling sheet a name of its own")
    return Labels.read(ask)


def _written_sheet(ask: Path | None, recording: Recording, advice: Advice, labels: Labels) -> dict[str, Path]:
    """Write the sheet with the questions to label next; return the sheet's path by description.

    Write nothing and return no path if there is neither a question to label nor an older sheet.
    """
    if ask is None or not (advice.to_label or ask.exists()):
        return {}
    from suffice.verdicts.decisions import write_sheet

    write_sheet(ask, recording, advice.to_label, labels, advice.pairs)
    return {"labels": ask}


def _diagnosing(advice: Advice, recording: Recording, path: Path) -> str:
    """Return the command that shows the signals of right and wrong answers.

    If the log does not show which answers are right, return "".
    """
    metric = advice.trial.metric
    if advice.trial.unjudged or abandoned(metric) or not has_outcome(recording, metric):
        return ""
    if metric in ("f1", "em"):
        said = ""
    elif is_agreement(metric) or np.isin(values := outcome(recording, metric), (0, 1))[np.isfinite(values)].all():
        said = options.metric_words(metric)
    else:  # a threshold divides right from wrong
        said = options.metric_words(f"{metric} > 0.5")
    return f"suffice diagnose {quoted(path)}{where_words(advice.where)}{said}"


def _earlier(previous: Path | None, target: Path, recording: Recording, path: Path) -> Advice:
    """Return the decision to continue: that in the file `previous` if it is given, or else that in the target file."""
    if previous is not None:
        return Advice.load(previous)
    earlier = Advice.load(target)  # continue it, because starting anew until the answer pleases would not be evidence
    if not earlier.knows(recording):
        raise DataError(
            f"{target} is a decision on other questions than those of {path}. If it is about the same loop, add these to its "
            f"evidence (--continue {quoted(target)}); for another loop write another file (-o {quoted(f'{path.stem}.decision.json')})"
        )
    return earlier


def _next_step(
    advice: Advice, recording: Recording, path: Path, target: Path, ask: Path | None, *, unjudged: bool
) -> str:
    """Return the command that follows from the verdict; `unjudged` means that the log can be judged by agreement alone."""
    filters = where_words(advice.where) if advice.where else ""
    if advice.verdict == "do it":
        return f"suffice deploy {quoted(target)}{' -o OTHER.json' * options.POLICY.exists()}"
    if advice.trial.taken_back:
        return f"suffice decide FRESH.parquet -o OTHER.json{filters}"
    if advice.verdict != "not enough data":
        return _diagnosing(advice, recording, path)
    if ask is None:
        further = f"FRESH.parquet --continue {quoted(target)}"
        return f"suffice decide {f'{quoted(path)}{ASK}' if unjudged else further}{filters}"
    if advice.to_label:
        return f"suffice decide {quoted(path)} --ask {quoted(ask)}{filters}"
    return f"suffice decide FRESH.parquet --ask {quoted(ask.with_stem('OTHER'))} -o OTHER.json"
