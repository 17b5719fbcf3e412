"""Wrong labels: a declared share of them, two labels of one question, and labels that contradict each other."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pytest

from suffice import decide
from suffice.errors import ConfigMismatchError, DataError
from suffice.policy.seen import id_hash
from suffice.recordings import Recording, write_recording
from suffice.verdicts.decisions import Advice, Labels, Wealth, write_sheet
from suffice.verdicts.decisions.label_matches import judged_by, wrong_share
from suffice.verdicts.decisions.trial_file import trial_to_dict
from suffice.verdicts.decisions.wealth import bound_by_labels
from tests.suffice.verdicts.test_decide_labels import OTHER, RIGHT, WRONG, labelled, log, recorded
from tests.support.cli_tools import cli


def matches(recording: Recording, labels: Labels, noise: float = 0.0) -> np.ndarray:
    """Return which answers are right, shape ``(n_questions, n_rounds)``."""
    return judged_by(labels, recording, noise)[0].column("match")


def rows_of(*rows: tuple[str, list]) -> Recording:
    """Return a recording of questions, given by their text and answers."""
    recording = recorded([f"q{place}" for place in range(len(rows))], np.array([row[1] for row in rows], dtype=object))
    texts = pa.array([text for text, answers in rows for _ in answers])
    at = recording.table.schema.get_field_index("question")
    return Recording(recording.table.set_column(at, "question", texts), {})


def test_bets_are_made_against_the_loss_that_labels_show():
    recording, golds = log()
    labels = labelled(recording, golds, recording.question_ids)
    plain, noisy = (decide(recording, labels=labels, max_loss=0.05, label_noise=noise).trial for noise in (None, 0.1))
    assert (plain.bound, noisy.bound, noisy.max_loss) == (0.05, 0.8 * 0.05, 0.05)
    assert noisy.totals.losses.tolist() == plain.totals.losses.tolist()
    declared = decide(recording, labels=labels, max_loss=0.8 * 0.05).trial
    assert noisy.below.log_highest.tolist() == declared.below.log_highest.tolist()
    assert noisy.above.log_highest.tolist() == plain.above.log_highest.tolist()  # a loss only looks smaller
    assert (noisy.below.log_highest <= plain.below.log_highest).all()


def test_golds_and_missing_answers_count_as_labels_do_on_average():
    answers = [RIGHT, None, WRONG, OTHER]
    recording, noise = rows_of(("where", answers)), 0.2
    golds = pa.array([[RIGHT]] * len(answers))
    by_golds = matches(Recording(recording.table.append_column("golds", golds), {}), Labels(), noise)
    right, wrong = (matches(recording, Labels(right={"q0": texts}), noise) for texts in ((RIGHT,), (WRONG, OTHER)))
    assert by_golds[0] == pytest.approx(((1 - noise) * right + noise * wrong)[0])
    assert right[0].tolist() == [1, noise, 0, 0]


def test_a_declared_share_keeps_the_risk_where_labels_are_wrong():
    rng, noise, loss, n = np.random.default_rng(3), 0.2, 0.1, 1000
    true = rng.choice([1.0, -1.0, 0.0], (150, n), p=[0.3, 0.2, 0.5])  # a mean of exactly the largest loss
    seen = np.where(rng.random(true.shape) < noise, -true, true)
    rates = [
        Wealth.start(bound, "below", len(true)).bet(seen).shown(0.05).mean()
        for bound in (bound_by_labels(loss, noise), loss)
    ]
    assert rates[0] <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / len(true))
    assert rates[1] > 0.1  # if it is not declared


def test_a_declared_share_stays_and_is_said(tmp_path):
    recording, golds = log()
    labels = labelled(recording, golds, recording.question_ids)
    advice = decide(recording, labels=labels, max_loss=0.1, label_noise=0.1)
    assert "if the questions are independent and at most 10 % of the labels are wrong at random" in advice.sentence
    assert "they show 80 % of a change" in advice.sentence
    assert "the bets are against a loss of 8 points by these labels" in advice.sentence
    advice.save(tmp_path / "decision.json")
    again = Advice.load(tmp_path / "decision.json")
    assert again.trial.label_noise == 0.1
    assert again.sentence == advice.sentence
    assert decide(recording, labels=labels, previous=again).trial.bound == advice.trial.bound
    assert decide(recording, labels=labels, previous=again, label_noise=0.1).n == advice.n
    for other in (0.0, 0.2):
        with pytest.raises(ConfigMismatchError, match="declared label_noise 0.1"):
            decide(recording, labels=labels, previous=again, label_noise=other)


def test_figures_are_those_of_the_true_change_where_labels_are_wrong():
    recording, golds = log()
    labels = labelled(recording, golds, recording.question_ids)
    shown, told = (
        decide(recording, labels=labels, max_loss=loss, label_noise=noise) for loss, noise in ((0.08, 0), (0.1, 0.1))
    )
    for less, more in zip(shown.figures, told.figures, strict=True):
        mean, low, high = less.change
        assert more.change[0] == pytest.approx(mean / 0.8)
        # A lower end above 0 is not scaled: fewer labels may be wrong.
        assert more.change[1] == pytest.approx(min(low, low / 0.8), nan_ok=True)
        assert np.isnan(high) or more.change[2] >= more.change[0]
    advised = told.figures[told.chosen]
    assert advised.change[1] >= -0.1
    assert f"{100 * advised.change[0]:+.1f} [" in told.sentence
    assert told.table().columns[-1].name == "-10 and 0 are |"


def test_the_interval_holds_for_the_true_change_where_labels_are_wrong():
    rng, noise, n, missed = np.random.default_rng(4), 0.2, 1500, []
    for _ in range(4):
        differs, loses = rng.random(n) < 0.4, rng.random(n) < 0.9  # a loss of 32 points, of which labels show 19
        answers = np.where(differs & ~loses, WRONG, RIGHT)[:, None].repeat(2, axis=1)
        answers[differs, 0] = np.where(loses, WRONG, RIGHT)[differs]
        recording = recorded([f"q{place}" for place in range(n)], answers)
        wrong = rng.random(n) < noise
        right = {f"q{place}": (WRONG if own else RIGHT,) for place, own in enumerate(wrong.tolist())}
        [item] = decide(recording, labels=Labels(right=right), label_noise=noise).figures
        missed.append(not item.change[1] <= -0.32 <= item.change[2])
    assert sum(missed) <= 1  # without the noise, all of them


def test_that_more_questions_are_needed_is_said_once():
    recording, _ = log(changed=0.5)
    advice = decide(recording, labels=Labels(right=dict.fromkeys(recording.question_ids)))
    assert advice.chosen is None
    assert advice.sentence.count("Record more questions") == 1
    recording, golds = log()
    advice = decide(recording, labels=labelled(recording, golds, recording.question_ids), max_loss=0.03)
    assert advice.verdict == "not enough data"
    assert not advice.to_label
    assert "Record" not in advice.sentence  # later questions are no part of this decision
    assert "A decision of its own, on about " in advice.sentence


def test_a_decision_file_without_a_share_has_none():
    recording, golds = log()
    data = decide(recording, labels=labelled(recording, golds, recording.question_ids)).to_dict()
    assert data["trial"].pop("label_noise") == 0
    assert Advice.from_dict(data).trial.label_noise == 0
    assert "label_noise" not in decide(recording).to_dict()["trial"]


@pytest.mark.parametrize("noise", [-0.1, 0.5, 1.0, math.nan])
def test_a_share_of_half_the_labels_or_more_is_refused(noise):
    with pytest.raises(DataError, match="below 0.5"):
        decide(log()[0], labels=Labels(), label_noise=noise)


def test_a_share_of_wrong_labels_without_labels_is_refused():
    with pytest.raises(DataError, match="no labels judge"):
        decide(log()[0], label_noise=0.1)


def test_equal_labels_of_one_question_count_once():
    recording, golds = log()
    once = labelled(recording, golds, recording.question_ids)
    twice = Labels(right=once.right, further={name: (once.right[name],) for name in recording.question_ids[::2]})
    single, double = (decide(recording, labels=labels) for labels in (once, twice))
    assert json.dumps(trial_to_dict(double.trial)) == json.dumps(trial_to_dict(single.trial))
    assert [note for note in double.notes if note not in single.notes] == [
        note for note in double.notes if "two labels, which differ in 0" in note
    ]


def test_contradicting_labels_count_at_their_worst_and_are_named():
    recording, golds = log()
    once = labelled(recording, golds, recording.question_ids)
    tune = decide(recording, labels=once).trial.tune.ids
    answers = dict(zip(recording.question_ids, recording.answers.tolist(), strict=True))
    name = next(name for name, own in answers.items() if id_hash(name) not in tune and set(own) >= {RIGHT, WRONG})
    contradicting, unknown = (
        decide(recording, labels=labels, max_loss=0.05)
        for labels in (Labels(right=once.right, further={name: ((WRONG,),)}), Labels(right={**once.right, name: None}))
    )
    assert contradicting.trial.totals.losses.tolist() == unknown.trial.totals.losses.tolist()
    assert contradicting.trial.totals.open.any()
    assert f"the labels of question '{name}' contradict each other ('{RIGHT}'; '{WRONG}')" in " ".join(
        contradicting.notes
    )


def test_a_third_label_settles_two_that_contradict_each_other():
    recording = rows_of(("where", [RIGHT, WRONG, OTHER]))
    first, second = Labels(right={"q0": (RIGHT,)}), Labels(right={"q0": (RIGHT,)}, further={"q0": ((WRONG,),)})
    assert matches(recording, first)[0].tolist() == [1, 0, 0]
    assert np.isnan(matches(recording, second)).all()
    for third, right in (((RIGHT,), [1, 0, 0]), ((WRONG,), [0, 1, 0]), ((), [0, 0, 0]), ((RIGHT, WRONG), [1, 1, 0])):
        labels = Labels(right=first.right, further={"q0": ((WRONG,), third)})
        values = matches(recording, labels)[0].tolist()
        assert values == right


def test_who_cannot_tell_contradicts_nobody():
    recording = rows_of(("where", [RIGHT, WRONG]))
    for first, further in ((None, ((RIGHT,),)), ((RIGHT,), (None,))):
        labels = Labels(right={"q0": first}, further={"q0": further})
        judged, doubles = judged_by(labels, recording)
        assert judged.column("match")[0].tolist() == [1, 0]
        assert doubles.n == 0


def test_copies_of_a_text_are_one_question_to_labels():
    recording = rows_of(("Where is it?", [RIGHT, WRONG]), ("where is it", [OTHER, RIGHT]), ("why", [RIGHT, WRONG]))
    labels = Labels(right={"q0": (RIGHT,), "q1": (OTHER,), "q2": (WRONG,)})
    judged, doubles = judged_by(labels, recording)
    assert np.isnan(judged.column("match")[:2]).all()  # RIGHT is right in the first row alone
    assert judged.column("match")[2].tolist() == [0, 1]
    assert (doubles.n, doubles.n_differ, doubles.contradicting) == (1, 1, (("q0", f"'{RIGHT}'", f"'{OTHER}'"),))
    apart = rows_of(("where is it", [RIGHT, WRONG]), ("where is it", [OTHER, OTHER]))
    assert judged_by(Labels(right={"q0": (RIGHT,), "q1": (OTHER,)}), apart)[1].n == 0  # no answer in common


def test_two_labels_measure_the_share_of_wrong_ones():
    n, n_differ = 50, 9
    recording = rows_of(*((f"where is {place}", [RIGHT, WRONG]) for place in range(n)))
    names = recording.question_ids
    further = {name: ((RIGHT,) if place >= n_differ else (WRONG,),) for place, name in enumerate(names)}
    doubles = judged_by(Labels(right=dict.fromkeys(names, (RIGHT,)), further=further), recording)[1]
    assert (doubles.n, doubles.n_differ, len(doubles.contradicting)) == (n, n_differ, n_differ)
    text = " ".join(doubles.notes(0.0))
    assert "50 questions have two labels, which differ in 9" in text
    assert "a label noise of about 10.0 %" in text
    assert "'q0' contradict" in text
    assert "8 further questions" in text
    most = float(text.partition("at most ")[2].partition(" %")[0]) / 100
    differing = 2 * most * (1 - most)
    tail = sum(math.comb(n, k) * differing**k * (1 - differing) ** (n - k) for k in range(n_differ + 1))
    assert tail == pytest.approx(0.05, abs=0.002)
    assert "takes a new decision" in text
    assert "takes a new decision" not in " ".join(doubles.notes(0.2))
    assert wrong_share(2 * 0.3 * 0.7) == pytest.approx(0.3)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_two_rows_of_one_question_are_two_labels(tmp_path, suffix):
    path = tmp_path / f"golds{suffix}"
    recording, _ = log()
    ids = decide(recording, labels=Labels()).to_label
    write_sheet(path, recording, ids[:1], Labels())
    row = Labels.read(path).sheet[0]
    rows = tuple({**row, "right": mark} for mark in ("A", "B", "?"))
    write_sheet(path, recording, (), Labels(right={ids[0]: ()}, sheet=rows))
    labels = Labels.read(path)
    shown = row["answers"]
    assert labels.right == {ids[0]: (shown["A"],)}
    assert labels.further == {ids[0]: ((shown["B"],), None)}
    write_sheet(path, recording, ids[1:3], labels)
    assert Labels.read(path).further == labels.further


def test_the_command_declares_a_share_of_wrong_labels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recording, golds = log()
    write_recording("log.parquet", recording.table, {})
    rows = [{"id": name, "gold": golds[name]} for name in recording.question_ids]
    (tmp_path / "golds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, *rows[:9]]))
    words = (
        "decide",
        "log.parquet",
        "--ask",
        "golds.jsonl",
        "--max-loss",
        "0.05",
        "--set",
        "label-noise=0.1",
        "--json",
    )
    first = cli(*words)
    assert first.json["trial"]["label_noise"] == 0.1
    assert "of the labels are wrong" in first.json["sentence"]
    assert "0.1, not 0.2" in cli(*[word.replace("noise=0.1", "noise=0.2") for word in words]).error
    assert "no labels judge" in cli("decide", "log.parquet", "--set", "label-noise=0.1").error


def test_a_share_in_the_settings_file_is_for_labels_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recording, _ = log()
    write_recording("log.parquet", recording.table, {})
    settings = tmp_path / "suffice.toml"
    settings.write_text("[statistics]\nlabel-noise = 0.1\n")
    assert cli("decide", "log.parquet", "--metric", "agreement").code == 0
    asked = ("decide", "log.parquet", "--ask", "golds.jsonl", "--json")
    assert cli(*asked).json["trial"]["label_noise"] == 0.1
    settings.write_text("[statistics]\nlabel-noise = 0.2\n")
    assert cli(*asked).json["trial"]["label_noise"] == 0.1
