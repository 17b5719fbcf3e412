"""Lists of what a user and several agents say, and rows that may be samples: the import asks, or says so."""

from __future__ import annotations

import pytest

from suffice import import_recording, read_recording
from suffice.errors import SchemaError, UnsettledError
from tests.support.cli_tools import CITIES, cli
from tests.support.logs import asked, imported, offered, written


def team(q):
    said = [("user", f"Where is tower {q}?")]
    for r in range(3):
        said += [("solver", CITIES[(q + (r < 2 or q % 5 == 0)) % 4]), ("critic", f"Is it {q} or {r}?")]
    items = [{"source": source, "content": content} for source, content in said]
    return {"id": q, "expected": CITIES[q % 4], "messages": items}


def test_whose_texts_are_rounds_is_asked_and_answered(tmp_path):
    path = written(tmp_path / "team.jsonl", map(team, range(20)))
    refused = cli("import", path, "-o", tmp_path / "team.parquet", "--yes", code=2)
    cli(*refused.command("--where source=solver"), code=0)
    recording = read_recording(tmp_path / "team.parquet")
    assert recording.column("em").tolist() == [[0, 0, int(q % 5 > 0)] for q in range(20)]


def test_a_source_of_evidence_is_not_a_speaker(tmp_path):
    steps = [{"answer": CITIES[r], "source": ("user", "wiki")[r]} for r in range(2)]
    path = written(tmp_path, [{"id": q, "gold": "Rome", "steps": steps} for q in range(20)])
    assert imported(path).rounds == 2


def test_texts_that_nobody_calls_answers_are_asked_about(tmp_path):
    rows = [{"task_id": q, "solution": f"x + {q % 3 + r}", "thought": str((q, r))} for q in range(9) for r in range(3)]
    path = written(tmp_path, rows)
    assert offered(path, match="'solution' differs") == ["--column answer=solution", "--column answer="]
    said = imported(path, columns={"answer": "solution"})
    assert said.rounds == 3
    assert any("--samples" in note for note in said.notes)
    assert offered(path, columns={"answer": ""}, match="no round has") == [
        "--column answer=solution",
        "--expected no-answers",
    ]
    samples = imported(path, columns={"answer": "solution"}, samples=True)
    assert not any("follow one another" in note or "with --samples" in note for note in samples.notes)


def test_a_column_of_samples_is_asked_about(tmp_path):
    rows = [{"id": q, "sample_idx": r, "answer": CITIES[(q + r) % 4], "gold": "Oslo"} for q in range(9) for r in (1, 2)]
    path = written(tmp_path, rows)
    assert offered(path, match="'sample_idx'")[:2] == ["--samples", "--column round=sample_idx"]
    assert imported(path, samples=True).rounds == 2
    assert imported(path, columns={"round": "sample_idx"}).rounds == 2


@pytest.mark.parametrize("name", ["trial"])
def test_a_column_of_trials_may_count_samples(name, tmp_path):
    rows = [{"id": q, name: r, "answer": CITIES[(q + r) % 4], "gold": "Oslo"} for q in range(9) for r in (1, 2)]
    path = written(tmp_path, rows)
    notes = imported(path).notes
    assert any(name in note and "--samples" in note for note in notes)


def test_numbered_outputs_of_two_generators_are_two_runs(tmp_path):
    rows = [
        {"instruction": f"Do {q}.", "output_1": "a b", "generator_1": "old", "output_2": f"c {q}", "generator_2": "new"}
        for q in range(20)
    ]
    path = written(tmp_path, rows)
    summary = imported(path)
    assert (summary.clusters, summary.trajectories, summary.rounds) == (20, 40, 1)


def typed(path, option):
    """Type the command with an option that an import prints, and return the recording."""
    out = path.with_suffix(".parquet")
    refused = cli("import", path, "-o", out, "--yes", code=2)
    cli(*refused.command(option), code=0)
    return read_recording(out)


def test_the_last_item_of_another_kind_is_no_round(tmp_path):
    steps = [{"type": "attempt", "answer": CITIES[r]} for r in range(3)]
    steps.append({"type": "final", "answer": CITIES[1]})
    records = [{"id": q, "gold": CITIES[q % 3], "steps": steps} for q in range(20)]
    path = written(tmp_path, records)
    assert typed(path, "--where type=attempt").seen.sum(axis=1).tolist() == [3] * 20


def test_chosen_items_of_a_list_are_counted_anew(tmp_path):
    steps = [{"kind": kind, "answer": f"{kind} {r}"} for r in range(3) for kind in ("draft", "critique")]
    path = written(tmp_path, [{"id": q, "gold": "Rome", "steps": steps} for q in range(20)])
    assert typed(path, "--where kind=draft").answers.tolist() == [["draft 0", "draft 1", "draft 2"]] * 20


@pytest.mark.parametrize("name", ["samples", "candidates", "generations", "completions"])
def test_a_list_of_samples_is_asked_about_also_if_named(tmp_path, name):
    drawn = [{"id": q, "gold": "Rome", name: [CITIES[(q + r) % 3] for r in range(4)]} for q in range(20)]
    path = written(tmp_path, drawn)
    with pytest.raises(UnsettledError, match="independent samples"):
        imported(path, columns={"rounds": name})
    if name != "samples":
        return
    assert typed(path, "--samples").independent
    path.with_suffix(".import.json").unlink()
    assert not typed(path, "--expected sample-list").independent


