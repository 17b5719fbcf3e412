"""Published rules by name, among them TASR (sections 3.4 and 5, and variants of its repository) and Semantic Early-Stopping."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from suffice.errors import DataError, RuleSyntaxError
from suffice.policy.rules.algebra import FirstOf, KOf, Patience, Threshold, Times, signal
from suffice.policy.rules.published import automix, deer, dynasor, frugalgpt, lynx, thought_calibrated, token_budget
from suffice.policy.rules.rule import Rule

WINDOWS = range(2, 11)
"""The sizes of windows of early-stopping self-consistency, each with a signal of its own."""

DSC_WINDOW = 4
"""Answers of a window of difficulty-adaptive self-consistency, as in its authors' code."""

TASR_THRESHOLD = 0.25
"""The locked threshold of `p_correct`: the knee of a sweep over .20-.35 (TASR section 3.4)."""


SIMILAR_THRESHOLD = 0.8
"""Of .30, .35, ... 1, the highest that ends most trajectories of two models' drafts early (docs/results/similar-drafts.md)."""


BGE_EPS = 0.06
"""The published floor of `semantic_distance`: for embeddings by bge-small-en-v1.5, and for no other embedder."""

BGE_PATIENCE = 2
"""Number of consecutive rounds in which the distance must be below it."""


def answer_stable() -> Rule:
    """Return the rule that stops when the normalised answer repeats (TASR's AS)."""
    return signal("answer_stable") >= 1


def margin(threshold: float = TASR_THRESHOLD) -> Rule:
    """Return the rule that stops when the calibrated margin passes `threshold` (a probability)."""
    return signal("p_correct") > threshold


def tasr(threshold: float = TASR_THRESHOLD) -> Rule:
    """Return TASR's rule AS_m25: the answer repeats and its calibrated margin exceeds `threshold` (section 3.4, eq. 1).

    The paper's walk-through, HotpotQA question 5a77e70f (gold answer: The Tempest), stops at round 3:

    >>> from suffice import Policy, Round, Session
    >>> session = Session(Policy(rule=tasr()))
    >>> rounds = [("Titus Andronicus", 0.30), ("The Tempest", 0.81), ("The Tempest", 0.80)]
    >>> for r, (answer, p_correct) in enumerate(rounds, start=1):
    ...     decision = session.observe(Round(index=r, answer=answer, signals={"p_correct": p_correct}))
    ...     print(r, decision.stop, decision.answer)
    1 False None
    2 False None
    3 True The Tempest
    >>> decision.stop_round, decision.reason, decision.fired
    (3, 'rule', '(answer_stable >= 1) & (p_correct > 0.25)')
    """
    return answer_stable() & margin(threshold)


def converged(eps: float = BGE_EPS, rounds: int = BGE_PATIENCE) -> Rule:
    """Return the rule that needs no judge: stop once consecutive drafts are closer than `eps` for `rounds` revisions in a row.

    The default `eps` is for bge-small-en-v1.5. Each embedder has its own scale of distances, so tune `eps` on development
    questions. A draft that is empty or has no embedding does not count as converged.

    >>> print(converged())
    patience((semantic_distance < 0.06), 2)

    Args:
        eps: The threshold of the distance, in [0, 2].
        rounds: Number of consecutive rounds, at least 1.
    """
    whole = int(rounds) if float(rounds).is_integer() else rounds
    return Patience(signal("semantic_distance") < eps, whole)


def similar(threshold: float = SIMILAR_THRESHOLD) -> Rule:
    """Return the rule that stops when a draft nearly repeats the previous one's words: token F1 >= `threshold`.

    Use it for paragraphs, which never repeat exactly, if there are no embeddings. The default was chosen on tune drafts
    of two models. On the remaining drafts of these models, a fixed budget of two rounds is better than this rule
    (docs/results/similar-drafts.md).

    >>> print(similar())
    answer_f1_previous >= 0.8
    """
    return signal("answer_f1_previous") >= threshold


