"""Advice by labels, asked only where answers differ: what is asked, what counts, and what a sheet may say."""

from __future__ import annotations

import csv
import json
from dataclasses import fields

import numpy as np
import pyarrow as pa
import pytest

from suffice import decide
from suffice.errors import ConfigMismatchError, DataError
from suffice.policy.normalizers import normalizer_of
from suffice.policy.seen import id_hash
from suffice.policy.session import Policy
from suffice.recordings import Recording, write_recording
from suffice.verdicts.decisions import Advice, Labels, write_sheet
from suffice.verdicts.decisions.labelling import differing_answers, of_units
from suffice.verdicts.decisions.losses import Measured, measure_candidates
from tests.support.cli_tools import cli

N, ROUNDS = 300, 4
RIGHT, WRONG, OTHER = "Lisbon", "Porto", "Faro"


def log(*, n: int = N, changed: float = 0.15, seed: int = 1, prefix: str = "q") -> tuple[Recording, dict[str, str]]:
    """Return a log without golds, and the right answer of each question: caps change some answers, for better and worse."""
    rng = np.random.default_rng(seed)
    ids = [f"{prefix}{place}" for place in range(n)]
    full = np.where(rng.random(n) < 0.7, RIGHT, WRONG)
    answers = np.repeat(full[:, None], ROUNDS, axis=1)
    for r in range(ROUNDS - 1):
        other = rng.choice([RIGHT, WRONG, OTHER], n)
        answers[:, r] = np.where(rng.random(n) < changed / (r + 1), other, full)
    return recorded(ids, answers), dict.fromkeys(ids, RIGHT)


def recorded(ids: list[str], answers: np.ndarray, **columns) -> Recording:
    n, rounds = answers.shape
    table = {
        "question_id": np.repeat(ids, rounds),
        "question": np.repeat([f"where is place number {place} of them all" for place in range(n)], rounds),
        "round": np.tile(np.arange(1, rounds + 1), n),
        "answer": pa.array(answers.ravel().tolist()),
        "end": np.repeat("max_rounds", n * rounds),
        "cost.generator.calls": np.ones(n * rounds),
    }
    return Recording(pa.table({**table, **columns}), {})


def labelled(recording: Recording, golds: dict[str, str], ids) -> Labels:
    return Labels(right={name: (golds[name],) for name in ids})


def judged_losses(recording: Recording, golds: dict[str, str], advice: Advice, cap: int) -> list[float]:
    """Return the loss of a cap in each question that judged, by a plain loop."""
    losses = []
    for name, row in zip(recording.question_ids, recording.answers.tolist(), strict=True):
        if id_hash(name) in advice.trial.marks and id_hash(name) not in advice.trial.tune.ids:
            losses.append(float(row[-1] == golds[name]) - float(row[cap - 1] == golds[name]))
    return losses


def cap_place(advice: Advice, cap: int) -> int:
    return [policy.label for policy in advice.trial.candidates].index(f"fixed_k({cap})")


def test_with_all_labels_the_losses_are_those_of_a_plain_loop():
    recording, golds = log()
    advice = decide(recording, labels=labelled(recording, golds, recording.question_ids))
    assert not advice.to_label
    for cap in (1, 2, 3):
        losses = judged_losses(recording, golds, advice, cap)
        assert len(losses) == advice.n > 180
        assert advice.trial.totals.losses[cap_place(advice, cap)] == pytest.approx(sum(losses))


def test_only_questions_whose_answers_differ_are_asked():
    recording, _ = log()
    advice = decide(recording, labels=Labels(), max_loss=0.01)
    asked = [policy.label for policy in advice.trial.candidates][advice.asks_for]
    cap = int(asked.removeprefix("fixed_k(").removesuffix(")"))
    answers = dict(zip(recording.question_ids, recording.answers.tolist(), strict=True))
    tune = advice.trial.tune.ids
    differ = {name for name, row in answers.items() if row[cap - 1] != row[-1] and id_hash(name) not in tune}
    assert set(advice.to_label) == differ
    assert 0 < len(differ) < 30
    title, trial = advice.table().title, advice.trial
    assert (
        f"{advice.n} questions judge, {trial.n_tune} others fitted the candidates, {advice.n_left} wait for labels"
        in title
    )
    assert advice.n + trial.n_tune + advice.n_left == len(recording.question_ids)


