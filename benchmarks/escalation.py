"""Which orders of models and which rules are worth their attempts, and is any run worth giving up?

`python -m benchmarks.escalation [--page]` chooses rules, thresholds and orders of models on one half of the questions, and judges
them on the other half, beside the best mixture of single models at the same cost: a mixture pays the model that is drawn, and an
escalation every attempt.  `--page` also writes docs/results/escalation.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa

import suffice
from suffice import decide
from suffice.cli.console import print_table
from suffice.common.tables import Column, Table, render
from suffice.evaluation.replay.baselines import run_policy, single_policies
from suffice.evaluation.replay.front import best_mixture
from suffice.evaluation.replay.outcomes import outcome
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.price_lists import list_price
from suffice.evaluation.statistics import hash_places
from suffice.policy.rounds import Floats, Mask
from suffice.policy.rules import parse_rule
from suffice.policy.session import Policy
from suffice.recordings import Recording, bundled_recording
from suffice.recordings.runs import ATTEMPTS, attempts_of

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "escalation.md"
MODELS = {
    "Mistral-Nemo-Instruct-2407": "mistral-nemo",
    "claude-3-haiku-20240307": "claude-3-haiku",
    "gpt-4o-mini-2024-07-18": "gpt-4o-mini",
    "gpt-3.5-turbo-0125": "gpt-3.5-turbo",
    "claude-3-5-haiku-20241022": "claude-3-5-haiku-latest",
    "gpt-4o-2024-08-06": "gpt-4o",
    "gpt-4-turbo-2024-04-09": "gpt-4-turbo",
}
"""The models of the panels that have a list price, with its name."""
TOKENS = 250
"""Generated tokens of each answer of the panels, which were not recorded: only the ratio of prices matters."""
DRAWS, SEED = 1000, 7
_QUANTILES = np.linspace(0.05, 0.95, 19)
_LIMITS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
_MOST = 0.01
"""The successes that giving up may lose where it is chosen, as a share of the runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Metric and cost of each question under single models and rules; arrays have shape ``(n_questions,)``."""

    singles: dict[str, tuple[Floats, Floats]]
    rules: dict[str, tuple[Floats, Floats]]

    def gain(self, rule: str, weights: Floats) -> tuple[float, float, float]:
        """Return quality and cost of a rule on weighted questions, and its gain over the best mixture for as much."""
        values = {name: tuple(float(weights @ part) for part in parts) for name, parts in self.singles.items()}
        value, cost = (float(weights @ part) for part in self.rules[rule])
        quality, spent = (np.array(part) for part in zip(*values.values(), strict=True))
        mixture = best_mixture([*values], quality, spent, cost)
        return value, cost, value - (0.0 if mixture is None else mixture.quality)

    def best(self, half: Mask) -> str:
        """Return the rule with the largest gain on a half of the questions."""
        weights = half / half.sum()
        return max(self.rules, key=lambda rule: self.gain(rule, weights)[2])

    def interval(self, rule: str, half: Mask) -> tuple[float, float, float]:
        """Return a rule's gain on a half of the questions, with a 95 % percentile interval of resampled questions."""
        places, rng = np.flatnonzero(half), np.random.default_rng(SEED)
        gains = []
        for _ in range(DRAWS):
            counts = np.bincount(rng.choice(places, len(places)), minlength=len(half))
            gains.append(self.gain(rule, counts / len(places))[2])
        low, high = np.quantile(gains, (0.025, 0.975))
        return self.gain(rule, half / half.sum())[2], float(low), float(high)


def outcomes(recording: Recording, metric: str, rules: Sequence[str]) -> Outcomes:
    """Replay single models and rules on an escalation."""
    prepared = PreparedRecording.of(recording, [metric])
    if "answer_probability" in recording.names("signal"):
        prepared = prepared.with_columns({"verifier_score": recording.column("answer_probability")})
    found = {}
    for policy in (*single_policies(attempts_of(recording), Policy()), *map(policy_of(recording), rules)):
        run, _ = run_policy(prepared, policy)
        found[policy.name] = run.values[metric], run.ledger.money
    return Outcomes(
        singles={name: value for name, value in found.items() if name not in rules},
        rules={name: found[name] for name in rules},
    )


def policy_of(recording: Recording) -> Callable[[str], Policy]:
    """Return the function that makes a rule a policy for an escalation."""
    most, normalizer = int(recording.index[-1]), recording.metadata.get("normalizer") or "qa"
    return lambda rule: Policy(rule=parse_rule(rule), max_rounds=most, normalizer=normalizer, name=rule)


def halves(recording: Recording) -> tuple[Mask, Mask]:
    """Return masks of two halves of the questions, by the hash of their names."""
    first: Mask = hash_places(recording.question_ids, salt="escalation:") < 0.5
    return first, ~first


def score_rules(recording: Recording) -> list[str]:
    """Return FrugalGPT's rule with thresholds at quantiles of the first and of later probabilities."""
    columns = recording.column("answer_probability")
    limits = [[float(f"{value:.3g}") for value in np.quantile(column, _QUANTILES)] for column in columns.T[:2]]
    if recording.shape[1] == 2:
        return [*dict.fromkeys(f"frugalgpt({first:g})" for first in limits[0])]
    return [*dict.fromkeys(f"frugalgpt({first:g}, {later:g})" for first in limits[0][::2] for later in limits[1][::2])]


