r"""Recorded debates on arithmetic: JSON, gzipped or not, with three agents that answer in three rounds.

A file is ``{question: [[[{"role": "user", "content": ...}, {"role": "assistant", "content": ...}, ...], ...], gold]}``,
with one list of messages for each agent, and a gold text that ends in a number, such as ``#### 52``.

There is one trajectory for each question and agent.  From round 2 on, an agent has read the last replies of the other
agents.  So if one agent stops after round r, its rounds are a prefix of the recorded run.  Agents of one question are
not independent, so trajectories are clustered by question.

Answers are numbers.  An answer is the content of the last ``\boxed{...}``.  Without a box, it is the text after
``####``, and without that, the last number of the reply.  Text in a box without a number is kept as it is.  `em` is
numeric equality.  `f1` equals `em`, since an answer is a single token.  Containment is meaningless for numbers ("12"
contains "1"), so it is undefined.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from suffice.common.files import decoded, unpacked
from suffice.errors import DataError, SchemaError
from suffice.importers import Head, ImportedRun, ImportedTrajectory, one_call, recognised_by
from suffice.loops.retrieval import text_id
from suffice.policy.rounds import Round
from suffice_papers.importing import existing, run_labels

_NUMBER_TEXT = re.compile(r"(?<![\w.])[-\u2212]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\d])|(?<![\w])[-\u2212]?\.\d+")
_FRACTION = re.compile(r"\\[dt]?frac\{\s*(-?\d+)\s*\}\{\s*(\d+)\s*\}")
_LATEX = re.compile(r"\\(?:text|mathrm|mathbf)\b|\\[$%!,;]|[{}$]")
_GOLD = re.compile(r"####\s*(\S.*?)\s*$")
_DEBATE_NAME = re.compile(r"(?P<dataset>[^_]+)_(?P<model>[^_]+)_persona_(?P<personas>.+)_agents\d+_rounds\d+$")
_CLOSE = 1e-6


def _is_debate(head: Head) -> bool:
    """Return whether a file is a debate: each key is a question, with messages and a gold answer as its value."""
    entry = next(iter(head.record.values()), None) if head.form in ("json", "jsonl") else None
    if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], list) and entry[0]):  # noqa: PLR2004
        return False
    messages = entry[0][0]
    return isinstance(messages, list) and bool(messages) and isinstance(messages[0], dict) and "role" in messages[0]


@recognised_by(_is_debate)
def read_debate(path: str | Path) -> ImportedRun:
    """Read one debate file, `.json` or `.json.gz`.

    Args:
        path: The file; data set, model and personas are read from a name like
            ``gsm_Qwen3-14B_persona_enigma-zen_agents3_rounds3.json.gz``.

    Raises:
        SchemaError: The file does not have this form.
        DataError: A question has no gold number, or an agent has no reply; the message names file and question.
    """
    path = existing(path, "the .json or .json.gz of a debate")
    labels = run_labels(_DEBATE_NAME, path.name.removesuffix(".gz").removesuffix(".json"))
    trajectories: list[ImportedTrajectory] = []
    for number, (question, entry) in enumerate(_load(path).items(), start=1):
        where = f"{path}, question {number}"
        agents, gold = _agents_and_gold(entry, where)
        for agent, messages in enumerate(agents, start=1):
            replies = _replies(messages, f"{where}, agent {agent}")
            trajectories.append(_agent_trajectory(question, gold, agent, replies, labels))
    if not trajectories:
        raise DataError(f"{path}: the file contains no question.")
    longest = max(len(item.rounds) for item in trajectories)
    for item in trajectories:
        if len(item.rounds) < longest:
            raise DataError(
                f"{path}: agent {item.labels['agent']} has {len(item.rounds)} replies to {item.question!r:.60}, others "
                f"have {longest}; a debate gives each agent every round."
            )
    rounds = [item for trajectory in trajectories for item in trajectory.rounds]
    unboxed = sum("\\boxed" not in item.text for item in rounds)
    silent = sum(item.answer is None for item in rounds)
    notes = [
        f"{len(trajectories)} agents in {len({item.cluster for item in trajectories})} debates; resample by cluster",
        f"{unboxed} of {len(rounds)} replies have no \\boxed answer: their last number was taken",
        f"{silent} replies have no answer at all",
        "em is numeric equality, f1 equals it, containment is undefined; tokens and seconds are not in the files",
    ]
    return ImportedRun(source="debate", trajectories=trajectories, notes=notes)


def numeric_answer(text: str) -> str | None:
    r"""Return the answer of a reply, as a plain number if it contains one; None if there is no answer.

    >>> numeric_answer(r"That gives \boxed{\$45,000.00}."), numeric_answer("So 3 * 4 = 12 boxes.")
    ('45000', '12')
    >>> numeric_answer(r"\boxed{52 WPM} after 2 lessons"), numeric_answer(r"\boxed{\frac{1}{2}}")
    ('52', '0.5')
    """
    boxed = _boxed(text)
    if boxed is None:
        marked = _GOLD.search(text)
        numerals = _numerals(marked.group(1) if marked else text)
        return _plain(numerals[-1]) if numerals else None
    tail = boxed.rsplit("=", 1)[-1]
    numerals = _numerals(tail)
    if not numerals:
        return " ".join(_LATEX.sub(" ", boxed).split()) or None
    # "30 * 3 = 90 boxes": the answer is the first number after the last equals sign.
    return _plain(numerals[0])


def _boxed(text: str) -> str | None:
    """Return the content of the last box, up to its closing brace or the end of the text."""
    at = text.rfind("\\boxed")
    if at < 0:
        return None
    rest = text[at + len("\\boxed") :].lstrip()
    if not rest.startswith("{"):
        return rest.split("\n", 1)[0]
    depth = 0
    for i, character in enumerate(rest):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[1:i]
    return rest[1:]


def _numerals(text: str) -> list[float]:
    def fraction(match: re.Match[str]) -> str:
        below = int(match.group(2))
        return f" {int(match.group(1)) / below!r} " if below else " "

    cleaned = _LATEX.sub(" ", _FRACTION.sub(fraction, text))
    return [float(match.group().replace(",", "").replace("\u2212", "-")) for match in _NUMBER_TEXT.finditer(cleaned)]


def _plain(value: float) -> str | None:
    if not math.isfinite(value):
        return None
    return str(int(value)) if value.is_integer() else repr(value)


def _same(answer: str | None, gold: float) -> float:
    try:
        return float(answer is not None and math.isclose(float(answer), gold, rel_tol=_CLOSE, abs_tol=_CLOSE))
    except ValueError:
        return 0.0


def _load(path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(decoded(b"".join(unpacked(path)), str(path)))
    except json.JSONDecodeError as error:
        raise SchemaError(f"{path}: not JSON ({error}).") from error
    if not isinstance(loaded, dict):
        raise SchemaError(f"{path}: expected an object of question -> [agents, gold], not {type(loaded).__name__}.")
    return loaded


def _agents_and_gold(entry: Any, where: str) -> tuple[list[Any], float]:
    if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], list) and entry[0]):  # noqa: PLR2004
        raise DataError(f"{where}: expected a pair of agents and gold text, not {entry!r:.80}.")
    marked = _GOLD.search(entry[1]) if isinstance(entry[1], str) else None
    numerals = _numerals(marked.group(1)) if marked else []
    if not numerals:
        raise DataError(f"{where}: the gold text is {entry[1]!r:.80}; expected one that ends in '#### <number>'.")
    return entry[0], numerals[-1]


def _replies(messages: Any, where: str) -> list[str]:
    if not isinstance(messages, list) or not all(isinstance(item, dict) for item in messages):
        raise DataError(f"{where}: expected a list of messages with role and content.")
    replies = [item.get("content") for item in messages if item.get("role") == "assistant"]
    if not replies or not all(isinstance(reply, str) for reply in replies):
        raise DataError(f"{where}: expected at least one reply of the assistant, each with a text.")
    return replies


def _agent_trajectory(
    question: str, gold: float, agent: int, replies: Sequence[str], labels: Mapping[str, str]
) -> ImportedTrajectory:
    cluster = text_id(question)
    answers = [numeric_answer(reply) for reply in replies]
    scores = [_same(answer, gold) for answer in answers]
    return ImportedTrajectory(
        question_id=f"{cluster}/agent{agent}",
        cluster=cluster,
        question=question,
        golds=(_plain(gold) or "",),
        rounds=tuple(
            Round(index=index, answer=answer, text=reply, costs={"generator": one_call()})
            for index, (answer, reply) in enumerate(zip(answers, replies, strict=True), start=1)
        ),
        end="max_rounds",
        metrics=tuple({"em": value, "f1": value, "contains": math.nan} for value in scores),
        labels={**labels, "agent": str(agent)},
    )
