"""`suffice demo agents`: the money that early stopping would save in a coding agent, from recorded runs, offline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice._version import __version__
from suffice.cli import options
from suffice.cli.console import status
from suffice.cli.output import Output, Screen, check_markdown
from suffice.common.tables import Column, Table, render
from suffice.evaluation.replay import policy_for
from suffice.evaluation.statistics import hash_places
from suffice.policy.rounds import Floats, Mask
from suffice.policy.session import Policy
from suffice.recordings import Recording, bundled_recording
from suffice.verdicts.decisions import Advice, decide
from suffice.verdicts.decisions.losses import measure_candidates

_METRIC = "resolved"
_RULES = (
    *(f"since_change >= {k}" for k in (5, 10, 15, 20, 25, 30, 40)),
    *(f"fixed_k({k})" for k in (40, 50, 60, 70, 80, 90, 100, 120)),
    *(f"(checks_green_since_change >= {n}) & (since_change >= {k})" for n in (1, 2) for k in (2, 5, 10)),
    *(f"(command_repeated >= 1) & (since_change >= {k})" for k in (5, 10, 20)),
    *(f"spend > {limit}" for limit in (0.4, 0.6, 0.8, 1.0, 1.5)),
    *(f"(spend > {limit}) & (since_change >= 5)" for limit in (0.4, 0.6, 0.8)),
)
"""Rules on the signals of a working agent, and fixed limits; all were chosen before any of them was measured."""
_SHOWN = ("since_change >= 25", "since_change >= 15", "fixed_k(90)", "spend > 0.8")
_LOSSES = (0.005, 0.01, 0.02, 0.05)
_HALVES = 40
_CREDITS = "Runs: mini-swe-agent with Gemini 3 Pro on SWE-bench Verified (github.com/gruckion/mini-swe-agent, MIT); numbers only."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """Each rule's loss and money in each run, shape ``(n_rules, n_runs)``, and the full runs' money and outcome."""

    losses: Floats
    money: Floats
    spent: Floats
    resolved: Floats

    @classmethod
    def of(cls, recording: Recording, policies: Sequence[Policy]) -> _Measured:
        measured = measure_candidates(recording, policies, "recorded", _METRIC, by_unit=True)
        parts = measured.parts
        if parts is None:
            raise TypeError("costs by run were asked for")
        last = recording.seen.sum(axis=1) - 1
        own = recording.column(_METRIC)[np.arange(len(last)), last]
        return cls(losses=measured.worst, money=parts.costs["money"][:-1], spent=parts.costs["money"][-1], resolved=own)

    def kept(self, place: int) -> tuple[float, float]:
        """Return the share of resolved runs that stay resolved under a rule, and the share of the money that is still spent."""
        lost = float(self.losses[place].sum() / self.resolved.sum())
        return 1 - lost, float(self.money[place].sum() / self.spent.sum())

    def best_on(self, inside: Mask, most: float) -> tuple[float, float]:
        """Select the rule that saves most on the runs `inside`, among the rules that lose at most `most` on these runs.

        Return two values of this rule on all other runs: the share of money that it saves, and its loss. Both are 0 if
        every rule loses more than `most` on the runs `inside`.
        """
        other = ~inside
        losses = self.losses[:, inside].mean(axis=1)
        saved = 1 - self.money[:, inside].sum(axis=1) / self.spent[inside].sum()
        place = int(np.argmax(np.where(losses <= most, saved, -np.inf)))
        if losses[place] > most:
            return 0.0, 0.0
        saving = 1 - float(self.money[place, other].sum() / self.spent[other].sum())
        return saving, float(self.losses[place, other].mean())


def demo_agents(output: Output, markdown: options.Markdown = None) -> None:
    """Stop a coding agent by its steps.

    500 recorded runs, offline: where their money went, what rules that read the steps keep of the results, and the verdict.

    Example: suffice demo agents
    """
    check_markdown(markdown)
    recording = bundled_recording("agents_swebench")
    with status("deciding", quiet=output.as_json):
        advice = decide(recording, metric=_METRIC)
    with status(f"{len(_RULES)} rules", quiet=output.as_json):
        policies = [policy_for(recording, rule, name=rule) for rule in _RULES]
        measured = _Measured.of(recording, policies)
        same = _same_files(recording, [policies[_RULES.index(rule)] for rule in _SHOWN])
    halves = _halves(recording, measured)
    if advice.spending is None:
        raise TypeError("the recording has the price of each step")
    tables = [advice.spending.table(), _kept_table(measured, same), _halves_table(halves), *advice.tables()[:1]]
    if markdown is not None:
        markdown.write_text(_page(advice, tables), encoding="utf-8")
    screen = Screen(
        sentences=[advice.lead],
        tables=tables,
        shown=2,
        notes=[_CREDITS],
        files={"table": markdown},
        then="suffice import RUNS --outcomes report.json",
    )
    kept = {rule: dict(zip(("resolved", "money"), measured.kept(_RULES.index(rule)), strict=True)) for rule in _RULES}
    output.show({"decision": advice.to_dict(), "kept": kept, "halves": halves}, screen)


def _halves(recording: Recording, measured: _Measured) -> list[dict[str, Any]]:
    """Choose a rule on one half of the runs and judge it on the other half, for many random divisions.

    For each allowed loss, return the mean saving, the mean loss, and the range of the middle 90 % of the losses.
    """
    result = []
    for most in _LOSSES:
        pairs = []
        for division in range(_HALVES):
            half = hash_places(recording.question_ids, salt=f"half {division}:") < 0.5  # noqa: PLR2004
            pairs.append(measured.best_on(half, most))
        saving, loss = np.array(pairs).T
        low, high = np.quantile(loss, (0.05, 0.95))
        result.append(
            {
                "most": most,
                "saving": float(saving.mean()),
                "loss": float(loss.mean()),
                "low": float(low),
                "high": float(high),
            }
        )
    return result


def _same_files(recording: Recording, policies: Sequence[Policy]) -> Floats:
    """Return, for each policy, the share of all runs that it stops when their files are already final."""
    differing: Floats = measure_candidates(recording, policies, "recorded", "agreement_em").worst.mean(axis=1)
    return 1 - differing


def _kept_table(measured: _Measured, same: Floats) -> Table:
    rows = [(rule, *measured.kept(_RULES.index(rule)), of_all) for rule, of_all in zip(_SHOWN, same, strict=True)]
    return Table(
        title="What rules keep, on all runs",
        columns=(
            Column("rule"),
            Column("results kept, %", ".1f", scale=100),
            Column("money spent, %", ".1f", scale=100),
            Column("same files, % of all runs", ".1f", scale=100),
        ),
        rows=tuple(rows),
        notes=(
            "at a step whose files are not the final ones a resolved run counts as lost, so these are lower bounds of what is kept",
        ),
    )


def _halves_table(halves: Sequence[dict[str, Any]]) -> Table:
    rows = [(row["most"], row["saving"], (-row["loss"], -row["high"], -row["low"])) for row in halves]
    return Table(
        title="The best rule for a loss on one half of the runs, judged on the other half",
        columns=(
            Column("loss allowed, points", ".1f", scale=100),
            Column("money saved, %", ".1f", scale=100),
            Column("change of resolved, points", "+.1f", scale=100, interval=True),
        ),
        rows=tuple(rows),
        notes=(f"means over {_HALVES} divisions by a hash, and the middle nine tenths of the changes",),
    )


_LESSON = (
    "A rule that reads the steps gets back a few per cent of the money at most: what an agent does after its last change is mostly "
    "checking, and nothing that it shows tells its last change from one before."
)


def _page(advice: Advice, tables: Sequence[Table]) -> str:
    command = "suffice demo agents --set markdown=docs/results/agents.md"
    written = f"Written by `{command}` (suffice {__version__}), seed 42. {_CREDITS}"
    return "\n\n".join(["# A coding agent", written, advice.lead, _LESSON, render(tables, "md")]) + "\n"
