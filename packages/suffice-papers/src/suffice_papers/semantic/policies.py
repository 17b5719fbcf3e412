"""The policies of the protocol, replayed on the same drafts: the cascade, its ablations, and all baselines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from suffice.evaluation.replay import policy_for
from suffice.evaluation.replay.baselines import Run, fixed_budget, oracle_best, run_policy
from suffice.evaluation.replay.random_twins import random_stop
from suffice.policy.rounds import Floats
from suffice.policy.rules import FirstOf, Rule
from suffice.policy.rules.named import semantic_full
from suffice.policy.session import Policy
from suffice_papers.semantic.data import Drafts
from suffice_papers.semantic.tuning import Tuned

MEMBERS: Mapping[str, str] = MappingProxyType(
    {"critic": "critic_approved", "convergence": "semantic_distance", "gain": "information_gain"}
)
"""The members of the cascade in its order, with the signal that each reads."""

CELLS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "cascade": ("critic", "convergence", "gain"),
        "no_critic": ("convergence", "gain"),
        "no_convergence": ("critic", "gain"),
        "no_gain": ("critic", "convergence"),
        "critic_only": ("critic",),
        "judge_free": ("convergence",),
        "gain_only": ("gain",),
    }
)
"""The seven ablations: every non-empty set of members; `max_rounds` is never switched off."""

MAIN = ("judge_free", "cascade", "critic_only")
"""The policies of Table 1; the others appear in the ablations only."""

_NEVER = {"critic": "the critic never approves", "convergence": "no drafts converge", "gain": "the score always rises"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The replays of every policy on the same drafts.

    Attributes:
        drafts: The drafts.
        tuned: The parameters of convergence.
        runs: Runs by label: fixed budgets from `fixed_k(1)` to the full width, the cells whose signals were recorded,
            random stopping, and the oracle.
        policies: The policies of the cells, by label.
        silent: Members of the cascade that were recorded but never fire on these drafts, with the reason.
        missing: Members of the cascade whose signal was not recorded.
        rounds: Number of rounds of each question, by label, shape ``(n_questions,)``; for random stopping, the expected
            number.
        gold: Members of the cascade whose signal reads the gold answer; a policy with such a member is an oracle.
        tokens: The kind of tokens that are counted: `tokens`, or `output_tokens` if only output tokens are known
            everywhere; the cost of prompts is then missing.
    """

    drafts: Drafts
    tuned: Tuned
    runs: Mapping[str, Run]
    policies: Mapping[str, Policy]
    silent: Mapping[str, str]
    missing: tuple[str, ...]
    gold: tuple[str, ...]
    rounds: Mapping[str, Floats]
    tokens: str

    @property
    def tokens_name(self) -> str:
        """The name of the counted tokens in tables."""
        return self.tokens.replace("_", " ")

    @property
    def baseline(self) -> str:
        """The label of the full width, with which every policy is compared."""
        return f"fixed_k({self.drafts.highest})"

    def named(self, label: str) -> str:
        """Return a label; if the policy has parameters of convergence, the label with these parameters."""
        has_parameters = "convergence" in CELLS.get(label, ())
        return f"{label} (eps {self.tuned.eps:g}, {self.tuned.patience})" if has_parameters else label

    def marked(self, label: str) -> str:
        """Return the result of `named`, with a mark added if the policy reads the gold answer."""
        reads_gold = set(CELLS.get(label, ())) & set(self.gold)
        return self.named(label) + (" (oracle: reads gold)" if reads_gold else "")

    def shown(self) -> list[str]:
        """Return the labels of Table 1: the fixed budgets first, then the policies, random stopping and the oracle."""
        kinds = {label: run.kind for label, run in self.runs.items()}
        fixed = [label for label, kind in kinds.items() if kind == "fixed"]
        others = [label for label, kind in kinds.items() if kind in ("random", "oracle")]
        return [*fixed, *(label for label in MAIN if label in kinds), *others]

    def spent(self, label: str) -> Floats:
        """Return the counted operational tokens of each question, shape ``(n_questions,)``; NaN where unknown."""
        return self.runs[label].ledger.total(self.tokens)

    def equal_by_construction(self, label: str) -> list[str]:
        """Return the other policies with necessarily the same stops, because they differ only in members that never fire.

        Their costs may differ: a critic or a judge is paid even if it never stops the loop.
        """
        members = self._members_that_fire(label)
        equal = [other for other in self.policies if other != label and self._members_that_fire(other) == members]
        return equal if members else [*equal, self.baseline]

    def same_stops(self, label: str) -> list[str]:
        """Return the other cells that stop at the same rounds on these drafts, but not by construction."""
        excluded = {label, *self.equal_by_construction(label)}
        others = [other for other in self.policies if other not in excluded]
        return [other for other in others if np.array_equal(self.rounds[other], self.rounds[label])]

    def _members_that_fire(self, label: str) -> frozenset[str]:
        return frozenset(CELLS[label]) - frozenset(self.silent)