def sufficient_context(threshold: float | None = None) -> Rule:
    """Return the rule that stops when a judge finds the passages sufficient to answer (Joren et al., 2025).

    >>> print(sufficient_context(0.5))
    (context_sufficient >= 1) & (p_correct > 0.5)

    Args:
        threshold: A probability that the calibrated confidence must exceed in addition; None = no condition on confidence.
            The paper combines sufficiency and confidence in a logistic regression that decides to answer or to abstain.
    """
    enough = signal("context_sufficient") >= 1
    return enough if threshold is None else enough & margin(threshold)


def critic_only() -> Rule:
    """Return the rule that stops when the critic approves of a revised draft."""
    return signal("critic_approved") >= 1


_OSCILLATES = 0.95
"""LoopGain's bound of a ratio of errors from which a loop oscillates or diverges."""


def checked(rounds: float) -> Rule:
    """Return the rule that stops when a check reports no more errors, or at round `rounds`.

    >>> print(checked(3))
    (check_error <= 0) | (round >= 3)
    """
    return (signal("check_error") <= 0) | (signal("round") >= rounds)


def loopgain(target: float | None = None) -> Rule:
    """Return LoopGain's rule: stop when the target error is reached or errors no longer fall.

    This is version 0.1, which LoopGain's benchmark uses. After the stop, LoopGain's program returns the best round, like
    the selector `min_check_error`.

    >>> print(loopgain(0.5))
    (check_error <= 0.5) | (error_gain >= 0.95)

    Args:
        target: The largest error that is good enough; None = no target, the default of version 0.1.
    """
    falls = signal("error_gain") >= _OSCILLATES
    return falls if target is None else (signal("check_error") <= target) | falls


def semantic_full(eps: float = BGE_EPS, rounds: int = BGE_PATIENCE) -> Rule:
    """Return the published cascade: the critic approves, or the drafts converged, or the judge's score did not rise.

    The first member that fires is the reported reason, and the judge is asked only if no other member fires. The last
    member of the paper's cascade (Semantic Early-Stopping) is a cap on the rounds; here this is `Policy.max_rounds`.

    >>> print(semantic_full())
    first_of((critic_approved >= 1), (patience((semantic_distance < 0.06), 2)), (information_gain <= 0))
    """
    return FirstOf((critic_only(), converged(eps, rounds), signal("information_gain") <= 0))


def fixed_k(k: float) -> Rule:
    """Return the rule that stops at round `k`; a shorter trajectory ends at its last round."""
    return Threshold("round", ">=", k)


def adaptive_rag() -> Rule:
    """Return Adaptive-RAG's rule: retrieve never, once, or in all rounds, by the class of the question (Jeong et al., 2024).

    The class is known only at round 0. So a question of the class with one retrieval stops by a rule that must fire twice
    in a row: at round 0 because of the class, and at round 1 because of the round.

    >>> print(adaptive_rag())
    (complexity < 1) | (patience(((complexity < 2) | ((round >= 1) & (round < 2))), 2))
    """
    at_round_1 = (signal("round") >= 1) & (signal("round") < 2)
    return (signal("complexity") < 1) | Patience((signal("complexity") < 2) | at_round_1, 2)


def adaptive_consistency(confidence: float = 0.95) -> Rule:
    """Return Adaptive-Consistency's rule: the leading answer beats the runner-up with a given posterior probability.

    The rule uses the Beta posterior, the default of the authors' code (Aggarwal et al., 2023, section 3). For the Dirichlet
    posterior, use the rule ``posterior_plurality >= 0.95``.
    """
    return signal("posterior_majority") >= confidence


def esc(window: float) -> Rule:
    """Return the rule of early-stopping self-consistency: stop if all answers in a window are the same (Li et al., 2024).

    Windows do not overlap.  The paper samples a whole window at once.  The authors' program returns the answer on which
    the window agrees, and so does the selector ``esc(window)``. In most cases `majority_of_samples` returns the same
    answer.

    >>> print(esc(5))
    window_agreement_5 >= 1

    Args:
        window: Number of answers in a window, 2 to 10.
    """
    if window not in WINDOWS:
        raise RuleSyntaxError(
            f"a window of esc has {WINDOWS[0]} to {WINDOWS[-1]} answers, a whole number, not {window!r}"
        )
    return signal(f"window_agreement_{int(window)}") >= 1


