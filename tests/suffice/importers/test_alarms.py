"""What an import shows of its reading, and the alarms that test it: each fires on a trap, and not on its correct twin."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import suffice
from suffice.errors import DataError, UnsettledError
from suffice.importers import import_recording
from suffice.importers.alarms import ALARMS, find_alarms
from suffice.importers.checks.alarm import Read
from suffice.importers.checks.reading import Reading
from suffice.importers.rounds.preview import cut
from suffice.recordings import read_recording
from suffice.recordings.bundled import BUNDLED_STEPS
from tests.support.cli_tools import cli

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data"
CITIES = ("Oslo", "Lima", "Rome", "Cairo", "Bern")


def log(path, n=40, rounds=3, **columns):
    """Write a log that is read right; a column is a function of question and round, or None to leave it out."""
    usual = {
        "question_id": lambda q, r: f"q{q}",
        "round": lambda q, r: r,
        "question": lambda q, r: f"Where is tower {q}?",
        "answer": lambda q, r: CITIES[(q + (r < 2 and q % 2)) % 5],
        "gold": lambda q, r: CITIES[(q + (q % 3 == 0)) % 5],
    }
    chosen = {name: make for name, make in (usual | columns).items() if make is not None}
    lines = [{name: make(q, r) for name, make in chosen.items()} for q in range(n) for r in range(1, rounds + 1)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def stopped(source, **options):
    with pytest.raises(UnsettledError) as caught:
        import_recording(source, out=source.with_suffix(".parquet"), **options)
    assert not source.with_suffix(".parquet").exists()
    return caught.value


def imported(source, **options):
    return import_recording(source, out=source.with_suffix(".parquet"), **options)


def alarms_in(facts, source, columns=None, options=None):
    return find_alarms(Read(facts=facts, source=source, columns=columns or {}, options=options or {}))


def cautions(source, **options):
    return [alarm.name for alarm in imported(source, **options).alarms]


def test_rounds_without_an_answer_in_any_question_stop_the_import(tmp_path):
    def step(q, r):
        return CITIES[(q + r) % 5] if r % 2 == 0 else None

    kinds = {"kind": lambda q, r: "search" if r % 2 else "write", "query": lambda q, r: f"tower {q}" if r % 2 else None}
    source = log(tmp_path / "steps.jsonl", rounds=6, answer=step, **kinds)
    found = stopped(source, columns={"round": ""})
    assert "3 rounds (1, 3, 5) of 6" in str(found)
    assert set(found.choices) == {"--where kind=write", "--expected empty-rounds"}
    chosen = imported(source, columns={"round": ""}, where={"kind": "write"})
    assert [(item.round, item.n, item.answered) for item in chosen.by_round] == [
        (1, 40, 1.0),
        (2, 40, 1.0),
        (3, 40, 1.0),
    ]
    assert "empty-rounds" not in [alarm.name for alarm in chosen.alarms]
    expected = imported(source, columns={"round": ""}, expected=["empty-rounds", "other-speakers"])
    assert [item.answered for item in expected.by_round] == [0, 1, 0, 1, 0, 1]


def test_a_round_that_some_question_answers_is_a_round(tmp_path):
    source = log(tmp_path / "log.jsonl", answer=lambda q, r: None if r == 1 and q else CITIES[(q + r) % 5])
    assert [item.answered for item in imported(source).by_round] == [1 / 40, 1.0, 1.0]


def test_a_column_that_equals_many_answers_may_be_the_gold_answer(tmp_path):
    def truth(q, r):
        return CITIES[(q + (q % 3 == 0)) % 5]

    source = log(tmp_path / "log.jsonl", gold=None, true_city=truth, country=lambda q, r: f"C{q % 7}")
    found = stopped(source)
    assert set(found.choices) == {"--column golds=true_city", "--expected unread-golds"}
    by_gold = imported(source, columns={"golds": "true_city"})
    assert by_gold.by_round[2].em == pytest.approx(26 / 40)
    for options in ({"expected": ["unread-golds"]}, {"columns": {"golds": ""}}):
        assert imported(source, **options).by_round[2].scored == 0


def test_lists_in_cells_may_be_gold_answers(tmp_path):
    several = lambda q, r: f"['{CITIES[(q + (q % 3 == 0)) % 5]}', 'the capital {q}']"  # noqa: E731
    assert "--column golds=truths" in stopped(log(tmp_path / "log.jsonl", gold=None, truths=several)).choices


def test_what_the_loop_returned_is_not_taken_for_a_gold_answer(tmp_path):
    last = lambda q, r: CITIES[q % 5]  # noqa: E731
    assert cautions(log(tmp_path / "log.jsonl", gold=None, returned=last)) == []


@pytest.mark.parametrize("error", [True, False])
def test_scores_that_fall_far_stop_the_import(error, tmp_path):
    source = log(tmp_path / "log.jsonl", gold=None, score=lambda q, r: float((r == 1) == error if q % 2 else error))
    if not error:
        assert "falling-scores" not in cautions(source)
        return
    found = stopped(source)
    assert "score falls from 100.0 in the first round to 50.0" in str(found)
    assert imported(source, expected=["falling-scores"]).by_round[0].scores == {"score": 1.0}


def test_a_round_that_copies_the_one_before_everywhere_is_noted(tmp_path):
    source = log(tmp_path / "log.jsonl", n=100, answer=lambda q, r: CITIES[(q + (r < 2 and q % 2)) % 5])
    (alarm,) = imported(source).alarms
    assert (alarm.name, alarm.level) == ("copied-rounds", "caution")
    assert "1 round (3) of 3" in alarm.sentence
    kept = log(tmp_path / "kept.jsonl", n=101, answer=lambda q, r: CITIES[(q + (r < 2 and q % 2) + (q == r == 3)) % 5])
    assert cautions(kept) == []


WORDINGS = (
    "I would say {}, or so.",
    "In {}, as far as I know.",
    "{} is what I found.",
    "Let us take {} then.",
    "Hm: {}?",
)


def sentence(city: str, q: int, r: int) -> str:
    """Return a reply in one of several wordings, so that no position in it is that of the answer."""
    return WORDINGS[(q + r) % len(WORDINGS)].format(city)


TRAPS = {
    "empty-answers": (
        {"answer": lambda q, r: "Oslo" if q % 4 == 0 else None},
        {"answer": lambda q, r: "Oslo" if q % 4 or r > 1 else None},
    ),
    "drafts": (
        {"answer": lambda q, r: f"draft {q} {r}", "gold": None},
        {"answer": lambda q, r: f"draft {q} {min(r, 2)}", "gold": None},
    ),
    "missing-values": (
        {"answer": lambda q, r: None if q % 10 == 0 else CITIES[(q + (r < 2)) % 5]},
        {"answer": lambda q, r: None if q == r == 1 else CITIES[(q + (r < 2)) % 5]},
    ),
    "other-systems": ({"model": lambda q, r: f"model {r}"}, {"model": lambda q, r: "model"}),
    "same-score": ({"score": lambda q, r: 0.5}, {"score": lambda q, r: 0.5 if q else 1}),
    "never-right": ({"gold": lambda q, r: f"Place {q}"}, {"gold": lambda q, r: f"Place {q}" if q else "Oslo"}),
    "options": (
        {"answer": lambda q, r: CITIES[(q + r) % 5], "gold": lambda q, r: CITIES[(q + 1 + q % 3) % 5]},
        {"answer": lambda q, r: CITIES[(q + max(r, 2)) % 5], "gold": lambda q, r: CITIES[(q + 1 + q % 3) % 5]},
    ),
    "last-is-gold": ({"gold": lambda q, r: CITIES[q % 5]}, {"gold": lambda q, r: CITIES[(q + (q % 3 == 0)) % 5]}),
    "unread-golds": (
        {"gold": None, "true_city": lambda q, r: CITIES[(q + (q % 3 == 0)) % 5]},
        {
            "gold": None,
            "ended_with": lambda q, r: CITIES[q % 5],
            "answer": lambda q, r: CITIES[(q + (r < 3 and q % 2)) % 5],
        },
    ),
    "other-speakers": (
        {"node": lambda q, r: "critic" if r == 2 else "writer"},
        {"node": lambda q, r: "writer" if r == 1 else "reviser"},
    ),
}


def test_a_few_questions_raise_no_alarm(tmp_path):
    assert alarms_of(equal_answers(1, n=20)) == []
    assert alarms_of({**equal_answers(0), "model": [f"m{i * (i < 2)}" for i in range(20)]}) == []
    places = equal_answers(0)
    scored = {**places, "score": pa.array([0.5] * 20), "blank": pa.array([float("nan")] * 20)}
    fields = [pa.field(name, pa.float64(), metadata={"kind": "metric"}) for name in ("score", "blank")]
    part = table(places)
    for field in fields:
        part = part.append_column(field, scored[field.name])
    reading = Reading("qa")
    reading.add(part)
    assert alarms_in(reading.facts, "tabular") == []
    with pytest.raises(RuntimeError):
        Reading("qa").preview  # noqa: B018


def test_what_few_rounds_or_questions_have_is_noted(tmp_path):
    source = log(tmp_path / "log.jsonl", score=lambda q, r: q % 2 if r == 3 else None)
    assert "80 of 120 rounds lack score" in imported(source).alarms[0].sentence
    source = log(tmp_path / "golds.jsonl", gold=lambda q, r: CITIES[(q + r // 3) % 5] if q % 2 else None)
    with pytest.raises(DataError, match="other gold answers"):
        imported(source)
    source = log(tmp_path / "golds.jsonl", gold=lambda q, r: "Bern" if q % 2 else None)
    assert "20 of 40 trajectories lack gold answers" in imported(source).alarms[0].sentence


def test_a_loop_that_the_gold_answer_stopped_is_noted(tmp_path):
    def write(wrong_go_on):
        rows = []
        for q in range(40):
            n = 1 + q % 3
            rows += [
                {"id": q, "round": r, "answer": CITIES[(q + r) % 5], "correct": int(r == n and (q != 3 or wrong_go_on))}
                for r in range(1, n + 1)
            ]
        path = tmp_path / "log.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    assert "stopped-when-right" in cautions(write(wrong_go_on=True))
    assert "stopped-when-right" not in cautions(write(wrong_go_on=False))


def test_a_text_that_a_score_agrees_with_is_no_unread_gold(tmp_path):
    scored = {
        "gold": None,
        "solution": lambda q, r: CITIES[(q + (q % 3 == 0)) % 5],
        "correct": lambda q, r: int((q + (q % 3 == 0)) % 5 == (q + (r < 2 and q % 2)) % 5),
    }
    assert "unread-golds" not in cautions(log(tmp_path / "scored.jsonl", **scored))
    del scored["correct"]
    assert "--column golds=solution" in stopped(log(tmp_path / "log.jsonl", **scored)).choices


def test_calls_of_a_trace_with_other_names_are_noted():
    ids, names = [f"q{i // 4}" for i in range(80)], ["writer", "critic"] * 40
    reading = Reading("qa")
    columns = {"question_id": ids, "round": pa.array([1, 2, 3, 4] * 20, pa.int16()), "answer": ids, "span_name": names}
    reading.add(pa.table({"golds": [["Paris"]] * 80, "cluster": ids, **columns}))
    found = {alarm.name: alarm.level for alarm in alarms_in(reading.facts, "langfuse")}
    assert found.get("other-calls") == "caution"
    assert "other-speakers" not in found


def test_missing_answers_say_what_is_judged_instead(tmp_path):
    answer = lambda q, r: None if q % 4 == 0 and r == 3 else CITIES[(q + (r < 2)) % 5]  # noqa: E731
    source = log(tmp_path / "log.jsonl", answer=answer)
    sentences = {alarm.name: alarm.sentence for alarm in imported(source).alarms}
    assert "returns the last answer before" in sentences["missing-values"]


def test_code_may_be_long_and_new_each_time(tmp_path):
    program = {"answer": lambda q, r: f"def f(x):\n    return x + {q} + {r}" + "  # why" * 30, "gold": None}
    assert cautions(log(tmp_path / "code.jsonl", **program)) == []
    assert cautions(log(tmp_path / "prose.jsonl", **program), normalizer="qa") == ["drafts"]


@pytest.mark.parametrize("name", TRAPS)
def test_an_alarm_fires_on_a_trap_and_not_on_its_twin(name, tmp_path):
    trap, twin = TRAPS[name]
    source = log(tmp_path / "trap.jsonl", **trap)
    if ALARMS[name][0] == "stop":
        assert f"--expected {name}" in stopped(source).choices
    else:
        assert name in cautions(source)
    assert name not in cautions(log(tmp_path / "twin.jsonl", **twin))
    summary = imported(source, expected=[name])
    assert name in [alarm.name for alarm in summary.alarms]
    assert name not in " ".join(note for note in summary.notes if note.startswith("caution"))


def gold_read(path, n_varying):
    """Write a log whose answers are the gold answers; its texts have a name that no list of usual names has."""
    return log(
        path, answer=lambda q, r: CITIES[q % 5], gold=None, zz=lambda q, r: CITIES[(q + r * (q < n_varying)) % 5]
    )


def table(columns):
    return pa.table({"golds": [["Paris"]] * len(columns["answer"]), **columns})


def alarms_of(parts, source="tabular", **options):
    reading = Reading("qa")
    reading.add(table(parts))
    return [alarm.name for alarm in alarms_in(reading.facts, source, {"answer": "answer"}, options)]


def equal_answers(varying, n=10):
    """Return questions with equal answers, beside a text that varies in some of them."""
    places = [(q, r) for q in range(n) for r in range(2)]
    return {
        "question_id": [f"q{q}" for q, _ in places],
        "round": pa.array([r + 1 for _, r in places], pa.int16()),
        "answer": ["Oslo"] * len(places),
        "said": [f"{q} {r * (q < varying)}" for q, r in places],
    }


def test_equal_answers_beside_a_varying_text_stop_the_import():
    assert alarms_of(equal_answers(10)) == ["equal-answers"]
    assert alarms_of(equal_answers(0)) == []
    assert alarms_of(equal_answers(10), "otlp") == []
    assert alarms_of(equal_answers(10), columns={"answer": "answer"}) == ["equal-answers"]
    reading = Reading("qa")
    reading.add(table(equal_answers(10)))
    (alarm,) = alarms_in(reading.facts, "tabular", {"answer": "answer"})
    assert alarm.level == "stop"
    (named,) = alarms_in(reading.facts, "tabular", {"answer": "answer"}, {"columns": {"answer": "answer"}})
    assert named.level == "caution"
    choices = alarm.error().choices
    assert choices["--column answer=said --column golds=answer"][0] == {
        "columns": {"answer": "said", "golds": "answer"}
    }


def test_a_gold_column_read_as_answer_never_enters(tmp_path):
    assert "zz" in stopped(gold_read(tmp_path / "trap.jsonl", 40)).question


def test_yes_does_not_answer_an_alarm_but_its_option_does(tmp_path):
    source, out = log(tmp_path / "log.jsonl", **TRAPS["empty-answers"][0]), tmp_path / "log.parquet"
    told = cli("import", source, "-o", out, "--yes")
    assert told.code == 2
    assert "--expected empty-answers" in told.err
    assert not out.exists()
    assert cli("import", source, "-o", out, "--expected", "empty-answers").code == 0
    assert json.loads((tmp_path / "log.import.json").read_text())["options"] == {"expected": ["empty-answers"]}
    again = cli("import", source, "-o", out, "--json").json
    assert "empty-answers" in [alarm["name"] for alarm in again["alarms"]]
    assert "said to be right" in read_recording(out).reading_notes[0]


def test_a_stop_can_be_answered_where_the_import_asks(tmp_path):
    source = log(tmp_path / "log.jsonl", **TRAPS["empty-answers"][0])
    asked = []

    def settle(error):
        asked.append(error.question)
        return error.choices["--expected empty-answers"][0]

    assert imported(source, settle=settle).trajectories == 40
    assert len(asked) == 1
    named = imported(source, settle=settle, expected=["drafts"])
    assert json.loads(named.mapping.read_text())["options"]["expected"] == ["drafts", "empty-answers"]


def test_replies_with_answers_at_no_usual_position_are_asked_about_once(tmp_path):
    replies = {"answer": lambda q, r: sentence(CITIES[(q + (q % 3 == 0) + (r == 1)) % 5], q, r)}
    source, out = log(tmp_path / "log.jsonl", **replies), tmp_path / "log.parquet"
    asked = cli("import", source, "-o", out, "--yes")
    assert (asked.code, out.exists()) == (2, False)
    assert "--answer-position whole" in asked.err
    assert cli("import", source, "-o", out, "--yes", "--answer-position", "whole").code == 0
    twin = {"answer": lambda q, r: sentence("Paris", q, r) if r == 1 else CITIES[(q + (q % 3 == 0)) % 5]}
    assert imported(log(tmp_path / "twin.jsonl", **twin)).trajectories == 40


def test_an_unknown_alarm_is_refused_with_the_names_of_all(tmp_path):
    with pytest.raises(DataError, match="equal-answers"):
        imported(log(tmp_path / "log.jsonl"), expected=["draft"])
    assert "same-score" in cli("import", tmp_path / "log.jsonl", "--expected", "nothing").error


def test_a_caution_is_repeated_before_every_verdict(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli("import", log(tmp_path / "log.jsonl", **TRAPS["other-systems"][0]), "--yes").out.startswith("caution:")
    recording = read_recording(tmp_path / "log.parquet")
    (note,) = recording.reading_notes
    assert "'model'" in note
    assert note in suffice.replay(recording, "answer_stable").notes
    for call in ("replay log.parquet", "replay log.parquet --jobs 1", "replay log.parquet --details"):
        assert cli(*call.split()).out.startswith("caution:")
    (tmp_path / "rules.txt").write_text("answer_stable\n")
    certified = "certify log.parquet --max-loss 0.5 --rules rules.txt"
    assert cli(*certified.split()).out.startswith("caution:")
    same = read_recording(imported(log(tmp_path / "same.jsonl", **TRAPS["drafts"][0])).path)
    assert same.reading_notes[0] in suffice.decide(same).notes
    assert not read_recording(imported(log(tmp_path / "right.jsonl")).path).reading_notes


def test_a_preview_shows_a_question_whose_answer_changes(tmp_path):
    source = log(
        tmp_path / "log.jsonl",
        output=lambda q, r: f"It is in {CITIES[(q + (r < 2 and q % 2)) % 5]}." + " Really." * 30,
        completion_tokens=lambda q, r: 40 - 10 * r,
    )
    preview = imported(source, columns={"answer": "answer", "text": "output"}).preview
    assert (preview.question_id, preview.question, preview.golds) == ("q1", "Where is tower 1?", ("Lima",))
    assert [item.answer for item in preview.rounds] == ["Rome", "Lima", "Lima"]
    assert [item.metrics["em"] for item in preview.rounds] == [0.0, 1.0, 1.0]
    assert [item.costs["output_tokens"] for item in preview.rounds] == [30.0, 20.0, 10.0]
    assert preview.rounds[0].reply.startswith("It is in Rome")
    assert (preview.normalizer, preview.why) == ("qa", "which reads all gold answers")
    shown = cli(
        "import", source, "-o", tmp_path / "r.parquet", "--yes", "--column", "answer=answer", "--column", "text=output"
    )
    for text in ("'q1'", "Right answer: Lima", "more characters", "reply", " score"):
        assert text in shown.words
    assert "are compared" not in shown.words


def test_a_line_for_each_round_counts_answers_and_distinct_ones(tmp_path):
    source = log(
        tmp_path / "log.csv.jsonl",
        n=20,
        answer=lambda q, r: None if q < 5 and r == 1 else f"{q} {r}" if q < 10 else "Oslo",
        score=lambda q, r: r / 4,
    )
    lines = imported(source).by_round
    assert [line.answered for line in lines] == [0.75, 1.0, 1.0]
    assert [line.distinct for line in lines] == [0.75, 1.25, 1.75]
    assert [line.scores for line in lines] == [{"score": r / 4} for r in (1, 2, 3)]
    (means,) = [table for table in imported(source).tables() if table.columns[0].name == "round"]
    names = ["score", "mean score (F1), %", "mean score, %", "n", "answered %", "different answers so far"]
    assert [column.name for column in means.columns][3:] == names


def test_without_gold_answers_the_first_question_is_shown(tmp_path):
    source = log(tmp_path / "log.jsonl", answer=lambda q, r: CITIES[q % 5], gold=None, question=None, rounds=2)
    summary = imported(source)
    assert (summary.preview.question_id, summary.preview.golds) == ("q0", ())
    assert "No right answer is known" in summary.preview.title
    assert "preview" in summary.to_dict()


def test_last_answers_may_be_right_where_the_column_says_gold(tmp_path):
    right = {"answer": lambda q, r: CITIES[(q + (r < 3)) % 5]}
    assert cautions(log(tmp_path / "gold.jsonl", gold=lambda q, r: CITIES[q % 5], **right)) == ["last-is-gold"]
    target = {"gold": None, "target": lambda q, r: CITIES[q % 5]}
    assert "--log-golds keep" in stopped(log(tmp_path / "target.jsonl", **target, **right)).choices


@pytest.mark.whole
def test_no_correct_log_of_the_repository_is_stopped(tmp_path):
    logs = [
        (ROOT / "examples" / "logs.jsonl", {}),
        (ROOT / "examples" / "samples.jsonl", {"samples": True}),
        *(
            (path, {"samples": True} if path.stem.startswith("verify_cot") else {})
            for path in sorted((DATA / "imports").iterdir())
            if path.suffix in (".jsonl", ".zip", ".parquet")
        ),
        *((path, {}) for path in sorted((DATA / "traces").iterdir()) if path.suffix in (".json", ".eval")),
    ]
    stops, n = [], 0
    for path, options in logs:
        try:
            found = import_recording(path, out=tmp_path / f"{path.name}.parquet", **options).alarms
        except UnsettledError as error:
            found = [error]
        except DataError:
            continue
        n += 1
        stops += [(path.name, alarm) for alarm in found if getattr(alarm, "level", "stop") == "stop"]
    for name in sorted((ROOT / "src" / "suffice" / "data" / "recorded").glob("*.parquet")):
        recording = read_recording(name)
        reading = Reading(recording.metadata.get("normalizer", "qa"))
        ordered = recording.table.sort_by([("question_id", "ascending"), ("round", "ascending")])
        reading.add(ordered.slice(0, 4000))  # alarms are about shares: more rounds have the same
        source = "mini_swe_agent" if name.stem in BUNDLED_STEPS else "tabular"
        stops += [(name, alarm) for alarm in alarms_in(reading.facts, source) if alarm.level == "stop"]
        n += 1
    assert n >= 10
    assert not stops


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=4), min_size=1, max_size=8),
    st.integers(1, 7),
)
def test_a_reading_does_not_depend_on_the_division_into_parts(questions, split):
    rows = [(f"q{q}", r, text) for q, answers in enumerate(questions) for r, text in enumerate(answers, start=1)]

    def read(*parts):
        reading = Reading("qa")
        for part in parts:
            if part:
                ids, numbers, texts = zip(*part, strict=True)
                columns = {
                    "question_id": ids,
                    "round": pa.array(numbers, pa.int16()),
                    "answer": pa.array(texts, pa.string()),
                }
                reading.add(table({**columns, "em": [float(text == "a") for text in texts]}))
        return reading.facts, reading.by_round(), reading.preview

    first = [row for row in rows if int(row[0][1:]) < split]
    whole, parted = read(rows), read(first, rows[len(first) :])
    assert whole[0] == parted[0]
    assert whole[2] == parted[2]
    assert [(line.n, line.em, line.answered, line.distinct) for line in whole[1]] == [
        (line.n, line.em, line.answered, line.distinct) for line in parted[1]
    ]


def test_a_long_text_is_cut_visibly():
    assert cut("short") == "short"
    assert cut("x" * 200).endswith("(123 more characters)")