def test_labels_one_by_one_give_the_verdict_of_all():
    recording, golds = log()
    given: list[str] = []
    advice = decide(recording, labels=Labels(), max_loss=0.05)
    while advice.to_label:
        assert advice.to_label[0] not in given
        given += advice.to_label[:10]
        later = decide(recording, labels=labelled(recording, golds, given), max_loss=0.05)
        assert later.n >= advice.n
        assert (later.trial.below.log_highest >= advice.trial.below.log_highest - 1e-9)[
            list(later.trial.sequence)
        ].all()
        advice = later
    every = decide(recording, labels=labelled(recording, golds, recording.question_ids), max_loss=0.05)
    assert advice.verdict == every.verdict == "do it"
    assert advice.policy.label == every.policy.label
    assert len(given) < every.n / 3


def test_no_choice_of_labels_proves_more_than_all_do():
    recording, golds = log(changed=0.3)
    full = decide(recording, labels=labelled(recording, golds, recording.question_ids), max_loss=0.05).trial
    rng = np.random.default_rng(0)
    for share in (0.1, 0.5, 0.9):
        some = [name for name in recording.question_ids if rng.random() < share]
        kind = [name for name in recording.question_ids if rng.random() < share and golds[name] == RIGHT]
        for chosen in (some, kind):
            trial = decide(recording, labels=labelled(recording, golds, chosen), max_loss=0.05).trial
            assert (trial.below.log_highest <= full.below.log_highest + 1e-9).all()
            assert (trial.above.log_highest <= full.above.log_highest + 1e-9).all()


def test_equal_answers_need_no_label_and_prove_by_themselves():
    recording, _ = log(changed=0.0)
    advice = decide(recording, labels=Labels())
    assert advice.verdict == "do it"
    assert advice.trial.labels == 0
    assert not advice.to_label
    assert "No label was needed" in advice.sentence


def test_what_nobody_can_tell_counts_at_its_worst():
    recording, golds = log()
    known = labelled(recording, golds, recording.question_ids)
    unsure = Labels(right=dict.fromkeys(known.right))
    advice = decide(recording, labels=unsure, max_loss=0.05)
    assert not advice.to_label  # they were answered
    for cap in (1, 2, 3):
        row = recording.answers
        counts = {name: float(own[cap - 1] != own[-1]) for name, own in zip(recording.question_ids, row, strict=True)}
        judged = [name for name in counts if id_hash(name) not in advice.trial.tune.ids]
        assert advice.trial.totals.losses[cap_place(advice, cap)] == sum(counts[name] for name in judged)


def test_the_order_of_asking_follows_from_texts_alone():
    recording, _ = log()
    renamed, _ = log(prefix="other ")
    texts = [
        [
            dict(zip(one.question_ids, one.texts, strict=True))[name]
            for name in decide(one, labels=Labels(), tune=one.select(np.arange(N) < 100)).to_label
        ]
        for one in (recording, renamed)
    ]
    assert texts[0] == texts[1] != []
    turned = recording.table.take(np.arange(recording.table.num_rows)[::-1].copy())
    assert decide(Recording(turned, {}), labels=Labels()).to_label == decide(recording, labels=Labels()).to_label


def samples(rows: list[str]) -> Recording:
    """Return samples of many questions: one letter for each sample."""
    answers = np.array([list(row) for row in rows])
    recording = recorded([f"q{place}" for place in range(len(rows))], answers)
    return Recording(recording.table, {"exchangeable": True})


def test_votes_that_always_agree_need_no_label_and_ties_need_one():
    advice = decide(samples(["aaaaaa"] * 300), labels=Labels(), orders=5)
    assert (advice.verdict, advice.trial.labels) == ("do it", 0)
    tied = decide(samples([*["aaaaaa"] * 150, *["aaabbb"] * 150]), labels=Labels(), orders=5)
    assert tied.verdict == "not enough data"
    assert {name for name in tied.to_label if int(name[1:]) < 150} == set()
    assert len(tied.to_label) > 80