def dsc(confidence: float = 0.95) -> Rule:
    """Return the rule of difficulty-adaptive self-consistency (DSC, Wang et al., 2025): take one sample of an easy question.

    Other questions first get the number of samples in the signal `allocated`, and then further windows of four, until
    the leading answer beats the runner-up as in `adaptive_consistency`. The lead is also checked after the first four
    samples. `allocated` is fitted on tune questions (`suffice calibrate`). In the paper, the one sample of an easy
    question is decoded greedily; here it is the first sample.
    """
    begun = (signal("round") <= DSC_WINDOW) | (signal("round") - signal("allocated") >= 0)
    decided = (signal(f"window_end_{DSC_WINDOW}") >= 1) & adaptive_consistency(confidence)
    return (signal("allocated") <= 1) | (decided & begun)


def rasc(threshold: float = 0.5, buffer: float = 5) -> Rule:
    """Return the rule of reasoning-aware self-consistency: stop once `buffer` samples score at least `threshold` (Wan et al., 2024).

    The score of a sample's reasoning, `rationale_score`, is fitted on tune questions (`suffice calibrate`).  The
    authors let only samples that score at least `threshold` vote, weighted by their scores; the selector
    ``rasc(threshold)`` does the same.

    >>> print(rasc())
    times((rationale_score >= 0.5), 5)

    Args:
        threshold: The smallest score, a probability; the authors try .3, .5 and .7.
        buffer: Number of samples that must reach the threshold, at least 1; the authors try 3 and 5.
    """
    return Times(signal("rationale_score") >= threshold, int(buffer) if float(buffer).is_integer() else buffer)  # type: ignore[arg-type]


def lead(votes: float) -> Rule:
    """Return the rule that stops when the leading answer is `votes` votes ahead of the runner-up.

    This is Wald's sequential test between two answers. `error_of_lead` computes the error rate from the accuracy of a
    single sample. If this accuracy is unknown, use `ppr`, which bounds the error.
    """
    return signal("vote_lead") >= votes


def error_of_lead(votes: float, p: float) -> float:
    """Return the error rate of a vote between two answers that stops at a lead of `votes`.

    If samples are unlimited, the error rate is ``(q/p)**votes / (1 + (q/p)**votes)`` with q = 1 - p (gambler's ruin).

    >>> [round(error_of_lead(k, 0.7), 3) for k in (1, 2, 3, 4)]
    [0.3, 0.155, 0.073, 0.033]

    Args:
        votes: The lead, a whole number of at least 1.
        p: The probability that a sample gives the right answer, in (0, 1).

    Raises:
        DataError: The lead or the probability is out of range.
    """
    if not (votes >= 1 and float(votes).is_integer() and 0 < p < 1):
        raise DataError(
            f"a lead of {votes!r} votes at a probability of {p!r}; allowed: a whole lead of at least 1, and a probability "
            "between 0 and 1, both excluded"
        )
    q = 1 - p
    if p < q:
        return float(1 / (1 + (p / q) ** votes))
    ruin = float((q / p) ** votes)  # at most 1, while its inverse might overflow
    return ruin / (1 + ruin)


def ppr(answers: float = 2, delta: float = 0.05) -> Rule:
    """Return the rule PPR-1v1: stop once the leading answer is shown to be the model's most likely one (Jain et al., 2022).

    After every sample, a prior-posterior ratio tests the leading answer against the runner-up at level ``delta /
    (answers - 1)``.  With unlimited samples, at most a share `delta` of questions end with an answer that is not the
    model's most likely one, whatever the probabilities.  The most likely answer may still be wrong.

    >>> print(ppr(5, 0.1))
    vote_evidence >= 3.6888794541139363

    Args:
        answers: Number of possible answers, 5 for the letters A to E.  For open answers, use the largest number of
            samples plus one, since no more answers can appear than samples.
        delta: The largest share of questions that end with an answer which is not the model's most likely one, in (0, 1).
    """
    if not (answers >= 2 and float(answers).is_integer() and 0 < delta < 1):
        raise RuleSyntaxError(
            f"ppr({answers!r}, {delta!r}): it takes how many answers are possible, a whole number of at least 2, and an error between "
            "0 and 1, both excluded"
        )
    return signal("vote_evidence") >= math.log((answers - 1) / delta)


