"""Which loops should stop?  One table of all recordings at hand, one file each.

`python -m benchmarks.which_loops [--page]` prints the table; `--page` also writes docs/results/which-loops.md, and the part of
docs/index.md that quotes it.  `--only NAME` takes one recording, for somebody who adds a file to `benchmarks/which_loops/recordings`.

Of each recording, tune questions, or else half of the questions (by a hash, seed 0), choose: the cheapest fixed budget and the cheapest rule
that lose at most two points there, among the candidates of `suffice decide`.  The other questions give every figure of both.  The last
two columns are what `suffice decide` says of the whole recording.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import suffice
from suffice import Advice, Policy, Recording, decide, read_recording, replay
from suffice.cli.console import print_table
from suffice.common.tables import Column, Table, render
from suffice.errors import DataError
from suffice.evaluation.replay.replayed_rows import Row
from suffice.evaluation.search.facts import TuneShare
from suffice.recordings import bundled_recording
from suffice.verdicts.decisions.candidates import is_fixed_budget

ROOT = Path(__file__).resolve().parents[2]
FILES = Path(__file__).with_name("recordings")
PAGE = ROOT / "docs" / "results" / "which-loops.md"
FRONT = ROOT / "docs" / "index.md"
BEGIN, END = "<!-- which loops: begin -->", "<!-- which loops: end -->"
COMMAND = "python -m benchmarks.which_loops --page"
MAX_LOSS = 0.02
"""The largest loss on the choosing half of a budget or a rule, and that of `decide`."""


@dataclass(frozen=True, kw_only=True)
class Described:
    """A recording as its file describes it.

    Attributes:
        name: The name of the file.
        loop: The kind of loop.
        title: The task and the model.
        metric: The metric, a column in [0, 1].
        source: Where the rounds come from.
        licence: Their licence.
        bundled: The name of a recording that comes with the package; else empty.
        file: Else the parquet file, relative to the repository or, with `made_by`, to the folder that it fills.
        tune: The name or file, of the same kind, of other questions that choose; else half of the recording's do.
        made_by: The command that makes it, if it is not stored; ``{folder}`` is the folder to fill.
        cost: The cost to save: `calls`, `tokens` or `money`.
        signals: Columns whose thresholds are candidates.
        leave_out_failed: Whether questions whose recording failed are left out; else they count as lost.
    """

    name: str
    loop: str
    title: str
    metric: str
    source: str
    licence: str
    bundled: str = ""
    file: str = ""
    tune: str = ""
    made_by: str = ""
    cost: str = "calls"
    signals: tuple[str, ...] = ()
    leave_out_failed: bool = False

    def __post_init__(self) -> None:
        if bool(self.bundled) == bool(self.file):
            raise DataError(f"{self.name}.toml: give either bundled = NAME or file = PATH")
        if self.made_by and "{folder}" not in self.made_by:
            raise DataError(
                f"{self.name}.toml: made_by = {self.made_by!r} does not say {{folder}}, where it has to write"
            )

    @classmethod
    def read(cls, path: Path) -> Described:
        """Read a file.

        Raises:
            DataError: A key is missing or unknown.
        """
        given = tomllib.loads(path.read_text("utf-8"))
        known = {field.name for field in fields(cls)} - {"name"}
        wanted = {"loop", "title", "metric", "source", "licence"}
        if wrong := (given.keys() - known) | (wanted - given.keys()):
            raise DataError(
                f"{path.name}: unknown or missing: {', '.join(sorted(wrong))}; known: {', '.join(sorted(known))}"
            )
        return cls(name=path.stem, **(given | {"signals": tuple(given.get("signals", ()))}))

    def parts(self) -> tuple[Recording, Recording, Recording]:
        """Return the recording, the questions that choose, and those that judge, after making them if a command does."""
        if not self.made_by:
            return self._divided(ROOT)
        with tempfile.TemporaryDirectory() as folder:
            command = shlex.split(self.made_by.format(folder=folder))
            if command[0] == "suffice":
                command[:1] = [sys.executable, "-m", "suffice"]
            subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
            return self._divided(Path(folder))

    def _divided(self, folder: Path) -> tuple[Recording, Recording, Recording]:
        whole = self._read(self.bundled or self.file, folder)
        if not self.tune:
            chooses = TuneShare(share=0.5, seed=0).divided(whole)
            return whole, whole.select(chooses), whole.select(~chooses)
        return whole, self._read(self.tune, folder), whole

    def _read(self, name: str, folder: Path) -> Recording:
        recording = bundled_recording(name) if self.bundled else read_recording(folder / name)
        return recording.select(~recording.failed) if self.leave_out_failed else recording


@dataclass(frozen=True, kw_only=True)
class Found:
    """Figures of a recording.

    Attributes:
        described: The recording.
        n: Its questions, without those left out.
        full: The row of the whole loop on the judging half.
        fixed: That of the fixed budget that was chosen on the other half; None if none loses little enough there.
        rule: The same of the rule.
        advice: What `decide` says of the whole recording.
    """

    described: Described
    n: int
    full: Row
    fixed: Row | None
    rule: Row | None
    advice: Advice

    def cells(self) -> tuple[object, ...]:
        """Return the row of the table."""
        return (
            self.described.loop,
            self.described.title,
            self.n,
            self.full.metrics[self.described.metric],
            *self._of(self.fixed),
            *self._of(self.rule),
            self._against_mixture(),
            self.advice.verdict,
        )

    def saved(self, row: Row) -> float:
        """Return the share of the full cost that a row saves."""
        return 1 - row.costs[self.described.cost] / self.full.costs[self.described.cost]

    @property
    def loses_more(self) -> bool:
        """Whether the budget or the rule loses more than `MAX_LOSS` on the judging questions."""
        rows = [row for row in (self.fixed, self.rule) if row is not None]
        return any(row.deltas[self.described.metric].delta < -MAX_LOSS for row in rows)

    def _of(self, row: Row | None) -> tuple[object, ...]:
        if row is None:
            return ("none", float("nan"), float("nan"))
        delta = row.deltas[self.described.metric]
        return (row.label.removesuffix(f", {row.selector}"), self.saved(row), (delta.delta, delta.low, delta.high))

    def _against_mixture(self) -> float:
        if self.rule is None or self.rule.mixture is None:
            return float("nan")
        return self.rule.metrics[self.described.metric] - self.rule.mixture.quality


def found(described: Described) -> Found:
    """Choose on one half of a recording, and judge on the other."""
    recording, choosing, judging = described.parts()
    asked: Any = {
        "metric": described.metric,
        "max_loss": MAX_LOSS,
        "cost": described.cost,
        "signals": described.signals,
    }
    advice = decide(choosing, **asked)
    fixed, rule = chosen(advice)
    whole = "full" if advice.trial.baseline == "recorded" else advice.trial.baseline
    named = [policy for policy in (fixed, rule) if policy is not None]
    result = replay(judging, named or ["fixed_k(1)"], metrics=[described.metric], baseline=whole, cost=described.cost)
    rows = {row.label: row for row in result.rows}
    return Found(
        described=described,
        n=len(recording.question_ids),
        full=rows[result.baseline],
        fixed=result.rows[0] if fixed else None,
        rule=result.rows[len(named) - 1] if rule else None,
        advice=decide(recording, **asked),
    )


def chosen(advice: Advice) -> tuple[Policy | None, Policy | None]:
    """Return the cheapest fixed budget and the cheapest rule that lose at most `MAX_LOSS` on these questions."""
    best: list[Policy | None] = [None, None]
    saved = [0.0, 0.0]
    for policy, figures in zip(advice.trial.candidates, advice.figures, strict=True):
        place = (
            0
            if is_fixed_budget(policy) or policy.label.endswith(" alone") or policy.label.startswith("token_budget")
            else 1
        )
        if -figures.change[0] <= MAX_LOSS and figures.saving > saved[place]:
            best[place], saved[place] = policy, figures.saving
    return best[0], best[1]


COLUMNS = (
    Column("loop"),
    Column("recording"),
    Column("questions", ",.0f"),
    Column("all rounds, %", ".1f", scale=100),
    Column("fixed budget"),
    Column("saves, %", ".0f", scale=100),
    Column("changes, points", "+.1f", scale=100, interval=True),
    Column("rule"),
    Column("saves, %", ".0f", scale=100),
    Column("changes, points", "+.1f", scale=100, interval=True),
    Column("over mixtures, points", "+.1f", scale=100),
    Column("verdict of `decide`"),
)


def table(results: Sequence[Found]) -> Table:
    """Return the table of all recordings, by kind of loop."""
    ordered = sorted(results, key=lambda one: (one.described.loop, one.described.title))
    return Table(title="Which loops should stop?", columns=COLUMNS, rows=tuple(one.cells() for one in ordered))


def short_table(results: Sequence[Found]) -> Table:
    """Return the table of the first page: what the fixed budget and the rule save and change, and the verdict."""
    ordered = sorted(results, key=lambda one: (one.described.loop, one.described.title))
    rows = []
    for one in ordered:
        texts = [column.text(value) for column, value in zip(COLUMNS, one.cells(), strict=True)]
        both = [
            "none" if name == "none" else f"{name}: {saves} %, {change}"
            for name, saves, change in (texts[4:7], texts[7:10])
        ]
        rows.append((*texts[:2], *both, texts[11]))
    columns = tuple(
        Column(name)
        for name in ("loop", "recording", "fixed budget: saves, changes", "rule: saves, changes", "verdict")
    )
    return Table(title="Chosen on some questions, measured on others", columns=columns, rows=tuple(rows))


def sources(results: Sequence[Found]) -> Table:
    """Return the table of where the recordings come from, what each figure is, and what is saved."""
    rows = tuple(
        (one.described.title, one.described.metric, one.described.cost, one.described.source, one.described.licence)
        for one in results
    )
    columns = tuple(Column(name) for name in ("recording", "metric", "what is saved", "source", "licence"))
    return Table(title="The recordings", columns=columns, rows=rows)


def page(results: Sequence[Found]) -> str:
    """Return docs/results/which-loops.md."""
    worse = sum(one.loses_more for one in results)
    sentences = "".join(f"- **{one.described.title}.** {one.advice.sentence}\n" for one in results)
    return (
        f"# Which loops should stop?\n\nWritten by `{COMMAND}` (suffice {suffice.__version__}).\n\n{INTRODUCTION}\n"
        + render([table(results)], "md")
        + f"\n{READING.format(worse=worse, n=len(results))}\n\n## What `suffice decide` says of each\n\n{sentences}\n"
        + render([sources(results)], "md")
        + f"\n{ADDING}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.relative_to(ROOT)}, too")
    parser.add_argument("--only", help="the name of one file, without its ending")
    args = parser.parse_args(arguments)
    described = [Described.read(path) for path in sorted(FILES.glob("*.toml")) if args.only in (None, path.stem)]
    if not described:
        raise DataError(f"no {args.only}.toml in {FILES.relative_to(ROOT)}")
    results = [found(one) for one in described]
    print_table(table(results))
    if args.page:
        if args.only:
            raise DataError("--page writes all rows: leave out --only")
        PAGE.write_text(page(results), "utf-8")
        before, rest = FRONT.read_text("utf-8").split(BEGIN)
        FRONT.write_text(
            before + BEGIN + "\n\n" + render([short_table(results)], "md") + "\n" + END + rest.split(END)[1], "utf-8"
        )


INTRODUCTION = """\
Tune questions, or half of a recording's by a hash, choose the cheapest fixed budget and the cheapest rule that lose at most two points
there, among the candidates of `suffice decide`. Other questions give the figures: the metric after all rounds, and what the budget and
the rule save and change, with 95 % intervals. *Over mixtures* is the rule's metric less that of the best mixture of fixed budgets
(a coin between two) that costs as much: a rule that is not above it knows nothing that a coin does not. For models in the order of
price, all rounds are the dearest model alone, and the mixtures those of single models. The verdict is that of `suffice
decide` on the whole recording, at a largest loss of two points and a risk of 5 %.
"""
ADDING = """\
## Add a recording