def test_heads_of_a_spreadsheet_may_be_in_capitals(tmp_path):
    path = tmp_path / "golds.csv"
    path.write_text("ID,QUESTION,A,B,RIGHT,GOLD\nq1,where,Lisbon,Porto,B,\n")
    assert Labels.read(path).right == {"q1": ("Porto",)}


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_sheet_is_read_as_it_was_filled_in(tmp_path, suffix):
    recording, _ = log()
    path, ids = tmp_path / f"golds{suffix}", decide(recording, labels=Labels()).to_label
    write_sheet(path, recording, ids, Labels())
    assert not Labels.read(path).right
    fills = {0: {"right": "A"}, 1: {"right": "none"}, 2: {"right": "?"}, 3: {"gold": RIGHT}, 4: {"right": "a, B"}}
    if suffix == ".csv":
        rows = [*csv.DictReader(path.read_text().splitlines())]
        for at, fill in fills.items():
            rows[at].update(fill)
        with path.open("w", newline="") as file:
            out = csv.DictWriter(file, rows[0])
            out.writeheader()
            out.writerows(rows)
        shown = [{letter: row[letter] for letter in "ABC" if row.get(letter)} for row in rows]
    else:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for at, fill in fills.items():
            rows[at].update(fill)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        shown = [row["answers"] for row in rows]
    labels = Labels.read(path)
    assert [labels.right[name] for name in ids[:5]] == [
        (shown[0]["A"],),
        (),
        None,
        (RIGHT,),
        (shown[4]["A"], shown[4]["B"]),
    ]
    assert len(labels.right) == 5
    later = decide(recording, labels=labels)
    write_sheet(path, recording, later.to_label, labels)  # what was filled in stays
    assert Labels.read(path).right == labels.right


def test_a_sheet_does_not_tell_which_round_gave_an_answer(tmp_path):
    recording, _ = log(n=600)
    path = tmp_path / "golds.jsonl"
    ids = decide(recording, labels=Labels(), max_loss=0.01).to_label
    write_sheet(path, recording, ids, Labels())
    answers = dict(zip(recording.question_ids, recording.answers.tolist(), strict=True))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    final_first = [row["answers"]["A"] == answers[row["id"]][-1] for row in rows]
    assert 0.2 < np.mean(final_first) < 0.8
    assert all(set(row["answers"].values()) == set(answers[row["id"]]) for row in rows)


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ({"question": "where"}, "no 'id'"),
        ({"id": "q1", "answers": {"A": RIGHT}, "right": "C"}, "letters of"),
        ({"id": "q1", "right": "A"}, "missing"),
        ({"id": "q1", "question": "where", "answer": RIGHT}, "no labelling sheet"),
        ({"id": "q1", "answers": {"A": [RIGHT]}, "right": "A"}, "texts by letter"),
        ({"id": "q1", "answers": {"A": RIGHT}, "right": "A ?"}, "keep one"),
        ({"id": "q1", "right": "?", "gold": RIGHT}, "keep one"),
        ({"id": "q1", "answers": {"A": RIGHT}, "right": 1}, "must be letters"),
        ({"id": "q1", "answers": {"A": RIGHT}, "gold": [1]}, "must be letters"),
    ],
)
def test_a_label_that_says_nothing_is_refused(tmp_path, row, word):
    path = tmp_path / "golds.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(DataError, match=word):
        Labels.read(path)


def test_labels_of_another_log_are_refused(tmp_path):
    recording, _ = log()
    path = tmp_path / "golds.jsonl"
    path.write_text(json.dumps({"id": "q1", "answers": {"A": "Madrid"}, "right": "A"}) + "\n")
    with pytest.raises(ConfigMismatchError, match="another log"):
        decide(recording, labels=Labels.read(path))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"metric": "f1"}, "which answers"),
        ({"selector": "first"}, "selector"),
        ({"baseline": "fixed_k(3)"}, "baseline"),
    ],
)
def test_what_labels_cannot_judge_is_refused(options, word):
    recording, _ = log()
    with pytest.raises(DataError, match=word):
        decide(recording, labels=Labels(), **options)


def test_a_decision_by_labels_and_one_by_golds_are_never_mixed():
    recording, golds = log()
    by_agreement, by_labels = decide(recording), decide(recording, labels=Labels())
    with pytest.raises(ConfigMismatchError, match="not judged by"):
        decide(recording, labels=Labels(), previous=by_agreement)
    with pytest.raises(ConfigMismatchError, match="judged by labels"):
        decide(recording, previous=Advice.from_dict(by_labels.to_dict()))
    again = Advice.from_dict(by_labels.to_dict())
    every = labelled(recording, golds, recording.question_ids)
    assert decide(recording, labels=every, previous=again).n == decide(recording, labels=every).n
    with pytest.raises(ConfigMismatchError, match="max_loss"):
        decide(recording, labels=every, previous=again, max_loss=0.2)


