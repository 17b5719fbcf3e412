"""The words of first screens: sentences, notes and cells without names of rules, metrics and options that nobody needs before a first decision."""

from __future__ import annotations

import re
from collections.abc import Collection

from suffice.common.tables import counted
from suffice.policy.normalizers import MATCH, short_title

_FIXED = re.compile(r"\bfixed_k\((\d+)\)")
_LOWERED = re.compile(r"\b([Ll])ower the cap(?: from (\d+))? to (\d+)")
_CAP = re.compile(r"\bfixed_k\((\d+)\)|\ba cap of (\d+)\b")
_PLAIN_RULES = {
    "answer_stable": "answer repeats",
    "stable_twice": "answer repeats twice",
    "similar": "answer hardly changes",
}
"""Rules that a first decision nearly always tries, in words."""

_LEAD = re.compile(r"lead\((\d+)\)")
_SENTENCES = (
    (
        re.compile(
            r"nothing that saved (.+) on tune questions seems to stay within (\S+ points?) of (.+?), and (\S+) questions? (?:do|does) not rule it out either"
        ),
        r"nothing tested that saves \1 lost less than \2 of \3 on these \4 questions, but they are too few to settle it",
    ),
    (
        re.compile(r"nothing that would save (.+) seems to stay within (\S+ points)"),
        r"nothing tested that would save \1 lost less than \2",
    ),
    (re.compile(r"\(selected here: (these questions also chose it)\)"), r"(\1)"),
    (re.compile(r" \(ended='rule'; exhausted or max_rounds for other reasons\)"), ""),
)
"""Sentences of an advice with terms that a first screen leaves to ``--details``, and what it says instead."""

_ENDED = re.compile(
    r"read as the loop's own stops, with what comes later unknown\. (.+?), and lost rows would look the same: --ended rule confirms it, "
    r"--ended exhausted or --ended max_rounds gives another reason; until then `suffice decide` assumes the worst of their missing rounds"
)
"""The end of the note on trajectories that end early for a reason that is not known."""


def in_plain_words(text: str, metric: str, others: Collection[str] = ()) -> str:
    """Write a sentence of an advice without names of rules and metrics, and without brackets of intervals.

    Args:
        text: The sentence.
        metric: The metric by which the decision judges.
        others: Names of other columns, one of which may be a score.

    >>> in_plain_words("to stop by answer_stable would change f1 by +5.6 [-10.6, +25.9] points", "f1")
    'to stop once the answer repeats would change the score by +5.6 (-10.6 to +25.9) points'
    >>> in_plain_words("it changes f1 by +1.0 points (selected here: these questions also chose it)", "f1", ["score"])
    'it changes the score (F1) by +1.0 points (these questions also chose it)'
    """
    for pattern, words in _SENTENCES:
        text = pattern.sub(words, text)
    text = limited(text)
    for name, words in _PLAIN_RULES.items():
        text = re.sub(rf"([Ss])top by {name}\b", rf"\1top once the {words}", text)
    text = plain_rules(text)
    score = "share of right answers" if metric == MATCH else short_title(metric, others)
    if score != metric:
        text = re.sub(rf"\b(change|changes|of) {metric}\b", rf"\1 the {score}", text)
    return in_range(text.replace(" on tune questions", " on the questions that chose what to try"))


def plain_note(text: str) -> str:
    """Write a note of an import in fewer words, if a newcomer meets it often.

    >>> plain_note("'cost' is not counted: if each row has its own dollars, --column spend=cost:each; else prices of tokens say what is paid")
    "'cost' is not counted: if each row has its own dollars, --column spend=cost:each"
    """
    if (match := _ENDED.search(text)) is not None:
        may_say = f" {match[1]}." if "may say why" in match[1] else ""
        return (
            f"{text[: match.start()].rstrip(': ')}, for a reason that the log does not give.{may_say} If the loop stopped there by itself, --ended rule says so "
            "(--ended exhausted or --ended max_rounds: other reasons); until then `suffice decide` assumes the worst of what is missing"
        )
    return re.sub(r"(is not counted: .+); else prices of tokens say what is paid.*", r"\1", text)


def plain_cell(text: str) -> str:
    """Write a cell in words; how many more questions a proof takes is in the sentence.

    >>> plain_cell("stable_twice"), plain_cell("not proved yet, about 1,300 more"), plain_cell("loses more")
    ('stop once the answer repeats twice', 'not enough data', 'loses too much')
    """
    if text in _PLAIN_RULES:
        return f"stop once the {_PLAIN_RULES[text]}"
    if lead := _LEAD.fullmatch(text):
        return f"stop when one answer leads by {lead[1]}"
    if text.startswith(("not proved yet", "waits for ")):
        return "not enough data"
    return {"loses more": "loses too much", "closed_book": "never retrieve"}.get(text) or plain_rules(text)


def plain_rules(text: str) -> str:
    """Write rules in words wherever they are named alone, if the name is no English word.

    >>> plain_rules("stable_twice"), plain_rules("waits for stable_twice"), plain_rules("answer_stable >= 1")
    ('answer repeats twice', 'waits for answer repeats twice', 'answer_stable >= 1')
    """
    for name, words in _PLAIN_RULES.items():
        if "_" in name:
            text = re.sub(rf"(?<![\w'\"`=]){name}(?![\w'\"`]| [<>=])", words, text)
    return text


def in_range(text: str) -> str:
    """Write intervals in words.

    >>> in_range("+5.6 [-10.6, +25.9]")
    '+5.6 (-10.6 to +25.9)'
    """
    return re.sub(r"\[([-+][\d.]+), ([-+][\d.]+)\]", r"(\1 to \2)", text)


def limited(text: str) -> str:
    """Say how many rounds a loop may take, not what its cap is.

    >>> limited("Lower the cap from 5 to 2"), limited("to lower the cap to 3"), limited("fixed_k(2) waits for a cap of 2")
    ('Allow at most 2 rounds instead of 5', 'to allow at most 3 rounds', 'a limit of 2 rounds waits for a limit of 2 rounds')
    """

    def allowed(match: re.Match[str]) -> str:
        instead = f" instead of {match[2]}" if match[2] else ""
        return f"{'A' if match[1] == 'L' else 'a'}llow at most {counted(int(match[3]), 'round')}{instead}"

    text = _CAP.sub(
        lambda match: f"a limit of {counted(int(match[1] or match[2]), 'round')}", _LOWERED.sub(allowed, text)
    )
    return re.sub(r"\bcaps of (\d+ and \d+)\b", r"limits of \1 rounds", text)


def limit(text: str, noun: str) -> str:
    """Write a cell that is a fixed number of rounds, or what the loop does now, in words.

    >>> [limit(text, "round") for text in ("fixed_k(1)", "now: cap 5", "now", "waits for fixed_k(2)")]
    ['at most 1 round', 'keep 5 rounds', 'keep what you have', 'waits for a limit of 2 rounds']
    """
    if fixed := _FIXED.fullmatch(text):
        return f"at most {counted(int(fixed[1]), noun)}"
    what, _, have = text.partition(": ")
    kept = re.sub(r"^cap (\d+)$", lambda cap: counted(int(cap[1]), noun), have)
    return f"keep {kept or 'what you have'}" if what == "now" else limited(text)