def panel_order(panel: Recording, models: Sequence[str]) -> Recording:
    """Return some models of a panel as an escalation in this order, each answer at its list price."""
    names, rows = panel.objects("member"), []
    answers, right = panel.answers, panel.column("match")
    for q, question in enumerate(panel.question_ids):
        spent = 0.0
        for place, model in enumerate(models, start=1):
            (at,) = np.flatnonzero(names[q] == model)
            spent += list_price(MODELS[model]).price.output * TOKENS / 1e6
            rows.append((question, place, "max_rounds", answers[q, at], right[q, at], spent))
    columns = ("question_id", "round", "end", "answer", "match", "spend")
    table = pa.table({name: [row[at] for row in rows] for at, name in enumerate(columns)})
    return Recording(table, {"normalizer": panel.metadata["normalizer"], "depends": {ATTEMPTS: [*models]}})


def panel_outcomes(panel: Recording) -> Outcomes:
    """Return the outcomes of all orders of three models by price that stop where two agree."""
    known = set(panel.objects("member")[0])
    models = sorted(known & MODELS.keys(), key=lambda name: list_price(MODELS[name]).price.output)
    alone = outcomes(panel_order(panel, models), "match", [])
    rules = {}
    for three in combinations(models, 3):
        rules[" > ".join(three)] = outcomes(panel_order(panel, three), "match", ["answer_stable"]).rules[
            "answer_stable"
        ]
    return Outcomes(singles=alone.singles, rules=rules)


def judged_rows(name: str, found: Outcomes, parts: tuple[Mask, Mask]) -> Iterator[tuple[object, ...]]:
    """Yield the row of each half: the rule that the other half chose, its quality, cost, and gain over the mixtures."""
    dearest = max(float(cost.mean()) for _, cost in found.singles.values())
    for chooses, judges in (parts, parts[::-1]):
        rule = found.best(chooses)
        value, cost, _ = found.gain(rule, judges / judges.sum())
        gain = found.interval(rule, judges)
        said = "beats them" if gain[1] > 0 else "worse" if gain[2] < 0 else "not shown"
        yield (name, rule, int(judges.sum()), value, cost / dearest, gain, said)


def single_rows(name: str, found: Outcomes) -> Iterator[tuple[object, ...]]:
    """Yield the rows of single models and of two oracles, which know what is right."""
    dearest = max(float(cost.mean()) for _, cost in found.singles.values())
    for label, (value, cost) in found.singles.items():
        yield (name, label, value.mean(), cost.mean() / dearest)
    values, costs = (np.stack([parts[at] for parts in found.singles.values()]) for at in (0, 1))
    right = values.max(axis=0)
    first = np.where(right > 0, values.argmax(axis=0), 0)
    rows = np.arange(values.shape[1])
    yield (
        name,
        "oracle of mixtures: the cheapest right model, asked alone",
        right.mean(),
        costs[first, rows].mean() / dearest,
    )
    paid = np.where(right > 0, costs.cumsum(axis=0)[first, rows], costs.sum(axis=0)).mean()
    yield (name, "oracle of escalations: accepts the first right answer", right.mean(), paid / dearest)


def given_up(recording: Recording) -> Iterator[tuple[object, ...]]:
    """Yield the row of each half of agents' runs: the threshold that saved most on the other half for a point, judged."""
    prepared = PreparedRecording.of(recording, ["abandon(solved)"])
    rules = [
        text
        for limit in _LIMITS
        for text in (f"judge_probability <= {limit}", f"patience((judge_probability <= {limit}), 2)")
    ]
    found = {}
    for rule in rules:
        run, _ = run_policy(prepared, Policy(rule=parse_rule(rule), max_rounds=prepared.highest))
        found[rule] = run.values["abandon(solved)"], run.ledger.calls
    whole = np.nansum(outcome(recording, "abandon(solved)"), axis=1), recording.seen.sum(axis=1).astype(np.float64)

    def figures(rule: str, half: Mask) -> tuple[float, Floats]:
        """Return the share of the steps that is saved, and the loss of each run."""
        value, steps = found[rule]
        return 1 - float(steps[half].sum() / whole[1][half].sum()), whole[0][half] - value[half]

    one, other = halves(recording)
    everything = one | other
    for name, chooses, judges in (
        ("all, in sample", everything, everything),
        ("second", one, other),
        ("first", other, one),
    ):
        allowed = [rule for rule in rules if figures(rule, chooses)[1].mean() <= _MOST]
        rule = max(allowed, key=lambda text: figures(text, chooses)[0])
        saving, loss = figures(rule, judges)
        half = 1.96 * loss.std(ddof=1) / np.sqrt(len(loss))
        yield (name, rule, len(loss), saving, (loss.mean(), loss.mean() - half, loss.mean() + half))