Put a file beside the others in `benchmarks/which_loops/recordings` that names the kind of loop, the metric, the source and the licence,
and a recording: one that comes with the package (`bundled`), a parquet file in the repository (`file`), or the command that makes it
(`made_by`). `python -m benchmarks.which_loops --only NAME` shows its row; an unknown or missing key is refused.
"""
READING = """\
**Votes know when to stop**: among samples of one model and panels of many, a lead of two or three votes saves half to nine tenths of the
calls, and in four of the six recordings it is more than two points above a coin that costs as much. Where sampling again brings nothing
(Code Llama), one sample is the cheapest loop, and no rule beats it. **Drafts want a lower cap**: two drafts cost less than any rule that
reads the distance between drafts, and score as well or better. **A check** is worth stopping for. **The dear model after the cheap one**
pays where the cheap one's own probability knows something (GPT-3.5, Yi), and not where it does not (Llama 2); from outcomes alone nothing
can be chosen. **Chains of thought** of a tiny model that talks itself out of right answers gain by any early stop, and a little more by
one that reads the trial answers. **Evidence** with a small reader is undecided: on these questions neither rule is shown to beat a coin.
**A coding agent** is to be left alone: what the choosing runs allow
loses three points on the others. In {worse} of {n} recordings a budget or rule that seemed to lose at most two points where it was chosen
lost more where it was judged; on the choosing questions alone nobody would have seen it.
"""

if __name__ == "__main__":
    main()