def settled(max_rounds: float) -> Rule:
    """Return the rule that stops once the remaining samples, up to `max_rounds`, cannot change the leading answer."""
    return signal("vote_lead") + signal("round") > max_rounds


def round_aware(threshold: float = 0.8) -> Rule:
    """Return TASR with an early stop at round 1 when `p_correct` exceeds `threshold`.

    The paper describes this variant (section 3.4) but gives no threshold; 0.8 is this library's choice.
    """
    return ((signal("round") <= 1) & margin(threshold)) | tasr()


def _not_abstained(rule: Rule) -> Rule:
    return rule & (signal("abstained") < 1)


def _two_of_four() -> Rule:
    return KOf(2, (answer_stable(), margin(0.6), signal("overlap") > 0.15, signal("calibrated_confidence") > 0.7))


def _overlapping_or_entailed() -> Rule:
    return answer_stable() & ((signal("overlap") >= 0.15) | (signal("judge_entailment") >= 4))


@dataclass(frozen=True, slots=True)
class NamedRule:
    """A rule that can be written by its name.

    Attributes:
        build: A function that builds the rule from its numbers.
        arity: The numbers of arguments that the rule may have: ``(0, 1)`` = none or one.
        doc: One line for listings.
    """

    build: Callable[..., Any]
    arity: tuple[int, ...]
    doc: str