def tables() -> tuple[list[Table], dict[str, str]]:
    """Return the tables, and the sentences of `decide` by recording."""
    single, judged, said = [], [], {}
    for name in ("router", "gpt", "llama", "yi"):
        recording = bundled_recording(f"escalation_{name}")
        has_signal = "answer_probability" in recording.names("signal")
        found = outcomes(recording, "right", score_rules(recording) if has_signal else [])
        single += single_rows(name, found)
        judged += judged_rows(name, found, halves(recording)) if has_signal else []
        said[name] = decide(recording, metric="right", signals=["answer_probability"] * has_signal).sentence
    for name in ("gsm8k", "cruxeval"):
        panel = bundled_recording(f"panel_{name}")
        found = panel_outcomes(panel)
        single += single_rows(name, found)
        judged += judged_rows(name, found, halves(panel))
    runs = bundled_recording("agents_hotpotqa")
    advice = decide(runs, metric="abandon(solved)", signals=["judge_probability"], max_loss=_MOST)
    said["agents_hotpotqa"] = advice.sentence
    return [
        Table(
            title="Each model alone, and what knowing the right answers would give", columns=_SINGLE, rows=tuple(single)
        ),
        Table(title="Rules beside mixtures of single models for as much", columns=_JUDGED, rows=tuple(judged)),
        Table(title="Giving runs up", columns=_GIVEN_UP, rows=tuple(given_up(runs))),
    ], said


_SINGLE = (
    Column("data"),
    Column("asked"),
    Column("right, %", ".1f", scale=100),
    Column("cost, % of the dearest", ".1f", scale=100),
)
_JUDGED = (
    Column("data"),
    Column("chosen on the other half"),
    Column("questions", ",.0f"),
    Column("right, %", ".1f", scale=100),
    Column("cost, % of the dearest", ".1f", scale=100),
    Column("points more than mixtures", "+.1f", scale=100, interval=True),
    Column(""),
)
_GIVEN_UP = (
    Column("judged on half"),
    Column("chosen on the other: most saved for a point"),
    Column("runs", ",.0f"),
    Column("steps saved, %", ".1f", scale=100),
    Column("points of success lost", ".2f", scale=100, interval=True),
)


def main() -> None:
    """Print the tables, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="write docs/results/escalation.md, too")
    args = parser.parse_args()
    (single, judged, abandoned), said = tables()
    for item in (single, judged, abandoned):
        print_table(item)
    for name, sentence in said.items():
        print(f"{name}: {sentence}")
    if args.page:
        advice = "\n".join(f"- `escalation_{name}`: {text}" for name, text in said.items() if name != "agents_hotpotqa")
        parts = [
            "# Escalation, and giving up",
            INTRODUCTION.format(version=suffice.__version__),
            render([single], "md"),
            ORACLES,
            "## Held-out halves",
            render([judged], "md"),
            JUDGED,
            f"`suffice decide` against the dearest model alone, with a largest loss of two points:\n\n{advice}",
            "## Giving runs up",
            ABANDONED,
            render([abandoned], "md"),
            f"`suffice decide` with a largest loss of one point: {said['agents_hotpotqa']}",
        ]
        PAGE.write_text("\n\n".join(part.strip() for part in parts) + "\n", "utf-8")


INTRODUCTION = (
    "Written by `python -m benchmarks.escalation --page` (suffice {version}). Models are asked in the order of price, and to stop is to accept. An "
    "escalation pays **every** attempt; a mixture of single models pays the one that a coin draws, and needs no signal. So the question is "
    "whether a rule is right more often than the best mixture for the same money.\n\n"
    "`router`: Mixtral and GPT-4 on GSM8K and MMLU (RouteLLM, Apache-2.0), at its authors' prices of 0.24 and 24.70 USD per million "
    "tokens. `gpt`, `llama`, `yi`: letters of MMLU with the model's own probability (Plaut, MIT), at list prices of input, or a cent per billion "
    "parameters and million tokens. `gsm8k`, `cruxeval`: the bundled panels (ZeroEval, Apache-2.0), of which the models with a list price "
    "count, at the price of output, as if all answers were equally long."
)
ORACLES = (
    "Of `router` it is only known which answers are right. No rule can be replayed on that: what stands above is all that can be said. Between "
    "the two models, each point of the mixture costs its share of the difference; what a signal could add at most is the distance to the oracle."
)
JUDGED = (
    "`frugalgpt` is FrugalGPT's rule, a threshold of a score for each attempt; the score is the model's own probability of its letter, which a scorer "
    "that is fitted to it would only rescale. On the panels the only signal is agreement: two models are asked, and the third, dearer one where "
    "they differ. AutoMix asks the small model several times whether its answer is right, which none of these data contain, so `automix` is not "
    "judged here. Thresholds, and on panels the three models, are chosen for the largest gain on one half; intervals resample the questions of the other, and "
    "the mixture is chosen anew in each draw, which favours it."
)
ABANDONED = (
    "16,110 runs of agents on HotpotQA with a judge's probability of success after each step (e-valuator, MIT). To stop is to give up: a "
    "success that would have come is lost, and the steps that are left are saved. What the judge itself costs is not recorded, and not charged."
)

if __name__ == "__main__":
    main()
