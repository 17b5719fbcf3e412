"""The machine-checked claims: each holds, and each can fail: a bug that is seeded into the code breaks it.

Bounds are smaller here than in `make prove`, which checks the same claims.
"""

from __future__ import annotations

import functools
import inspect
import operator
import textwrap
from pathlib import Path

import pytest
import z3
from hypothesis import Phase, settings
from proofs import rules, scores, sessions, solver, symbols
from proofs.__main__ import CLAIMS, main, table
from proofs.claims import Claim, Verdict, settle
from proofs.terms import agreement

from suffice.common.tables import render
from suffice.policy import metrics
from suffice.policy.rules import AllOf, FirstOf, KOf, Patience, Threshold, WeightedSum, algebra
from suffice.policy.rules.rule import Either
from suffice.policy.session import Policy, Session, Stops, derived, stopping
from suffice.policy.signals import Signal, semantic

pytestmark = pytest.mark.whole

PAGE = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "theory.md"
CHECKS = {claim.check.__name__: claim for claim in CLAIMS}


@pytest.fixture(autouse=True)
def _small_bounds(monkeypatch):
    for module, name, bound in (
        (rules, "MEMBERS", 3),
        (rules, "PATIENCE", 3),
        (rules, "TERMS", 1),
        (sessions, "ROUNDS", 5),
        (sessions, "PATTERNS", 4),
    ):
        assert bound <= getattr(module, name)
        monkeypatch.setattr(module, name, bound)
    # What it does with one weight it does with each: two show that marks are added, four take z3 ten times as long.
    monkeypatch.setattr(metrics, "EQUAL_WEIGHTS", dict([*metrics.EQUAL_WEIGHTS.items()][:2]))
    monkeypatch.setattr(rules, "INPUTS", 30_000)
    monkeypatch.setattr(rules, "agreement", functools.partial(agreement, n_rules=60))
    quick = settings(sessions.EXAMPLES, max_examples=25, phases=[Phase.generate])
    monkeypatch.setattr(sessions, "EXAMPLES", quick)
    monkeypatch.setattr(scores, "EXAMPLES", quick)


@pytest.mark.parametrize("claim", CLAIMS, ids=list(CHECKS))
def test_the_claim_holds(claim):
    assert settle(claim).failure is None


BUGS = [
    ("step_ends_the_loop_in_time", Session, "observe", "index == self.policy.max_rounds", "index > self.policy.max_rounds"),
    ("step_ends_the_loop_in_time", Session, "_accept", "observed.index != self.next_round", "observed.index < self.next_round"),
    ("whole_sessions_end_in_time", Session, "observe", "== self.policy.max_rounds", "== self.policy.max_rounds - 1"),
    ("replays_end_in_time", Policy, "view", "self.max_rounds + 1 - first", "self.max_rounds + 2 - first"),
    ("replays_end_in_time", stopping, "stop_positions", "view.seen[~fired].sum(axis=-1) - 1", "len(view) - 1"),
    ("nothing_raises", WeightedSum, "fires", 'with np.errstate(over="ignore", invalid="ignore"):', "if True:"),
    ("nothing_raises", derived, "_cumulated", "raw.seen & np.isfinite(total)", "raw.seen"),
    ("one_reason", Stops, "_other_reasons", '"max_rounds", ends[others]', '"max_rounds", "max_rounds"'),
    ("terms_agree", symbols.Column, "__getitem__", "mine(r + start)", "mine(r)"),
    ("terms_agree", symbols._Operand, "__ge__", "_AT_LEAST", "_GREATER"),
    ("total", Patience, "fires", "return np.zeros(inner.shape, dtype=np.bool_)", "raise IndexError(self.n)"),
    ("total", Patience, "fires", "inner[..., :-back]", "inner[..., :-1]"),
    ("total", Patience, "fires", "fires = inner.copy()", "while inner.shape[-1] > 0: fires = inner.copy()"),
    ("causal", Patience, "fires", "fires[..., back:] &= inner[..., :-back]", "fires[..., :-back] &= inner[..., back:]"),
    ("undefined", KOf, "fires", "votes >= self.k", "votes < self.k"),
    ("undefined", Threshold, "fires", "_COMPARISONS[self.comparison](", '~_COMPARISONS["<=" if ">" in self.comparison else ">="]('),
    ("and_not_earlier", AllOf, "fires", "fires & rule", "fires | rule"),
    ("or_not_later", Either, "fires", "self.rules[1:]", "self.rules[2:]"),
    ("threshold_not_earlier", KOf, "fires", "votes >= self.k", "votes == self.k"),
    ("threshold_not_earlier", WeightedSum, "fires", "(total, self.value)", "(self.value, total)"),
    ("patience_counts_rounds", Patience, "fires", "inner = self.rule.fires(rounds)", "inner = self.rule.fires(rounds); self = Patience(self.rule, max(self.n - 1, 1))"),
    ("patience_counts_rounds", Patience, "fires", "range(1, self.n)", "range(1, self.n - 1)"),
    ("k_of_counts_members", KOf, "fires", "votes >= self.k", "votes >= max(self.k - 1, 1)"),
    ("k_of_counts_members", KOf, "fires", "votes = votes + rule.fires(rounds)", "votes = votes | rule.fires(rounds)"),
    ("patience_not_earlier", Patience, "fires", "range(1, self.n)", "range(1, self.n % 3)"),
    ("k_not_earlier", KOf, "fires", "votes >= self.k", "votes == self.k"),
    ("score_in_range", metrics, "information_score", "return min(max(score, 0.0), 1.0)", "return score"),
    ("score_in_range", metrics, "information_score", "not 0 <= mark <= 1", "mark != mark"),
    ("score_in_range", metrics, "information_score", "weight >= 0 for", "weight >= -1 for"),
    ("score_in_range", metrics, "information_score", "<= _OFF_SIMPLEX", "<= 1"),
    ("distance_in_range", semantic, "_bounded_distance", "min(max(1.0 - dot / norms, 0.0), 2.0)", "1.0 - dot / norms"),
    ("distance_in_range", semantic, "_bounded_distance", "1.0 - dot / norms", "1.0 + dot / norms"),
    ("distance_of_embeddings", semantic, "semantic_distance", "return 1.0", "return 0.0"),
    ("signals_in_range", Signal, "clean", " and -math.inf < numeric < math.inf", ""),
    ("signals_in_range", Signal, "clean", "min(max(numeric, low), high)", "max(numeric, low)"),
]  # fmt: skip
"""For each claim what would break it: where, which words of the source, and what stands there instead."""


