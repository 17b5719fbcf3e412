"""Random policies and trajectories for the law between this library and packages/suffice-js."""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

from playwright._impl._driver import compute_driver_executable

from suffice import Cost, Policy, Round, Session
from suffice.errors import SufficeError
from suffice.policy.rules import NAMED_RULES
from suffice.policy.signals import CUMULATED, SIGNALS
from suffice.policy.signals.votes import VOTES

COMPUTED = {
    *("answer_stable", "answer_f1_previous", "answer_length", "abstained", "since_change", "checks_green_since_change"),
    *("error_gain", "information_score", "information_gain", "context_tokens", "draft_tokens"),
}
"""Signals that the TypeScript package computes besides those of votes; others must be given."""

NORMALIZERS = ("qa", "qa", "qa", "exact", "number", "percent", "boolean", "letter")
WORDS = (
    "The Tempest",
    "the tempest.",
    "Tempest!",
    "THE  TEMPEST",
    "Titus Andronicus",
    "titus",
    "a",
    "The The",
    "the the.",
    "yes",
    "No.",
)
ODD = (
    None, "", "  ", "\x1c", "\u3000", "...", "Ωmega ΟΔΟΣ", "ωmega οδος", "İstanbul", "i\u0307stanbul", "naïve a\u0301 b", "日本 the 東京", "the\u00a0sea",
    "a_the_b", "١٢", "\ufeff", "straße", "STRASSE", "ﬁn", "a-the-cat", "😀 the 😀", "\u0131", "e\u0301 an", "\x85the\x85cat", "\u200bthe",
    "unknown", "I don\u2019t know.", "not mentioned in the text", "The Unknown Soldier", "the provided text does not say", "n/a", "[None]",
)  # fmt: skip
NUMBERS = (
    "18", "18.0", "$1,200", "1200", "-5", "minus 5", "5", "5 %", "5.5kg", "1/2", "½", "1 1/2", "3e2", "300", "2 x 10^3", "x = 7", "x = 1, y = 2",
    "1.5 million", "$2k", "2k", "2m USD", "9 - 4", "9^9", "1.234,5", "about 18", "٣", "\uff11\uff18", "12:30", "> 5", "\\boxed{5}", "5\\%", "\u22125", "5 dozen",
    "66M", "1e400", "7.", ".5", "0.50", "F-16", "5 K", "3 \u017fecs", "\U0001d7dd", "$\\frac{1}{2}$", "18 dollars, so 18.0", "1/0", "a=b=3", "5!", "1_000", "1'000",
)  # fmt: skip
CHOICES = (
    "A",
    "(b)",
    "b",
    "B) Paris",
    "A and C",
    "(A), (C)",
    "c.",
    "[D]",
    "D: it",
    "a) x, b) y",
    "É",
    "true",
    "Yes, it is",
    "false!",
    "no",
    "FALSE.",
    "nope",
    "*Yes*",
)
TEXTS = (*WORDS, *WORDS, *ODD)
GRID = (0.0, 0.25, 0.5, 0.75, 1.0, 2.0, 3.0, 0.1, 0.3, 0.06, 0.95)
VALUES = (*GRID, *GRID, None, -1.0, 5.0, 31.0, 1e308, 1 + 1e-7, -1e-7, 1e-300, True)
SCALARS = (
    *("answer_stable", "answer_f1_previous", "abstained", "answer_length", "p_correct", "answer_margin", "verbal_confidence", "calibrated_confidence"),
    *("overlap", "top_score", "top_score_z", "spend", "check_error", "error_gain", "since_change", "checks_green_since_change", "information_score"),
    *("information_gain", "context_tokens", "draft_tokens", "critic_approved", "semantic_distance", "my_quality", "p_known", "complexity", "round"),
    *("calls", "tokens", "seconds", "thinking_tokens", "trial_hesitates", "judge_entailment", "allocated", "difficulty", "check_passed", "rationale_score"),
    *sorted(VOTES - {"posterior_plurality"}),
)  # fmt: skip
SELECTORS = (
    *("last", "last", "first", "majority", "weighted_majority", "max_p_correct", "min_my_quality", "median_my_quality", "median_answer_length"),
    *("majority_of_samples", "majority_of_samples(7)", "weighted_majority_of_samples", "weighted_majority_of_samples(my_quality, 3)", "esc(2)"),
    *("esc(3, 5)", "rasc", "rasc(0.3, 2)", "centroid", "longest_run(answer_stable >= 1)", "longest_run(answer_stable)", "max_check_error"),
    "ranked(p_correct=(1.25, 0.31), votes=(0.4, 0.0), is_last=(0.1, 0), sum_my_quality=(-0.3, 0.2), best_my_quality=(0.2, -1.0), is_first=(0.05, 0))",
    "ranked(votes=(1.0, 0.0))",
)  # fmt: skip


