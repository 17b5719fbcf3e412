"""Logs that were once misread, from the file to the verdict: none of them may end in advice that its answers contradict."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from suffice.recordings import read_recording
from tests.support.cli_tools import Result, cli

LOGS = Path(__file__).resolve().parents[2] / "data" / "logs"
ASKED, REFUSED, SEVERAL = "asked, then ", "refused", "several loops"
LIKE_RESPONSE = "asked as for response"
OPEN, UNJUDGED, ADVISED = "not enough data", "cannot be judged", "do it"
OUTCOMES = {
    "agent_long.jsonl": UNJUDGED,
    "agent_success.jsonl": ASKED + UNJUDGED,
    "boolans.jsonl": OPEN,
    "calls.jsonl": OPEN,
    "cumulative.jsonl": OPEN,
    "decimals.jsonl": ADVISED,
    "depth": UNJUDGED,
    "dupids.jsonl": ASKED + OPEN,
    "dupids_same.jsonl": ASKED + OPEN,
    "final_only.jsonl": REFUSED,
    "floats.jsonl": ASKED + UNJUDGED,
    "gold_answer500.jsonl": ASKED + ADVISED,
    "gsm.jsonl": ADVISED,
    "hf_generated_text.jsonl": LIKE_RESPONSE,
    "hf_llm_answer.jsonl": LIKE_RESPONSE,
    "hf_model_output.jsonl": LIKE_RESPONSE,
    "hf_response.jsonl": ASKED + ADVISED,
    "idgap.jsonl": ASKED + OPEN,
    "listans.jsonl": OPEN,
    "lst_dict.jsonl": OPEN,
    "lst_intervals.jsonl": OPEN,
    "lst_plain.jsonl": OPEN,
    "lst_tuple.jsonl": OPEN,
    "messages.jsonl": OPEN,
    "messages_nested.jsonl": REFUSED,
    "mixed.jsonl": UNJUDGED,
    "models.jsonl": SEVERAL,
    "models_noround.jsonl": SEVERAL,
    "numbers.jsonl": OPEN,
    "reasoning.jsonl": REFUSED,
    "sysd": REFUSED,
}
"""What `decide` says after `import`, or after the first command that `import` prints where it asks."""

STABLE = {"answer_stable": 2, "stable_twice": 3}
"""How many equal answers in a row end a loop, by rule."""


def source_of(log: str, most: int = 1250) -> Path:
    """Return the path of a log or, for a long one, of a copy of its first rows, which are enough for the same advice."""
    path = LOGS / log
    rows = path.read_text("utf-8").splitlines(keepends=True) if path.is_file() else []
    if len(rows) <= most:
        return path
    Path(log).write_text("".join(rows[:most]), "utf-8")
    return Path(log)


def first_command(source: Path) -> tuple[Result, str]:
    """Import a log; return what is said, and the first command that the import prints where it asks, else ""."""
    done = cli("import", source, "-o", "log.parquet", "--yes")
    commands = re.findall(r"^ +suffice (.*)$", done.err, flags=re.MULTILINE)
    return done, commands[0] if done.code == 2 and commands else ""


def imported(log: str) -> tuple[bool, Result]:
    """Import a log; where the import asks, type the first command that it prints. Also return whether it asked."""
    done, command = first_command(source_of(log))
    return bool(command), cli(*shlex.split(command), code=0) if command else done


def outcome(log: str) -> tuple[str, str]:
    """Return what comes of a log, and the sentence of its advice."""
    asked, done = imported(log)
    if done.code:
        assert done.error
        return REFUSED, ""
    decided = cli("decide", "log.parquet", "--json")
    if decided.code:
        return SEVERAL if "--where" in decided.error else REFUSED, ""
    return ASKED * asked + decided.json["verdict"], decided.json["sentence"]


def answers_and_golds(log: str) -> list[tuple[list, object]]:
    """Return the answers of each question and its gold answer, read without the importer."""
    records = [json.loads(line) for line in source_of(log).read_text("utf-8").splitlines()]
    if "steps" in records[0]:
        return [([step["answer"] for step in record["steps"]], record["gold"]) for record in records]
    said = next(name for name in records[0] if name not in {"id", "question", "answer", "round"})
    questions: dict[int, tuple[list, object]] = {}
    for record in records:
        questions.setdefault(record["id"], ([], record["answer"]))[0].append(record[said])
    return [*questions.values()]


def test_every_log_is_listed():
    assert {path.name for path in LOGS.iterdir()} - {"DATA.md"} == OUTCOMES.keys()


@pytest.mark.parametrize("log", OUTCOMES)
def test_a_log_with_a_trap_ends_as_it_should(log, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if OUTCOMES[log] == LIKE_RESPONSE:  # what follows is the same as for `hf_response.jsonl`
        assert "--column golds=answer" in first_command(source_of(log, most=300))[1]
        return
    said, sentence = outcome(log)
    assert said == OUTCOMES[log]
    if said.endswith(ADVISED):
        assert_loses_nothing(sentence, answers_and_golds(log))


def assert_loses_nothing(advised: str, questions: list[tuple[list, object]]) -> None:
    """Stop by the advised rule by hand."""
    equal = STABLE[re.match(r"Stop by (\w+):", advised)[1]]
    change = saved = 0
    for answers, gold in questions:
        stops = [r for r in range(equal, len(answers)) if len(set(answers[r - equal : r])) == 1]
        stop = min([*stops, len(answers)])
        change += (answers[stop - 1] == gold) - (answers[-1] == gold)
        saved += len(answers) - stop
    assert change >= 0
    assert saved > 0.05 * sum(len(answers) for answers, _ in questions)


def test_files_of_numbered_rounds_are_read_in_the_order_of_their_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    imported("depth")
    recording = read_recording("log.parquet")
    rows = recording.table.select(["question_id", "round", "answer"]).to_pylist()
    for number in (2, 10, 12):
        lines = (LOGS / "depth" / f"round_{number}.jsonl").read_text("utf-8").splitlines()
        said = {str(record["id"]): record["answer"] for record in map(json.loads, lines)}
        assert {row["question_id"]: row["answer"] for row in rows if row["round"] == number} == said