@pytest.mark.parametrize("seeded", BUGS, ids=lambda seeded: f"{seeded[0]}: {seeded[-1]}")
def test_a_seeded_bug_breaks_its_claim(monkeypatch, seeded):
    check, owner, name, words, bug = seeded
    function = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(words) == 1, "the code has changed: seed another bug"
    namespace = {}
    exec(compile("from __future__ import annotations\n" + source.replace(words, bug), "bug", "exec"), function.__globals__, namespace)  # fmt: skip
    monkeypatch.setattr(owner, name, namespace[name])
    assert settle(CHECKS[check]).failure


def test_a_cascade_that_is_no_or_breaks_its_claim(monkeypatch):
    monkeypatch.setattr(FirstOf, "fires", lambda self, rounds: self.rules[0].fires(rounds))
    assert "first_of 2 is not |" in settle(CHECKS["first_of_is_or"]).failure


def test_a_comparison_the_wrong_way_round_breaks_its_claim(monkeypatch):
    monkeypatch.setitem(algebra._COMPARISONS, ">", operator.lt)
    assert "a harder x > v stops earlier" in settle(CHECKS["threshold_not_earlier"]).failure


def test_a_kind_of_rule_without_a_proof_breaks_the_claims(monkeypatch):
    patient = [case for case in rules.operators() if isinstance(case.rule, Patience)]
    monkeypatch.setattr(rules, "operators", lambda: patient)
    assert settle(CHECKS["causal"]).failure == "no proof looks at AllOf, AnyOf, FirstOf, KOf"


def test_every_claim_has_a_seeded_bug():
    assert {bug[0] for bug in BUGS} | {"first_of_is_or"} == set(CHECKS)


def test_what_z3_cannot_decide_does_not_hold(monkeypatch):
    monkeypatch.setattr(solver, "EFFORT", 1)
    x, y, z = z3.Ints("x y z")
    with pytest.raises(solver.Refuted, match="not decided"):
        solver.refute(x * x * x + y * y * y != z * z * z + 42, x > 1, y > 1, z > 1, what="cubes")


def test_the_command_prints_the_table_and_fails_with_a_claim(capsys):
    def broken():
        raise solver.Refuted("a counterexample")

    good = Claim("one is one", "proved for all", "any one", lambda: None)
    bad = Claim("one is two", "tested", "no one", broken)
    assert main((good,)) == 0
    assert "| one is one | proved for all | any one | holds |" in capsys.readouterr().out
    assert main((good, bad)) == 1
    out, err = capsys.readouterr()
    assert "| one is two | tested | no one | FAILS |" in out
    assert "a counterexample" in err


def test_the_page_shows_the_table_that_the_command_prints():
    printed = render([table([Verdict(claim, None, 0.0) for claim in CLAIMS])], "md")
    assert printed in PAGE.read_text("utf-8")