NAMED_RULES: Mapping[str, NamedRule] = {
    "tasr": NamedRule(tasr, (0, 1), "answer repeats and p_correct > 0.25 (AS_m25)"),
    "tasr_guarded": NamedRule(lambda: _not_abstained(tasr()), (0,), "tasr, but never on a refusal to answer"),
    "tasr_m20": NamedRule(lambda: tasr(0.20), (0,), "tasr with the floor at 0.20 (AS_m20)"),
    "answer_stable": NamedRule(answer_stable, (0,), "answer repeats (AS)"),
    "answer_stable_guarded": NamedRule(lambda: _not_abstained(answer_stable()), (0,), "AS, but never on a refusal"),
    "margin": NamedRule(margin, (0, 1), "p_correct > 0.25 alone"),
    "fixed_k": NamedRule(fixed_k, (1,), "stop at round k"),
    "round_aware": NamedRule(round_aware, (0, 1), "tasr, or p_correct > 0.8 at round 1"),
    "margin_or_overlap": NamedRule(
        lambda: margin(0.725) | (signal("overlap") > 0.15), (0,), "p_correct > .725 or overlap > .15 (famA)"
    ),
    "famA_m20": NamedRule(
        lambda: margin(0.725) | ((signal("overlap") > 0.15) & margin(0.20)),
        (0,),
        "the same, where overlap counts with p_correct > .20 alone",
    ),
    "famB": NamedRule(
        lambda: (signal("calibrated_confidence") > 0.6) | margin(0.675) | (signal("overlap") > 0.15),
        (0,),
        "calibrated confidence > .60, or p_correct > .675, or overlap > .15",
    ),
    "two_of_four": NamedRule(_two_of_four, (0,), "two of: stable, p_correct, overlap, calibrated confidence (C2of4)"),
    "soft_sum": NamedRule(
        lambda: signal("answer_stable") + signal("p_correct") + signal("overlap") > 1.5,
        (0,),
        "stable + p_correct + overlap > 1.5 (D_soft15)",
    ),
    "stable_and_overlap": NamedRule(
        lambda: answer_stable() & (signal("overlap") >= 0.15),
        (0,),
        "guardrail: stable and the evidence repeats (AS_ov)",
    ),
    "stable_and_entailed": NamedRule(
        lambda: answer_stable() & (signal("judge_entailment") >= 4),
        (0,),
        "guardrail: stable and a judge agrees (AS_en)",
    ),
    "sufficient_context": NamedRule(
        sufficient_context, (0, 1), "a judge finds the passages sufficient, and p_correct > x where x is given"
    ),
    "AS_ov_or_en": NamedRule(_overlapping_or_entailed, (0,), "guardrail: stable, and one of the two"),
    "semantic": NamedRule(converged, (1, 2), "the drafts' distance stays below eps for 2 rounds, or as many as given"),
    "semantic_bge": NamedRule(converged, (0,), "the same with eps = 0.06, published for bge-small-en-v1.5"),
    "semantic_full": NamedRule(
        semantic_full, (1, 2), "critic approves, or semantic(eps), or the judge's score is not up"
    ),
    "semantic_full_bge": NamedRule(semantic_full, (0,), "the same with eps = 0.06, published for bge-small-en-v1.5"),
    "similar": NamedRule(similar, (0, 1), "the draft has nearly the words of the one before: token F1 >= 0.8"),
    "lead": NamedRule(
        lead,
        (1,),
        "votes: the leading answer is x votes ahead of the runner-up; of two answers, of which a sample gives the right one with "
        "probability p, it returns the other with 1 / (1 + (p / (1 - p))^x)",
    ),
    "ppr": NamedRule(
        ppr,
        (0, 1, 2),
        "votes: the leading answer is the most likely one of 2, or as many as given, but for an error of 0.05, or as given",
    ),
    "settled": NamedRule(settled, (1,), "votes: what is left of x samples cannot change the leading answer"),
    "adaptive_consistency": NamedRule(
        adaptive_consistency, (0, 1), "votes: the leading answer wins with posterior probability 0.95"
    ),
    "dsc": NamedRule(
        dsc,
        (0, 1),
        "votes: one answer of an easy question, else as many as similar ones needed, and then fours until one leads with 0.95",
    ),
    "esc": NamedRule(esc, (1,), "votes: all answers of a window of x are the same"),
    "token_budget": NamedRule(token_budget, (1,), "thinking: stop at the first checkpoint with x tokens"),
    "dynasor": NamedRule(
        dynasor, (0, 1), "thinking: 3 trial answers in a row, or as many as given, are the same without hesitation"
    ),
    "deer": NamedRule(deer, (0, 1), "thinking: the trial answer's tokens have a geometric mean probability above 0.95"),
    "thought_calibrated": NamedRule(
        thought_calibrated,
        (0, 1),
        "thinking: the trial answer is right with a calibrated probability of 0.9, or as given",
    ),
    "lynx": NamedRule(
        lynx, (0, 1), "thinking: a probe on the states finds the trial answer right with more than 0.9, or as given"
    ),
    "rasc": NamedRule(
        rasc, (0, 1, 2), "votes: 5 samples, or as many as given second, have reasoning with a score of 0.5, or as given"
    ),
    "checked": NamedRule(checked, (1,), "a check finds nothing more, or round x"),
    "loopgain": NamedRule(loopgain, (0, 1), "LoopGain: errors no longer fall, or are down to x"),
    "frugalgpt": NamedRule(
        frugalgpt, (1, 2), "escalation: a scorer's mark of the answer exceeds x, of later attempts what is given second"
    ),
    "automix": NamedRule(
        automix, (0, 1), "escalation: half of the model's verifications, or as many as given, approve"
    ),
    "critic_only": NamedRule(critic_only, (0,), "the critic approves"),
    "adaptive_rag": NamedRule(
        adaptive_rag, (0,), "a classifier's class of the question: retrieve never, once, or always"
    ),
    "stable_twice": NamedRule(lambda: Patience(answer_stable(), 2), (0,), "the answer repeats twice in a row"),
}
"""The rules that text may call by name, with the numbers that they take."""

_UNSPELLED = 7  # a number that every rule accepts, and that is in no rule's text otherwise


def spelled(name: str) -> str:
    """Return the text of a named rule for listings; `x` stands for a required number.

    >>> spelled("critic_only"), spelled("fixed_k")
    ('critic_approved >= 1', 'fixed_k(x): round >= x')
    """
    entry = NAMED_RULES[name]
    if 0 in entry.arity:
        return str(entry.build())
    return f"{name}(x): {entry.build(_UNSPELLED)}".replace(str(_UNSPELLED), "x")
