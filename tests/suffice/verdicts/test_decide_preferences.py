"""Advice by judgements of pairs: which answer is better, the full run's or the one that a candidate stops at."""

from __future__ import annotations

import csv
import json

import numpy as np
import pyarrow as pa
import pytest

from suffice import decide
from suffice.errors import ConfigMismatchError, DataError
from suffice.policy.seen import id_hash
from suffice.recordings import Recording, write_recording
from suffice.verdicts.decisions import Advice, Labels, write_sheet
from suffice.verdicts.decisions.labels import Preference
from tests.suffice.verdicts.test_decide_labels import OTHER, RIGHT, WRONG, cap_place, labelled, log, samples
from tests.support.cli_tools import cli

VALUE = {RIGHT: 2, OTHER: 1, WRONG: 0}
"""How good an answer is; the judge of these tests prefers the larger value."""


def judged(one: str, other: str) -> int:
    return int(np.sign(VALUE[one] - VALUE[other]))


def preferred(recording: Recording, ids) -> Labels:
    """Return judgements of the full run's answer and each other answer of some questions."""
    answers = dict(zip(recording.question_ids, recording.answers.tolist(), strict=True))
    given = {
        name: tuple(
            Preference(answers=(answers[name][-1], other), better=judged(answers[name][-1], other))
            for other in sorted({*answers[name]} - {answers[name][-1], None})
        )
        for name in ids
    }
    return Labels(preferences={name: own for name, own in given.items() if own})


def decided(recording: Recording, labels: Labels, **options) -> Advice:
    return decide(recording, metric="preference", labels=labels, **{"max_loss": 0.05, **options})


def verdict_rows(recording: Recording, advice: Advice) -> list[list[str]]:
    pairs = zip(recording.question_ids, recording.answers.tolist(), strict=True)
    return [row for name, row in pairs if id_hash(name) not in advice.trial.tune.ids]


def test_with_all_judgements_losses_are_those_of_a_plain_loop():
    recording, _ = log()
    advice = decided(recording, preferred(recording, recording.question_ids))
    assert not advice.to_label
    assert advice.trial.metric == "preference"
    for cap in (1, 2, 3):
        losses = [judged(row[-1], row[cap - 1]) for row in verdict_rows(recording, advice)]
        assert len(losses) == advice.n > 180
        assert advice.trial.totals.losses[cap_place(advice, cap)] == sum(losses)
    assert "share of questions in which the full run's answer is better" in advice.sentence


def test_without_judgements_each_difference_counts_at_its_worst():
    recording, _ = log()
    unsure = {
        name: tuple(Preference(answers=one.answers, better=None) for one in own)
        for name, own in preferred(recording, recording.question_ids).preferences.items()
    }
    advice = decided(recording, Labels(preferences=unsure))
    assert not advice.to_label
    for cap in (1, 2, 3):
        differ = sum(row[-1] != row[cap - 1] for row in verdict_rows(recording, advice))
        assert advice.trial.totals.losses[cap_place(advice, cap)] == differ


def test_judgements_are_asked_one_pair_at_a_time_until_advice():
    recording, _ = log(changed=0.3)
    advice, given = decided(recording, Labels()), set()
    answers = dict(zip(recording.question_ids, recording.answers.tolist(), strict=True))
    every: dict[str, tuple[Preference, ...]] = {}
    while advice.to_label and advice.verdict != "do it":
        cap = int(advice.trial.candidates[advice.asks_for].max_rounds)
        for name, pair in [*zip(advice.to_label, advice.pairs, strict=True)][:10]:
            assert pair == (answers[name][cap - 1], answers[name][-1])
            assert (name, frozenset(pair)) not in given
            given.add((name, frozenset(pair)))
            every[name] = (*every.get(name, ()), Preference(answers=pair, better=judged(*pair)))
        later = decided(recording, Labels(preferences=every))
        assert (later.trial.below.log_highest >= advice.trial.below.log_highest - 1e-9)[
            list(later.trial.sequence)
        ].all()
        advice = later
    whole = decided(recording, preferred(recording, recording.question_ids))
    assert advice.verdict == whole.verdict