def node() -> str:
    """Return the path of node: that on the PATH, or the one that playwright brings."""
    return shutil.which("node") or compute_driver_executable()[0]


def decided_by_node(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Decide cases in one process of node."""
    text = json.dumps(cases, allow_nan=False)
    runner = Path(__file__).with_name("decide.mjs")
    done = subprocess.run(
        [node(), str(runner)], input=text, capture_output=True, check=False, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def decided_here(case: dict[str, Any]) -> dict[str, Any]:
    """Decide a case with this library, as `decide.mjs` does."""
    try:
        policy = Policy.from_dict(case["policy"])
    except SufficeError as error:
        return {"refused": type(error).__name__}
    session = Session(policy, missing=case["missing"])
    errors = []
    for item in case["rounds"]:
        signals = {name: math.nan if value is None else value for name, value in item["signals"].items()}
        costs = {
            component: Cost(**{kind: math.nan if value is None else value for kind, value in cost.items()})
            for component, cost in item["costs"].items()
        }
        try:
            session.observe(Round(index=item["index"], answer=item["answer"], signals=signals, costs=costs))
        except SufficeError as error:
            errors.append([item["index"], type(error).__name__])
        if session.decision is not None or session.next_round != item["index"] + 1:
            break
    decision = session.decision or session.end("exhausted")
    told = {"rule": str(policy.rule), "selector": str(policy.selector)}
    return {"refused": None, "errors": errors, "decision": decision.to_dict(), **told}


def a_rule(rng: random.Random, depth: int = 2) -> str:
    """Return the text of a random rule."""
    kind = rng.randrange(9) if depth else 0
    inner = [f"({a_rule(rng, depth - 1)})" for _ in range(rng.randint(2, 3))] if kind > 2 else []
    number = rng.choice((*GRID, -0.25, 4.0, 1e-5, 1.5))
    if kind <= 1:
        return f"{rng.choice(SCALARS)} {rng.choice(('>', '>=', '<', '<='))} {number!r}"
    if kind == 2:
        terms = " + ".join(
            f"{rng.choice((1.0, 2.0, -1.0, 0.5, 0.0))} * {rng.choice(SCALARS)}" for _ in range(rng.randint(1, 3))
        )
        return f"{terms} {rng.choice(('>', '<='))} {number!r}"
    joined = {
        3: " & ".join(inner),
        4: " | ".join(inner),
        5: f"first_of({', '.join(inner)})",
        6: f"k_of({rng.randint(1, len(inner) or 1)}, {', '.join(inner)})",
        7: f"patience({(inner or ['x'])[0]}, {rng.randint(1, 3)})",
        8: f"times({(inner or ['x'])[0]}, {rng.randint(1, 3)})",
    }
    return joined[kind]


def named_texts() -> list[str]:
    """Return every named rule with every number of arguments that the TypeScript package can write out."""
    return [
        f"{name}({', '.join(['3', '2'][:n])})" if n else name
        for name, entry in NAMED_RULES.items()
        for n in entry.arity
        if n == 0 or name not in ("ppr", "dynasor", "deer", "lynx", "thought_calibrated", "automix")
    ]


def _a_calibrator(rng: random.Random, output: str, signal: str) -> dict[str, Any]:
    per_round = rng.random() < 0.7

    def a_map() -> dict[str, Any]:
        kind = rng.randrange(3)
        if kind == 0:
            return {"map": "constant", "value": rng.choice((0.0, 0.25, 0.4, 1.0))}
        if kind == 1:
            return {"map": "sigmoid", "slope": rng.choice((0.5, 2.0)), "intercept": rng.choice((-1.0, 0.3))}
        n = rng.randint(2, 5)
        return {
            "map": "piecewise_linear",
            "x": sorted(rng.sample(range(-2, 12), n)),
            "y": sorted(rng.random() for _ in range(n)),
        }

    rounds = rng.sample(range(1, 6), rng.randint(2, 5)) if per_round else [-1]
    return {
        "output": output,
        "signal": signal,
        "method": "isotonic",
        "per_round": per_round,
        "unseen_round": rng.choice(("error", "nearest", "nearest")),
        "target": "em",
        "maps": {str(r): a_map() for r in rounds},
        "rounds_fitted": {str(r): 9 for r in rounds},
    }


def _a_state(rng: random.Random) -> dict[str, Any]:
    each = {
        "top_score_z": {"type": "zscore", "center": 0.5, "scale": rng.choice((0.0, 0.25, 2.0))},
        "allocated": {
            "type": "allocation",
            "difficulties": [0.1, 0.5, 0.5, 2.0],
            "sizes": [4, 4, 8, 8, 12],
            "easy": rng.choice((None, 0.25)),
        },
        "rationale_score": {
            "type": "rationale",
            "weights": {"answer_length": 0.5, "vote_joins": 1.0, "my_quality": -0.5},
            "intercept": -0.5,
        },
        "overlap": {"type": "idf", "n": 3, "df": {"the": 2}},
    }
    return {name: state for name, state in each.items() if rng.random() < 0.5}


def a_policy(rng: random.Random, rule: str) -> dict[str, Any]:
    """Return the values of a random policy file with a rule."""
    calibrators = [
        _a_calibrator(rng, *pair)
        for pair in (("p_correct", "answer_margin"), ("calibrated_confidence", "verbal_confidence"))
        if rng.random() < 0.6
    ]
    policy = Policy(
        rule=rule,
        selector=rng.choice(SELECTORS),
        start_round=int(rng.random() < 0.8),
        max_rounds=rng.randint(1, 7),
        normalizer=rng.choice(NORMALIZERS),
        abstain_patterns=rng.choice((None, None, (), ("unknown", "the *", "* tempest", "a * b"))),
    )
    return {**policy.to_dict(), "rule": rule, "calibrators": calibrators, "state": _a_state(rng)}


def a_trajectory(rng: random.Random, data: dict[str, Any]) -> dict[str, Any]:
    """Return a case: the policy, the signals that are given, and random rounds."""
    policy = Policy.from_dict(data)
    idf = {name for name, state in data["state"].items() if state["type"] == "idf"}
    raw = [*policy.raw_signals, *(name for name in policy.raw_signals if name not in SIGNALS)]
    given = [n for n in policy.raw_signals if n in SIGNALS and ((SIGNALS[n].compute and n not in COMPUTED) or n in idf)]
    pools = {"number": NUMBERS, "percent": NUMBERS, "boolean": CHOICES, "letter": CHOICES}
    pool = (*pools.get(data.get("normalizer", "qa"), TEXTS), *(rng.choices(ODD, k=4)))
    few = rng.sample(pool, rng.choice((2, 3, 8)))
    steady = rng.random() < 0.7
    rounds = []
    for place in range(rng.randint(1, 8)):
        signals = {
            name: rng.choice(VALUES) for name in raw if name in given or rng.random() < (0.97 if steady else 0.6)
        }
        if rng.random() < 0.3:
            signals |= {
                name: rng.choice(VALUES)
                for name in (
                    "faithfulness",
                    "answer_relevancy",
                    "context_precision",
                    "context_recall",
                    "check_error",
                    "check_passed",
                )
            }
        if rng.random() < 0.1:  # which a policy computes whatever a host says
            signals |= {"calls": 1.0, "round": 9.0, "vote_lead": 2.0}
        if rng.random() < 0.8:
            signals = {name: value for name, value in signals.items() if name not in COMPUTED or name in given}
        costs = {}
        for component in ("generator", "writer", "critic", "judge:x"):
            if rng.random() < 0.5:
                kinds = ("calls", *CUMULATED["tokens"], "seconds")
                costs[component] = {
                    kind: rng.choice((1.0, 7.0, 0.5, None if rng.random() < 0.2 else 2.0))
                    for kind in kinds
                    if rng.random() < 0.9
                }
        rounds.append(
            {"index": data["start_round"] + place, "answer": rng.choice(few), "signals": signals, "costs": costs}
        )
    return {"policy": data, "given": given, "missing": rng.choice(("error", "ignore")), "rounds": rounds}