def rule_of(members: Sequence[str], tuned: Tuned) -> Rule:
    """Build the cascade that consists of the given members, in the usual order of the cascade."""
    cascade = semantic_full(tuned.eps, tuned.patience)
    assert isinstance(cascade, FirstOf)
    rules = dict(zip(MEMBERS, cascade.rules, strict=True))
    chosen = tuple(rules[name] for name in MEMBERS if name in members)
    return chosen[0] if len(chosen) == 1 else FirstOf(chosen)


def policies_of(drafts: Drafts, tuned: Tuned) -> tuple[dict[str, Policy], tuple[str, ...]]:
    """Return, by label, the policies of cells whose members were all recorded; also return the unrecorded members."""
    recorded = drafts.prepared.rounds(MEMBERS.values()).columns
    missing = tuple(
        name for name, column in MEMBERS.items() if column not in recorded or np.isnan(recorded[column]).all()
    )
    provenance = {**tuned.seen.to_dict(), "selected": tuned.how} if tuned.seen else {}
    policies = {
        label: policy_for(drafts.prepared.recording, rule_of(members, tuned), name=label, provenance=provenance)
        for label, members in CELLS.items()
        if not set(members) & set(missing)
    }
    return policies, missing


def replay_all(drafts: Drafts, tuned: Tuned) -> Replayed:
    """Replay every policy, ablation and baseline exactly, on the same drafts and without a call of a model.

    The baselines are:

    - every fixed_k;
    - the stops of each main policy, permuted over the questions (exact expectation);
    - a round drawn uniformly (exact expectation; the published random policy consists of three such draws);
    - the oracle of the best round.
    """
    prepared = drafts.prepared
    policies, missing = policies_of(drafts, tuned)
    runs = {f"fixed_k({k})": fixed_budget(prepared, k) for k in range(1, drafts.highest + 1)}
    twins = {}
    silent = {}
    for label, policy in policies.items():
        runs[label], stopped = run_policy(prepared, policy)
        if label in MAIN:
            twin = random_stop(prepared, policy, stopped)
            twins[twin.label] = twin
        if len(CELLS[label]) == 1 and not (policy.rule.fires(stopped.view) & stopped.view.seen).any():
            silent[CELLS[label][0]] = _NEVER[CELLS[label][0]]
    runs |= twins
    runs["random_round"] = _uniform(runs, drafts)
    runs["oracle_best"] = oracle_best(prepared, prepared.metrics[drafts.metric], name=drafts.metric)
    rounds = dict(zip(runs, _rounds(runs.values()), strict=True))
    known = {kind: _known_everywhere(runs, kind) for kind in ("tokens", "output_tokens")}
    tokens = "output_tokens" if known["output_tokens"] and not known["tokens"] else "tokens"
    oracles = prepared.recording.metadata.get("oracles") or ()
    return Replayed(
        drafts=drafts,
        tuned=tuned,
        runs=runs,
        policies=policies,
        silent=silent,
        missing=missing,
        gold=tuple(name for name, signal in MEMBERS.items() if signal in oracles),
        rounds=rounds,
        tokens=tokens,
    )


def _known_everywhere(runs: Mapping[str, Run], kind: str) -> bool:
    return not any(np.isnan(run.ledger.total(kind)).any() for run in runs.values())


def _uniform(runs: Mapping[str, Run], drafts: Drafts) -> Run:
    """Return the expected results of stopping each question at a uniformly drawn round."""
    fixed = [run for run in runs.values() if run.kind == "fixed"]
    weight = 1 / len(fixed)
    uniform = {drafts.metric: np.mean([run.values[drafts.metric] for run in fixed], axis=0)}
    ledger = fixed[0].ledger.scaled(weight)
    for run in fixed[1:]:
        ledger = ledger.plus(run.ledger.scaled(weight))
    return replace(
        fixed[-1],
        label="random_round",
        kind="random",
        worst=uniform,
        best=uniform,
        ledger=ledger,
        stop_rounds=dict.fromkeys(range(1, len(fixed) + 1), weight),
        reasons={},
        policy=None,
        rounds=_rounds(fixed).mean(axis=0),
    )


def _rounds(runs: Iterable[Run]) -> Floats:
    """Return the number of rounds of each question in each run, shape ``(n_runs, n_questions)``.

    For random stops it is the expected number.
    """
    return np.array([run.rounds for run in runs], dtype=np.float64)
