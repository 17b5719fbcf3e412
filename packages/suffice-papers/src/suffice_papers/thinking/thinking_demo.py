"""`suffice demo thinking`: stop chains of thought early, on recorded chains of a tiny model, offline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from typing import Any

import numpy as np

from suffice._version import __version__
from suffice.cli import options
from suffice.cli.console import status
from suffice.cli.output import Output, Screen, check_markdown
from suffice.common.display import Chart
from suffice.common.display.svg import check_charts_extra
from suffice.common.files import write_file
from suffice.common.results import jsonable
from suffice.common.tables import Column, Table, figure, render
from suffice.evaluation.replay import policy_for
from suffice.evaluation.replay.charts import KIND_MARKS, points_chart
from suffice.evaluation.statistics import Resampling
from suffice.policy.rounds import Floats
from suffice.recordings import Recording, bundled_recording
from suffice.verdicts.certificates import Claim, certify
from suffice.verdicts.certificates.losses import Loss
from suffice_papers.thinking.lines import ASKING, METRIC, MOST_PRICE, NEVER, Line, Lines

RULES = {
    **{rule: rule for rule in ("dynasor(3)", "dynasor(2)", "deer(0.95)", "deer(0.9)", "deer(0.8)")},
    "deer(0.9) at Wait": "(thinking_hesitation > 0) & deer(0.9)",
    "at Wait": "thinking_hesitation > 0",
}
"""The rules by name, declared before the test chains were looked at."""

_CLAIM = Claim(epsilon=0.03, metric=METRIC)
_POPULATIONS, _BOUNDARY_SIZE, _SEED = 4000, 200, 42
_CREDITS = (
    "A Llama of 404,256 weights thinks about invented puzzles, sampled at temperature 1 by llama.cpp's server; recorded by `suffice "
    "think record` with a trial answer every 16 tokens (training/thinker)."
)

_HOW_CHOSEN = (
    "Puzzles, rules and the way to choose one were settled while this was built, partly with these figures in view: it shows what stops "
    "cost and what can be proved, and is no estimate for another model."
)


def demo_thinking(output: Output, markdown: options.Markdown = None) -> None:
    """Stop chains of thought early.

    Recorded chains of a tiny model that checks itself again, for better and for worse: rules, budgets and the price of asking.

    Example: suffice demo thinking
    """
    check_markdown(markdown)
    if markdown is not None:
        check_charts_extra()
    with status("replaying 1,000 chains", quiet=output.as_json):
        found = ThinkingFigures(tune=bundled_recording("thoughts_tune"), test=bundled_recording("thoughts_test"))
        tables, sentence = found.tables(), found.sentence
    if markdown is not None:
        picture = markdown.with_suffix(".svg")
        found.plot().save(picture)
        write_file(markdown, _page(found, picture.name))
    screen = Screen(
        sentences=[sentence, found.proof, found.when],
        tables=tables,
        notes=[found.boundary_text, _HOW_CHOSEN, _CREDITS],
        shown=2,
        aside={"trials", "at random, %"},
        files={"page": markdown},
        then="suffice think record QUESTIONS.jsonl -o t.parquet --model M --base-url URL",
    )
    output.show(found.to_dict(), screen)


@dataclass(frozen=True, kw_only=True, eq=False)
class ThinkingFigures:
    """Rules on test chains, certified by tests in an order that is chosen on tune chains.

    Attributes:
        tune: The chains on which the order of the tests is chosen.
        test: The chains on which all figures are measured.
        rules: The rules by name.
        claim: The claim of the certificates.
        resampling: The draws of the intervals.
        noun: The plural noun for the tasks, in sentences.
    """

    tune: Recording
    test: Recording
    rules: Mapping[str, str] = field(default_factory=lambda: RULES)
    claim: Claim = _CLAIM
    resampling: Resampling = Resampling()
    noun: str = "puzzles"

    @cached_property
    def lines(self) -> Lines:
        """The ways to stop, on the test chains."""
        return Lines(self.test, self.rules, self.resampling)

    @cached_property
    def certified(self) -> dict[str, float]:
        """The p-values of the certified rules by name, in the order of the tests.

        The loss of a certified rule is bounded with confidence.

        Rules are tested in the order of their p-values on the tune chains until a rule fails.
        """
        policies = [policy_for(self.test, rule, name=name) for name, rule in self.rules.items()]
        result = certify(self.test, policies, self.claim, tune=self.tune, cheapest="tokens")
        found = zip(result.family.policies, result.p_values.tolist(), result.certified, strict=True)
        return {policy.label: p_value for policy, p_value, certified in found if certified}

    @cached_property
    def chosen(self) -> Line:
        """The rule that computes the fewest tokens, among the certified rules; if none is certified, among all rules."""
        certified = [line for line in self.lines.rules if line.label in self.certified]
        return min(certified or self.lines.rules, key=lambda line: line.tokens["cached"])

    @cached_property
    def boundary(self) -> dict[str, float]:
        """The share of simulated sets that certify a rule although its true loss equals epsilon.

        The keys name the kind of loss (net or harm) and the rule.

        Sets are drawn with replacement from the test chains, which thus are a population with known losses.
        """
        rng = np.random.default_rng(_SEED)
        drawn = rng.integers(len(self.lines.whole.right), size=(_POPULATIONS, _BOUNDARY_SIZE))
        shares = {}
        for line in self.lines.rules:
            net = self.lines.whole.right - line.right
            losses: dict[Loss, Floats] = {"net": net, "harm": np.maximum(net, 0.0)}
            for loss, values in losses.items():
                if values.mean() > 0:
                    claim = Claim(epsilon=float(values.mean()), metric=METRIC, loss=loss)
                    false = claim.p_values(values[drawn], claim.delta) <= claim.delta
                    shares[f"{loss} loss of {line.label}"] = float(false.mean())
        return shares

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        line, whole = self.chosen, self.lines.whole
        coin, above, as_right = line.coins["cached"], line.above.get("cached"), self.lines.tokens_of_coin(line.accuracy)
        proof = "certified" if line.label in self.certified else "not certified"
        text = (
            f"{line.label} ({proof}) is right on {_percent(line.accuracy)} % of {self.test.shape[0]} {self.noun} with {line.tokens['cached']:.0f} tokens "
            f"each, trial answers over a prefix cache included; never stopping on {_percent(whole.accuracy)} % with {whole.tokens['cached']:.0f}"
        )
        if coin is None or above is None:
            return f"{text}; every fixed budget costs more."
        needs = "no coin is right as often" if as_right is None else f"one as right computes {as_right:.0f}"
        verdict = "beats" if above.low > 0 else "does not beat" if above.delta <= 0 else "may not beat"
        return (
            f"{text}; a coin between two fixed budgets on {_percent(coin.quality)} % with as many ({above.delta * 100:+.1f} points "
            f"[{above.low * 100:+.1f}, {above.high * 100:+.1f}]), and {needs}: the rule {verdict} every fixed budget."
        )

    @property
    def proof(self) -> str:
        """The certificate in one sentence."""
        bound = f"a net loss above {100 * self.claim.epsilon:g} points against chains without a stop"
        if not self.certified:
            return f"Of no rule {bound} is excluded with {100 * self.claim.confidence:g} % confidence."
        return (
            f"Of {', '.join(self.certified)} {bound} is excluded, together, with {100 * self.claim.confidence:g} % confidence; {self.chosen.label} computes the "
            f"fewest tokens of them on these chains; the tests went in the order of {self.tune.shape[0]} tune chains."
        )

    @property
    def when(self) -> str:
        """The prices at which trial answers pay, in one sentence."""
        line, every = self.chosen, self.lines.every
        if not line.trials:
            return f"{line.label} asks for no trial answer."
        trial = (line.tokens["cached"] - line.tokens["free"]) / line.trials
        up_to, reread = self.lines.pays_up_to(line) * trial, line.above.get("reread")
        again = (
            ""
            if reread is None
            else f"; if each reads the whole chain again, it is {100 * reread.delta:+.1f} points from one"
        )
        return (
            f"Asking is dear here: a trial answer computes {trial:.0f} tokens, {100 * trial / every:.0f} % of the {every} between two "
            f"checkpoints ({100 * trial / 256:.0f} % if these were 256). {line.label} is better than a coin while a trial computes fewer than "
            f"{up_to:.0f}{again}."
        )

    @property
    def boundary_text(self) -> str:
        """A text on the result of the simulation in `boundary`."""
        worst = max(self.boundary, key=lambda name: self.boundary[name])
        return (
            f"where a rule loses exactly what a certificate excludes, at most {_percent(self.boundary[worst])} % of {_POPULATIONS:,} sets of "
            f"{_BOUNDARY_SIZE} chains certify it ({worst}; {len(self.boundary)} losses tried); allowed: {100 * _CLAIM.delta:g} %, and a point more by chance"
        )

    def tables(self) -> list[Table]:
        """Return three tables: ways to stop, the price of trial answers, and chains that go on during their trials."""
        return [self.ways(), self.asking(), overlap_table()]

    def ways(self) -> Table:
        """Return a table of the chosen rule, chains without a stop, other rules, and the undominated fixed budgets."""
        lines = [self.chosen, self.lines.whole, *(line for line in self.lines.rules if line is not self.chosen)]
        rows = [self._row(line) for line in (*lines, *self.lines.budgets)]
        return Table(
            title=f"Right answers against all tokens, {self.test.shape[0]} test chains",
            columns=(
                Column("stop at"),
                Column("right, %", ".1f", scale=100),
                Column(f"against {NEVER}", "+.1f", scale=100, interval=True),
                Column("tokens", ".0f"),
                Column("trials", ".2f"),
                Column("at random, %", ".1f", scale=100),
                Column("coin, %", ".1f", scale=100),
                Column("above it", "+.1f", scale=100, interval=True),
                Column(f"loss <= {100 * self.claim.epsilon:g}"),
                Column("dominated by"),
            ),
            rows=tuple(rows),
            notes=(
                "tokens: all that the model computes, trial answers included; a prefix from the cache is not computed again",
                (
                    "coin: one of two fixed budgets for each question, the best two for no more tokens on these chains; only budgets "
                    "that no coin dominates are listed"
                ),
                "at random: the same stops, dealt to other chains of the same length; at Wait: where the chain hesitates (thinking_hesitation > 0)",
            ),
        )

    def _row(self, line: Line) -> tuple[Any, ...]:
        coin, above = line.coins.get("cached"), line.above.get("cached")
        return (
            line.label,
            line.accuracy,
            (line.against.delta, line.against.low, line.against.high),
            line.tokens["cached"],
            line.trials,
            line.at_random,
            None if coin is None else coin.quality,
            None if above is None else (above.delta, above.low, above.high),
            ("yes" if line.label in self.certified else "no") if line.label in self.rules else None,
            line.dominated,
        )

    def asking(self) -> Table:
        """Return the table of the price of trial answers, rule by rule."""
        rows = []
        for line in self.lines.rules:
            above = [line.above[asking].delta if asking in line.above else None for asking in ASKING]
            up_to = self.lines.pays_up_to(line)
            rows.append((line.label, line.trials, *(line.tokens[asking] for asking in ASKING), *above, up_to))
        return Table(
            title="The price of asking",
            columns=(
                Column("stop at"),
                Column("trials", ".2f"),
                *(Column(f"tokens, {asking}", ".0f") for asking in ASKING),
                *(Column(f"above coin, {asking}", "+.1f", scale=100) for asking in ASKING),
                Column("pays up to", ".1f"),
            ),
            rows=tuple(rows),
            notes=(
                (
                    "free: trial answers cost nothing, as they are often reported; cached: their own tokens; reread: without a prefix cache "
                    "each reads the whole chain, but a server forces a fixed budget without it; above coin: points above the best coin for as many tokens"
                ),
                f"pays up to: the price of a trial, in its price here, at which a coin does as well ({MOST_PRICE:g}: more was not tried)",
            ),
        )

    def plot(self) -> Chart:
        """Return a chart of right answers against tokens; only a few points have labels, so that labels do not overlap."""
        named = {self.chosen.label, NEVER, "deer(0.95)", "dynasor(2)", "dynasor(3)", "at Wait"}
        points = [
            {
                "label": label,
                "short": label if label in named else "",
                "kind": kind,
                "name": KIND_MARKS[kind][0],
                "selector": "",
                "cost": tokens,
                "quality": 100 * right,
            }
            for label, kind, tokens, right in self.lines.points()
        ]
        tooltip = [{"field": name, "title": name} for name in ("label", "quality", "cost")]
        return Chart(points_chart(points, ("tokens, trial answers included", "right, %"), "Right answers", tooltip))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "headline": self.sentence,
            "chosen": self.chosen.label,
            "rules": [jsonable(line.to_dict()) for line in self.lines.rules],
            "budgets": [jsonable(line.to_dict()) for line in self.lines.budgets],
            "never_stop": jsonable(self.lines.whole.to_dict()),
            "pays_up_to": {line.label: self.lines.pays_up_to(line) for line in self.lines.rules},
            "certified": self.certified,
            "boundary": self.boundary,
        }


def overlap_table() -> Table:
    """Return the stored figures of chains that wait for their trial answers, and of chains that go on meanwhile.

    The figures come from training/thinker.
    """
    measured = json.loads(resources.files(__package__).joinpath("overlap.json").read_text("utf-8"))
    names = ("slots", "way", "seconds", "computed", "stopped", "beyond_output", "beyond_read")
    return Table(
        title=f"The chain waits for its trials, or goes on beside them (--overlap): {measured['n']} other puzzles, {measured['rule']}",
        columns=(
            Column("slots", ".0f"),
            Column("the chain"),
            Column("seconds", ".3f"),
            Column("tokens", ".0f"),
            Column("stopped beside, %", ".1f", scale=100),
            Column("thought beyond", ".2f"),
            Column("read beyond, at most", ".0f"),
        ),
        rows=tuple(tuple(row[name] for name in names) for row in measured["rows"]),
        notes=(
            (
                "means per puzzle, both ways in turns with the same stops; tokens: all that is computed up to the stop; slots: requests that "
                "llama.cpp's server handles at a time, each with a prefix cache of its own, so that two read more"
            ),
            (
                "beyond: the stretch that was begun beside the last trial and then cancelled; where nothing of it had arrived, its whole prompt "
                "counts as read"
            ),
            "one thread of the server computes trial and chain, and a trial answer has two tokens, so that there is little time to gain",
        ),
    )


def _percent(share: float) -> str:
    return figure(share, ".1f", 100)


def _page(found: ThinkingFigures, picture: str) -> str:
    command = "suffice demo thinking --set markdown=docs/results/thinking.md"
    return "\n\n".join(
        [
            "# Chains of thought",
            f"Written by `{command}` (suffice {__version__}), seed {_SEED}. {_CREDITS} {_HOW_CHOSEN}",
            *(f"- {text}" for text in (found.sentence, found.proof, found.when, found.boundary_text)),
            f"![Right answers against tokens]({picture})",
            render(found.tables(), "md"),
        ]
    )