def test_no_choice_of_judgements_proves_more_than_all_do():
    recording, _ = log(changed=0.3)
    full, rng = decided(recording, preferred(recording, recording.question_ids)).trial, np.random.default_rng(2)
    for share in (0.2, 0.8):
        some = preferred(recording, [name for name in recording.question_ids if rng.random() < share])
        trial = decided(recording, some).trial
        assert (trial.below.log_highest <= full.below.log_highest + 1e-9).all()
        assert (trial.above.log_highest <= full.above.log_highest + 1e-9).all()


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_sheet_of_pairs_shows_two_answers_without_their_names(tmp_path, suffix):
    recording, _ = log(n=600)
    path, advice = tmp_path / f"pairs{suffix}", decided(recording, Labels())
    write_sheet(path, recording, advice.to_label, Labels(), advice.pairs)
    rows = Labels.read(path).sheet
    assert not Labels.read(path).preferences
    assert [row["id"] for row in rows] == list(advice.to_label)
    assert all(set(row["answers"].values()) == set(pair) for row, pair in zip(rows, advice.pairs, strict=True))
    full_first = [row["answers"]["A"] == pair[1] for row, pair in zip(rows, advice.pairs, strict=True)]
    assert 0.2 < np.mean(full_first) < 0.8
    marks = ["A", "b", "equal", "?"]
    if suffix == ".csv":
        cells = [*csv.DictReader(path.read_text().splitlines())]
        assert [*cells[0]] == ["id", "question", "A", "B", "better"]
        for row, mark in zip(cells, marks, strict=False):
            row["better"] = mark
        with path.open("w", newline="") as file:
            out = csv.DictWriter(file, cells[0])
            out.writeheader()
            out.writerows(cells)
    else:
        lines = [dict(row, better=mark) for row, mark in zip(rows, marks, strict=False)]
        path.write_text("".join(json.dumps(row) + "\n" for row in [*lines, *rows[4:]]))
    labels = Labels.read(path)
    assert [labels.preferences[name][0].better for name in advice.to_label[:4]] == [1, -1, 0, None]
    later = decided(recording, labels)
    assert later.to_label == advice.to_label[4:]
    write_sheet(path, recording, later.to_label, labels, later.pairs)
    assert Labels.read(path).preferences == labels.preferences
    assert [row["id"] for row in Labels.read(path).sheet] == list(advice.to_label)


def test_another_pair_of_a_question_gets_a_row_of_its_own(tmp_path):
    recording, _ = log()
    name, path = recording.question_ids[0], tmp_path / "pairs.jsonl"
    own = {"id": name, "answers": {"A": RIGHT, "B": WRONG}, "better": "A", "note": "sure"}
    path.write_text(json.dumps(own) + "\n")
    write_sheet(path, recording, [name], Labels.read(path), [(OTHER, WRONG)])
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first == own
    assert (set(second["answers"].values()), second["better"]) == ({OTHER, WRONG}, None)
    assert "note" not in second


def test_contradicting_judgements_count_at_their_worst_until_most_agree():
    recording, _ = log()
    whole = preferred(recording, recording.question_ids)
    tune = decided(recording, whole).trial.tune.ids
    name = next(name for name, own in whole.preferences.items() if id_hash(name) not in tune and len(own) == 1)
    (first,) = whole.preferences[name]
    turned = Preference(answers=first.answers[::-1], better=first.better)  # the other answer is better
    same = Preference(answers=first.answers[::-1], better=-first.better)
    losses = {}
    for key, own in {
        "one": (first,),
        "same": (first, same),
        "both": (first, turned),
        "unsure": (Preference(answers=first.answers, better=None),),
        "three": (first, turned, same),
    }.items():
        advice = decided(recording, Labels(preferences={**whole.preferences, name: own}))
        losses[key] = advice.trial.totals.losses.tolist()
        assert (f"question '{name}' contradict" in " ".join(advice.notes)) == (key == "both")
        assert not advice.to_label
    assert losses["one"] == losses["same"] == losses["three"]
    assert losses["both"] == losses["unsure"]


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ({"answers": {"A": RIGHT, "B": WRONG}, "better": "C"}, "letter of"),
        ({"answers": {"A": RIGHT, "B": WRONG}, "better": "A B"}, "letter of"),
        ({"answers": {"A": RIGHT, "B": WRONG, "C": OTHER}, "better": "A"}, "Of two"),
        ({"better": "equal"}, "missing"),
        ({"answers": {"A": RIGHT, "B": WRONG}, "better": "A", "right": "A"}, "two kinds"),
        ({"answers": {"A": RIGHT, "B": WRONG}, "better": 1}, "must be"),
    ],
)
def test_a_judgement_that_says_nothing_is_refused(tmp_path, row, word):
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"id": "q1", **row}) + "\n")
    with pytest.raises(DataError, match=word):
        Labels.read(path)


def test_judgements_and_right_answers_are_never_mixed():
    recording, golds = log()
    right, pairs = labelled(recording, golds, recording.question_ids), preferred(recording, recording.question_ids)
    with pytest.raises(DataError, match="never mixed"):
        decided(recording, right)
    with pytest.raises(DataError, match="never mixed"):
        decide(recording, labels=pairs)
    with pytest.raises(DataError, match="leave --metric"):
        decided(samples(["aab"] * 300), Labels())
    by_right, by_pairs = decide(recording, labels=right), decided(recording, pairs)
    with pytest.raises(ConfigMismatchError, match="declared metric"):
        decided(recording, pairs, previous=by_right, max_loss=None)
    again = Advice.from_dict(json.loads(json.dumps(by_pairs.to_dict())))
    assert decide(recording, labels=pairs, previous=again).sentence == by_pairs.sentence