def test_the_command_asks_reads_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recording, golds = log()
    write_recording("log.parquet", recording.table, {})
    first = cli("decide", "log.parquet", "--ask", "golds.jsonl", "--max-loss", "0.05")
    assert "labels written to golds.jsonl" in first.words
    assert "answers differ in" in first.words
    assert "next: suffice decide log.parquet --ask golds.jsonl" in first.words
    rows = [json.loads(line) for line in (tmp_path / "golds.jsonl").read_text().splitlines()]
    for row in rows:
        row["gold"] = golds[row["id"]]
    (tmp_path / "golds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    second = cli("decide", "log.parquet", "--ask", "golds.jsonl", "--json")
    assert second.json["verdict"] == "do it"
    assert 0 < second.json["labels"]["used"] <= len(rows)
    assert second.json["file"] == "decision_by_labels.json"
    assert cli("deploy", "decision_by_labels.json").code == 0


def test_of_samples_only_their_majority_is_judged():
    with pytest.raises(DataError, match="selector majority_of_samples"):
        decide(samples(["aab"] * 300), labels=Labels(), selector="last", orders=1)


@pytest.mark.parametrize("cell", [{"right": " "}, {"right": ","}, {"gold": " "}, {"gold": [""]}, {"right": []}])
def test_a_blank_cell_is_no_label(tmp_path, cell):
    path = tmp_path / "golds.jsonl"
    path.write_text(json.dumps({"id": "q1", "answers": {"A": RIGHT}, **cell}) + "\n")
    assert not Labels.read(path).right


@pytest.mark.parametrize("normalizer", ["qa", "number", "letter", "mixed"])
@pytest.mark.parametrize("first", [0, 1])
def test_answers_differ_at_least_as_much_as_any_label_can_show(normalizer, first):
    rng = np.random.default_rng(first)
    texts = np.array(["18", "20", "18.0", "C", "the C", " ", "", "N/A", None, "abc"], dtype=object)
    answers = rng.choice(texts, (120, 3))
    recording = recorded([f"q{place}" for place in range(120)], answers)
    rounds = pa.array(np.tile(np.arange(first, first + 3), 120))
    recording = Recording(recording.table.set_column(2, "round", rounds), {"normalizer": normalizer})
    options = {"cost": "calls", "max_loss": 0.3}
    advice = decide(recording, labels=Labels(), **options)
    differing = differing_answers(recording, advice.trial)
    assert (differing >= 0).all()
    key = normalizer_of(normalizer)
    for place, policy in enumerate(advice.trial.candidates):
        if not policy.label.startswith(("fixed_k", "closed_book")):
            continue
        begin = 1 - first  # round 0 is another loop's answer, unless that is the candidate
        stop = policy.max_rounds - first + 1
        for q, row in enumerate(answers.tolist()):
            own = row[:1] if policy.label == "closed_book" else row[begin:stop]
            kept, full = ([text for text in part if text and text.strip()][-1:] for part in (own, row[begin:]))
            one, other = (key(part[0]) if part else None for part in (kept, full))
            assert differing[place, q] == float(one != other)


def test_a_gold_that_the_normalizer_cannot_read_is_refused():
    recording, golds = log()
    numbers = Recording(recording.table, {"normalizer": "letter"})
    with pytest.raises(DataError, match="cannot be compared"):
        decide(numbers, labels=labelled(recording, golds, ["q1"]))


def test_scores_of_the_log_never_stand_in_for_labels():
    recording, _ = log(changed=0.3)
    plain = decide(recording, labels=Labels())
    for name in ("match", "em", "f1"):
        column = pa.array(np.tile([0.0, 0.5, 1.0, 1.0], N))
        scored = Recording(recording.table.append_column(name, column), {})
        assert decide(scored, labels=Labels()).to_label == plain.to_label


def test_golds_of_the_log_need_no_label():
    recording, golds = log()
    listed = pa.array([[golds[name]] for name in recording.question_ids for _ in range(ROUNDS)])
    advice = decide(Recording(recording.table.append_column("golds", listed), {}), labels=Labels())
    every = decide(recording, labels=labelled(recording, golds, recording.question_ids))
    assert not advice.to_label
    assert advice.trial.totals.losses.tolist() == every.trial.totals.losses.tolist()


@pytest.mark.parametrize("n", [200, 400])
def test_other_questions_are_never_bet_on_anew(n):
    recording, _ = log(n=400)
    first = decide(recording.select(np.arange(400) < 300), labels=Labels())
    with pytest.raises(ConfigMismatchError, match="began with"):
        decide(recording.select(np.arange(400) < n), labels=Labels(), previous=first)


def test_labels_without_a_question_are_noted_or_refused():
    recording, _ = log()
    some = Labels(right={"q1": (RIGHT,), "17": (RIGHT,)})
    assert any("1 label of 2 name no question" in note for note in decide(recording, labels=some).notes)
    with pytest.raises(ConfigMismatchError, match="name no question"):
        decide(recording, labels=Labels(right={"17": (RIGHT,)}))


def test_a_sheet_from_a_spreadsheet_is_read(tmp_path):
    path = tmp_path / "golds.CSV"
    path.write_bytes(
        '\ufeffid;question;A;B;Right;gold;note\r\nq1;"two\r\nlines";"a\r\nb";c;b;;mine\r\n'.encode()
        + ("q2;;" + "x" * 200_000 + ";y;;;\r\n").encode()
    )
    labels = Labels.read(path)
    assert labels.right == {"q1": ("c",)}
    assert labels.sheet[0]["answers"]["A"] == "a\r\nb"
    assert labels.sheet[0]["note"] == "mine"


def test_columns_of_ones_own_stay_in_the_sheet(tmp_path):
    recording, _ = log()
    ids = decide(recording, labels=Labels()).to_label
    for name in ("golds.csv", "golds.jsonl"):
        write_sheet(tmp_path / name, recording, ids, Labels())
        labels = Labels.read(tmp_path / name)
        noted = Labels(right={ids[0]: ()}, sheet=tuple({**row, "note": f"of {row['id']}"} for row in labels.sheet))
        write_sheet(tmp_path / name, recording, ids[1:], noted)
        assert [row["note"] for row in Labels.read(tmp_path / name).sheet] == [f"of {own}" for own in ids]


def test_a_sheet_of_another_kind_or_over_another_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_recording("log.parquet", log()[0].table, {})
    for name in ("golds.xlsx", "log.parquet"):
        assert cli("decide", "log.parquet", "--ask", name).error
    assert "labelling sheet" in cli("decide", "log.parquet", "--ask", "d.jsonl", "-o", "d.jsonl").error


def uneven(n: int) -> Recording:
    """Return questions of two rows each: some failed, some stopped for no known reason, some without tokens."""
    rng, rows = np.random.default_rng(5), []
    for q in range(2 * n):
        end = "failed" if q in (4, 6, n + 6) or q % 11 == 0 else "rule" if q % 7 == 0 else "max_rounds"
        for r in range(1, 3 if end == "rule" else 4):
            tokens = None if q == 9 else float(rng.integers(9))
            row = {
                "question_id": f"q{q}",
                "question": f"where is place number {q % n} of them all",
                "round": r,
                "end": end,
            }
            kinds = ("uncached_tokens", "cached_tokens", "output_tokens")
            costs = {"cost.generator.calls": 1.0, **{f"cost.generator.{kind}": tokens for kind in kinds}}
            rows.append(
                {
                    **row,
                    "answer": str(rng.choice([RIGHT, WRONG])),
                    "match": rng.random(),
                    "end_assumed": q % 14 == 0,
                    **costs,
                }
            )
    return Recording(pa.Table.from_pylist(rows), {})


def numbers_of(measured: Measured) -> dict[str, object]:
    """Return all that was measured as lists."""
    every = {item.name: getattr(measured.totals, item.name) for item in fields(measured.totals)}
    every |= {f"spent {name}": sums for name, sums in every.pop("costs").items()}
    every |= {name: getattr(measured, name) for name in ("worst", "best", "order")} | {**measured.unpriced}
    return {name: np.asarray(value).tolist() for name, value in every.items()}


def test_losses_of_some_questions_are_those_of_a_log_of_them():
    recording, policies = uneven(40), [Policy(rule=f"fixed_k({k})", max_rounds=k) for k in (1, 2)]
    whole = measure_candidates(recording, policies, "recorded", "match", by_unit=True)
    rng = np.random.default_rng(6)
    masks = [np.ones(40, dtype=bool), *(rng.random(40) < share for share in (0.2, 0.5, 0.9))]
    for chosen in masks:
        some = measure_candidates(recording.select(np.tile(chosen, 2)), policies, "recorded", "match")
        alone = some.within(np.ones_like(some.worst))
        assert str(numbers_of(of_units(whole, chosen))) == str(numbers_of(alone))
    assert whole.totals.failed > 1
    assert whole.totals.n_recorded < whole.n
    assert whole.totals.unexplained
    assert whole.unpriced["tokens"] == 1
    with pytest.raises(ValueError, match="by_unit"):
        of_units(some, chosen)