def chat(questions):
    messages = []
    for text in questions:
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": "Oslo"}]
    return messages


def test_a_conversation_about_several_questions_is_refused(tmp_path):
    chats = [{"id": q, "messages": chat(f"Where is tower {q}-{r}?" for r in range(3))} for q in range(20)]
    path = written(tmp_path, chats)
    with pytest.raises(UnsettledError, match="nothing to stop"):
        import_recording(path)
    assert typed(path, "--column rounds=messages").seen.sum(axis=1).tolist() == [3] * 20
    again = ("Where is tower {}?", "Are you sure, {}?", "Look at page {} again.")
    chats = [{"id": q, "messages": chat(text.format(q) for text in again)} for q in range(20)]
    assert import_recording(written(path, chats), out=path.with_suffix(".parquet"), expected=[]).rounds == 3


def test_what_has_one_answer_a_question_has_nothing_to_stop(tmp_path):
    once = [{"input": f"Where is {q}?", "output": f"in {q}", "steps": [[{"tool": "a"}, "b"]]} for q in range(20)]
    with pytest.raises(SchemaError, match="nothing to stop"):
        import_recording(written(tmp_path / "once.jsonl", once))


def test_rows_of_a_kind_without_ids_can_be_left_out(tmp_path):
    rows = [{"type": "answer", "sample_id": q, "round": r, "answer": CITIES[r]} for q in range(20) for r in (1, 2)]
    path = written(tmp_path, [{"type": "spec"}, *rows])
    assert typed(path, "--where type=answer").seen.sum(axis=1).tolist() == [2] * 20
    of_no_kind = [{"spec": 1}, *({**row, "type": ""} for row in rows)]
    summary = import_recording(written(path, of_no_kind), out=tmp_path / "other.parquet")
    assert summary.clusters == 20
    assert "'sample_id' remain" in " ".join(summary.notes)


def team_chat(q, names, roles=("assistant", "user"), greeting=""):
    """Return a chat as the agent that began sees it: its own texts have the first role, those of others the second."""
    asker, *others = names
    said = [(asker, greeting or f"Where is tower {q}?")]
    for r in range(3):
        texts = (CITIES[(q + (r < 2 or q % 5 == 0)) % 4], f"Is it {q} or {r}?")
        said += [(others[i] if i < len(others) else asker, text) for i, text in enumerate(texts)]
    history = [{"content": text, "role": roles[name != asker], "name": name} for name, text in said]
    return {"task_id": f"t{q}", "expected_answer": CITIES[q % 4], "chat_result": {"chat_history": history}}


def test_who_began_a_chat_asks_whatever_the_roles(tmp_path):
    path = written(tmp_path / "chat.jsonl", (team_chat(q, ("user_proxy", "assistant")) for q in range(20)))
    imported(path)
    recording = read_recording(tmp_path / "chat.parquet")
    assert recording.column("em").tolist() == [[0, 0, int(q % 5 > 0)] for q in range(20)]
    assert recording.table.column("question")[0].as_py() == "Where is tower 0?"


def test_whose_texts_are_rounds_of_a_group_chat_is_asked(tmp_path):
    path = written(tmp_path / "chat.jsonl", (team_chat(q, ("Admin", "solver", "critic")) for q in range(20)))
    refused = cli("import", path, "-o", tmp_path / "chat.parquet", "--yes")
    cli(*refused.command("--where name=solver"), code=0)
    recording = read_recording(tmp_path / "chat.parquet")
    assert recording.column("em").tolist() == [[0, 0, int(q % 5 > 0)] for q in range(20)]


def test_a_greeting_of_the_assistant_is_no_question(tmp_path):
    records = [team_chat(q, ("bot", "human"), greeting="Hello!") for q in range(20)]
    path = written(tmp_path / "chat.jsonl", records)
    imported(path, expected=["never-right"])
    assert read_recording(tmp_path / "chat.parquet").table.column("question")[0].as_py() == CITIES[1]


def test_long_answers_never_right_by_short_golds_stop(tmp_path):
    rows = [
        {
            "id": q,
            "round": r,
            "answer": f"After search {r} of {q % 7} archives the tower of Rome was found there.",
            "gold": f"Rome, {'abcdefghijklmno'[q]} street",
        }
        for q in range(15)
        for r in (1, 2)
    ]
    assert "--answer-position" in asked(written(tmp_path, rows), match="answers equals 'gold'").question


@pytest.mark.parametrize("place", ["task", "record"])
def test_ids_of_messages_name_no_questions(place, tmp_path):
    records = []
    for q in range(20):
        record = team(q)
        messages = [{"id": f"m{q}-{i}", **item} for i, item in enumerate(record.pop("messages"))]
        own = record if place == "record" else {"task": record}
        records.append({**own, "messages": messages})
    path = written(tmp_path / "team.jsonl", records)
    for columns in ({}, {"round": ""}):
        imported(path, where={"source": "solver"}, columns=columns)
        recording = read_recording(tmp_path / "team.parquet")
        assert recording.column("em").tolist() == [[0, 0, int(q % 5 > 0)] for q in range(20)]
        assert recording.table.column("question_id").to_pylist()[::3] == [*map(str, range(20))]