def test_copies_of_a_text_share_their_judgements():
    recording, _ = log(changed=0.9)
    texts = [
        f"where is place {place % (len(recording.question_ids) // 2)}" for place in range(len(recording.question_ids))
    ]
    column = pa.array(np.repeat(texts, 4))
    at = recording.table.schema.get_field_index("question")
    copies = Recording(recording.table.set_column(at, "question", column), {})
    advice = decided(copies, Labels())
    names = dict(zip(copies.question_ids, texts, strict=True))
    asked = [(names[name], frozenset(pair)) for name, pair in zip(advice.to_label, advice.pairs, strict=True)]
    repeated = next(key for key in asked if asked.count(key) > 1)
    one, two = (place for place, key in enumerate(asked) if key == repeated)
    given = Preference(answers=advice.pairs[one], better=1)
    later = decided(copies, Labels(preferences={advice.to_label[one]: (given,)}))
    assert [*later.to_label] == [name for place, name in enumerate(advice.to_label) if place not in (one, two)]
    other = Preference(answers=advice.pairs[one], better=-1)
    both = Labels(preferences={advice.to_label[one]: (given,), advice.to_label[two]: (other,)})
    assert "contradict each other" in " ".join(decided(copies, both).notes)


def test_a_missing_answer_is_no_pair_to_judge():
    recording, _ = log()
    answers = pa.array(
        [
            None if r == 0 else own
            for own, r in zip(recording.table["answer"].to_pylist(), [0, 1, 2, 3] * 300, strict=True)
        ]
    )
    at = recording.table.schema.get_field_index("answer")
    gaps = Recording(recording.table.set_column(at, "answer", answers), {})
    advice = decided(gaps, Labels(), max_loss=0.5)
    assert not any(None in pair or "None" in pair for pair in advice.pairs)
    every = decided(gaps, preferred(gaps, gaps.question_ids), max_loss=0.5)
    assert every.trial.totals.losses[cap_place(every, 1)] == every.n  # at its worst


def test_pairs_that_are_all_equally_good_lose_nothing():
    recording, _ = log(changed=0.9)
    whole = preferred(recording, recording.question_ids).preferences
    equal = {name: tuple(Preference(answers=one.answers, better=0) for one in own) for name, own in whole.items()}
    advice = decided(recording, Labels(preferences=equal))
    assert (advice.verdict, advice.policy.label) == ("do it", "fixed_k(1)")
    assert not advice.trial.totals.losses.any()


def test_failed_questions_are_lost_and_not_asked():
    recording, _ = log()
    ends = pa.array(["failed" if place // 4 % 7 == 0 else "max_rounds" for place in range(recording.table.num_rows)])
    failing = Recording(recording.table.set_column(recording.table.schema.get_field_index("end"), "end", ends), {})
    advice = decided(failing, Labels(), max_loss=0.2)
    answers = dict(zip(failing.question_ids, failing.answers.tolist(), strict=True))
    failed = {name for name, lost in zip(failing.question_ids, failing.failed.tolist(), strict=True) if lost}
    assert advice.to_label
    assert not failed & {*advice.to_label}
    assert all({*pair} <= {*answers[name]} for name, pair in zip(advice.to_label, advice.pairs, strict=True))
    every = decided(failing, preferred(failing, failing.question_ids), max_loss=0.5)
    lost = sum(id_hash(name) not in every.trial.tune.ids for name in failed)
    losses = [
        judged(row[-1], row[0])
        for name, row in answers.items()
        if name not in failed and id_hash(name) not in every.trial.tune.ids
    ]
    assert every.trial.totals.losses[cap_place(every, 1)] == sum(losses) + lost


def test_judgements_of_answers_that_the_log_lacks_are_refused():
    recording, _ = log()
    with pytest.raises(ConfigMismatchError, match="another log"):
        decided(recording, Labels(preferences={"q1": (Preference(answers=("Madrid", RIGHT), better=1),)}))


def test_the_command_asks_for_pairs_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recording, _ = log()
    write_recording("log.parquet", recording.table, {})
    first = cli(
        "decide", "log.parquet", "--ask", "pairs.jsonl", "--metric", "preference", "--max-loss", "0.1", "--json"
    )
    assert first.json["trial"]["metric"] == "preference"
    for _ in range(3):
        rows = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
        for row in rows:
            row["better"] = {1: "A", 0: "equal", -1: "B"}[judged(*row["answers"].values())]
        (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        later = cli("decide", "log.parquet", "--ask", "pairs.jsonl", "--json")
    assert later.json["verdict"] == "do it"
    assert later.json["labels"] == {"used": later.json["labels"]["used"], "to_label": 0}
