"""Questions that begin again in a log: a loop that ran twice, and ids that name questions of two data sets."""

from __future__ import annotations

import json

import pytest

from suffice.errors import DataError, SufficeError
from suffice.importers import import_recording
from suffice.importers.tables import table_parts
from suffice.recordings import read_recording
from tests.support.cli_tools import cli
from tests.support.logs import asked, imported, offered

CITIES = ("Oslo", "Lima", "Rome", "Cairo", "Bern")
N, ROUNDS = 12, 3


def rows(shift=0, *, text="Where is tower {}?", n=N, **more):
    """Return the rows of a pass: answers are right after round `shift`; `text` makes its questions and gold answers."""
    far = len(text)
    return [
        {
            "id": q,
            "question": text.format(q),
            "gold": CITIES[(q + far) % 5],
            "answer": CITIES[(q + far + (r <= shift)) % 5],
            **more,
        }
        for q in range(n)
        for r in range(ROUNDS)
    ]


def write(path, *passes):
    path.write_text("".join(json.dumps(row) + "\n" for own in passes for row in own), encoding="utf-8")
    return path


def shape_of(source, **options):
    summary = imported(source, **options)
    return summary.clusters, summary.trajectories, summary.rounds


@pytest.mark.parametrize("n", [N, 2], ids=["all", "two"])
def test_a_loop_that_ran_again_is_two_runs_if_said(n, tmp_path):
    source = write(tmp_path / "log.jsonl", rows(), rows(1, n=n))
    told = cli("import", source, "-o", tmp_path / "log.parquet", "--yes", code=2)
    assert "--column run=id" in told.err
    assert cli("import", source, "-o", tmp_path / "log.parquet", "--yes", "--column", "run=id").code == 0
    recording = read_recording(tmp_path / "log.parquet")
    assert (recording.answers.shape, len({*recording.clusters})) == ((N + n, ROUNDS), N)
    assert shape_of(source, columns={"round": ""}) == (N, N, 2 * ROUNDS)


def test_a_large_log_that_was_appended_is_asked_about(tmp_path, monkeypatch):
    monkeypatch.setattr(table_parts, "LARGE", 0)
    monkeypatch.setattr(table_parts, "PART", 40)
    source = write(tmp_path / "log.jsonl", rows(), rows(1))
    assert set(offered(source)) == {"--column run=id", "--column round="}
    assert shape_of(source, columns={"run": "id"}) == (N, 2 * N, ROUNDS)


def test_rows_that_a_filter_leaves_out_do_not_part_runs(tmp_path):
    noted = [row for own in rows() for row in (own | {"kind": "answer"}, own | {"kind": "note", "answer": None})]
    source = write(tmp_path / "log.jsonl", noted, noted)
    assert shape_of(source, columns={"run": "id"}, where={"kind": "answer"}) == (N, 2 * N, ROUNDS)


def test_other_orders_of_rows_are_not_asked_about(tmp_path):
    by_round = sorted(enumerate(rows()), key=lambda item: (item[0] % ROUNDS, item[0]))
    assert shape_of(write(tmp_path / "by_round.jsonl", [row for _, row in by_round])) == (N, N, ROUNDS)
    at_once = [row for pair in zip(rows()[: 6 * ROUNDS], rows()[6 * ROUNDS :], strict=True) for row in pair]
    assert shape_of(write(tmp_path / "at_once.jsonl", at_once)) == (N, N, ROUNDS)
    models = [own | {"model": name} for name in ("small", "large") for own in rows()]
    assert shape_of(write(tmp_path / "models.jsonl", models)) == (N, 2 * N, ROUNDS)


def test_a_round_that_occurs_twice_offers_columns_of_runs(tmp_path):
    counted = [row | {"round": i % ROUNDS + 1} for i, row in enumerate(rows())]
    swept = [row | {"top_k": k} for row in counted for k in (1, 5)]
    source = write(tmp_path / "log.jsonl", swept)
    assert set(offered(source)) == {"--column run=top_k"}
    assert shape_of(source, columns={"run": "top_k"}) == (N, 2 * N, ROUNDS)


def test_depths_with_gaps_may_be_loops(tmp_path):
    source = write(tmp_path / "log.jsonl", [row | {"depth": 2 ** (i % ROUNDS)} for i, row in enumerate(rows())])
    assert set(offered(source)) == {"--column round=", "--column run=depth --column round="}
    assert shape_of(source, columns={"run": "depth", "round": ""}) == (N, N * ROUNDS, 1)


def test_gold_answers_are_not_offered_as_ids(tmp_path):
    golds = [{"number": q, "target": f"{CITIES[q % 5]} {q % 12}", "reply": f"{q}"} for q in range(120)]
    with pytest.raises(SufficeError) as caught:
        import_recording(write(tmp_path / "log.jsonl", golds), out=tmp_path / "log.parquet")
    assert "question_id=target" not in str(caught.value)


def nested(*passes):
    return [
        {**own[i], "steps": [{"answer": row["answer"]} for row in own[i : i + ROUNDS]]}
        for own in passes
        for i in range(0, len(own), ROUNDS)
    ]


TIMES = "What is {} times nine?"


@pytest.mark.parametrize(
    ("made", "options"),
    [
        (lambda: [*rows(), *rows(text=TIMES)], {"columns": {"run": "id"}}),
        (lambda: [*rows(), *rows(text=TIMES)], {"columns": {"round": ""}}),
        (lambda: [*rows(set="a"), *rows(text=TIMES, set="b")], {"columns": {"run": "set"}}),
        (lambda: nested(rows(), rows(text=TIMES)), {}),
    ],
    ids=["run", "one loop", "set", "lists"],
)
def test_two_questions_under_one_id_have_other_golds(made, options, tmp_path):
    rows_ = made()
    source = write(tmp_path / "log.jsonl", rows_)
    assert shape_of(source, **options) == (2 * N, 2 * N, ROUNDS)
    golds = {row["id"]: row["gold"] for row in rows_}
    source.with_suffix(".import.json").unlink()
    write(source, [{**row, "gold": golds[row["id"]]} for row in rows_])  # so that texts may be wordings
    found = asked(source, **options)
    assert set(found.choices) == {"--column question_id=question", "--column question="}
    columns = {**options.get("columns", {}), "question_id": "question"}
    assert shape_of(source, columns=columns) == (2 * N, 2 * N, ROUNDS)


def test_wordings_of_one_question_are_read_as_runs(tmp_path):
    wordings = rows(), rows(1, text="At what place, then, is tower {}?")
    for own in wordings[1]:
        own["gold"] = next(row["gold"] for row in wordings[0] if row["id"] == own["id"])
    source = write(tmp_path / "log.jsonl", nested(*wordings))
    assert shape_of(source, columns={"question": ""}) == (N, 2 * N, ROUNDS)


def test_sub_questions_of_rounds_are_one_question(tmp_path):
    parts = [row | {"question": f"Part {i % ROUNDS} of tower {row['id']}?"} for i, row in enumerate(rows())]
    assert shape_of(write(tmp_path / "log.jsonl", parts)) == (N, N, ROUNDS)


def test_runs_with_other_golds_name_several_questions(tmp_path):
    sets = [[{k: v for k, v in row.items() if k != "question"} for row in rows(text=text)] for text in ("{}?", TIMES)]
    assert sets[0][0]["gold"] != sets[1][0]["gold"]
    with pytest.raises(DataError, match="names several questions"):
        import_recording(write(tmp_path / "log.jsonl", *sets), out=tmp_path / "log.parquet", columns={"run": "id"})
