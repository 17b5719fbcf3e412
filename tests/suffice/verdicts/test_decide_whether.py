"""Whether to retrieve: never, always, or where a confidence in the answer of round 0 is low."""

from __future__ import annotations

import json

import numpy as np
import pytest

from suffice import Policy, Round, Session, decide, import_recording, read_recording
from suffice.errors import DataError
from suffice.recordings import Recording
from suffice.verdicts.decisions import Advice
from suffice.verdicts.decisions.candidates import change_text, is_closed_book
from suffice.verdicts.decisions.gates import gate_of, gate_rules
from tests.support.cli_tools import cli

N = 600


def rows(closed, confidence, *, evidence: float = 0.9, rounds: int = 1, seed: int = 3, n: int = N) -> list[dict]:
    """Return a log of round 0, right with probability `closed` of a question's number, and rounds with evidence."""
    rng = np.random.default_rng(seed)
    known = rng.random(n)
    found = []
    for q in range(n):
        right = rng.random() < closed(known[q])
        row = {"id": q, "question": f"Where is tower {q}?", "gold": "Oslo", "own": "Oslo" if right else "Kyiv"}
        row["confidence"] = confidence(known[q])
        row |= {f"evidence_{r}": "Oslo" if rng.random() < evidence else "Rome" for r in range(1, rounds + 1)}
        found.append(row)
    return found


def recorded(folder, log: list[dict], **options) -> Recording:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in log))
    names = ",".join(name for name in log[0] if name == "own" or name.startswith("evidence"))
    summary = import_recording(
        path, out=folder / "log.parquet", columns={"rounds": names}, first_round=0, normalizer="qa", **options
    )
    return read_recording(summary.path)


@pytest.fixture(scope="module")
def telling(tmp_path_factory) -> Recording:
    """The confidence tells where round 0 is right: nearly always above one half, seldom below."""
    log = rows(lambda known: 0.97 if known > 0.5 else 0.1, lambda known: round(known, 3))
    return recorded(tmp_path_factory.mktemp("telling"), log)


def test_a_telling_confidence_is_advised(telling):
    advice = decide(telling, signals=["confidence"])
    assert advice.verdict == "do it"
    assert advice.trial.cost == "retrievals"
    assert advice.sentence.startswith("Answer from round 0, without retrieval, when confidence >= 0.")
    assert 0.3 < advice.trial.totals.saving("retrievals")[advice.chosen] < 0.6
    assert "more calls" in advice.sentence


def test_figures_are_those_of_a_plain_loop(telling):
    advice = decide(telling, signals=["confidence"])
    by_round = {(row["question_id"], row["round"]): row for row in telling.table.to_pylist()}
    names = [*dict.fromkeys(name for name, _ in by_round)]
    judged = [name for name, counted in zip(names, advice.trial.counted.among(names), strict=True) if counted]
    totals, gates = advice.trial.totals, 0
    assert totals.n == len(judged)
    assert totals.costs["retrievals"][-1] == len(judged)  # what was logged retrieves always
    for place, policy in enumerate(advice.trial.candidates):
        if is_closed_book(policy):
            skips = dict.fromkeys(judged, True)
        else:
            limit = float(str(gate_of(policy)).removeprefix("confidence >= "))
            skips = {name: by_round[name, 0]["confidence"] >= limit for name in judged}
            gates += 1
        scores = [by_round[name, 0 if skips[name] else 1]["f1"] for name in judged]
        assert totals.values[place] == pytest.approx(sum(scores))
        assert totals.costs["retrievals"][place] == len(judged) - sum(skips.values())
        assert totals.costs["calls"][place] == 2 * len(judged) - sum(skips.values())
    assert gates == 9


def test_always_retrieving_is_kept_where_round_0_is_poor(tmp_path):
    advice = decide(recorded(tmp_path, rows(lambda known: 0.2, lambda known: known)), signals=["confidence"])
    assert advice.verdict == "keep what you have"


def test_never_retrieving_is_advised_where_evidence_adds_nothing(tmp_path):
    advice = decide(recorded(tmp_path, rows(lambda known: 0.99, lambda known: 0.5)))
    assert advice.sentence.startswith("Never retrieve, and answer from round 0: it saves 100 % of the retrievals")
    assert is_closed_book(advice.policy)


def test_low_values_count_as_confident_where_tune_questions_say_so(tmp_path):
    log = rows(lambda known: 0.97 if known > 0.5 else 0.1, lambda known: round(1 - known, 3))
    advice = decide(recorded(tmp_path, log), signals=["confidence"])
    assert "when confidence <= 0." in advice.sentence
    assert advice.verdict == "do it"


def test_a_missing_confidence_retrieves(tmp_path):
    log = rows(lambda known: 0.5, lambda known: known if known > 0.5 else None, n=100)
    gates = [
        policy
        for policy in decide(recorded(tmp_path, log), signals=["confidence"]).trial.candidates
        if gate_of(policy) is not None
    ]
    session = Session(gates[-1])
    assert session.observe(Round(index=0, answer="Oslo", signals={"confidence": float("nan")})).stop is False


def test_a_deployed_gate_decides_at_round_0_alone(tmp_path):
    advice = decide(
        recorded(tmp_path, rows(lambda known: known, lambda known: round(known, 3), rounds=3, n=100)),
        signals=["confidence"],
    )
    policies = [
        policy for policy in advice.trial.candidates if gate_of(policy) is not None and not is_closed_book(policy)
    ]
    policy = Policy.from_dict(json.loads(json.dumps(policies[-1].to_dict())))
    assert change_text(policy, 3).endswith(f"when {gate_of(policy)}")
    sure, unsure = Session(policy), Session(policy)
    assert sure.observe(Round(index=0, answer="Oslo", signals={"confidence": 1.0})).answer == "Oslo"
    assert unsure.observe(Round(index=0, answer="Kyiv", signals={"confidence": 0.0})).stop is False
    assert unsure.observe(Round(index=1, answer="Oslo", signals={"confidence": 1.0})).stop is False


def test_loops_of_several_rounds_save_calls_unless_told_otherwise(tmp_path):
    recording = recorded(tmp_path, rows(lambda known: 0.9, lambda known: known, rounds=3, n=100))
    calls, retrievals = decide(recording), decide(recording, cost="retrievals")
    assert (calls.trial.cost, retrievals.trial.cost) == ("calls", "retrievals")
    labels = [policy.label for policy in calls.trial.candidates]
    assert labels[:3] == ["fixed_k(1)", "fixed_k(2)", "closed_book"]
    totals = retrievals.trial.totals
    assert (totals.costs["retrievals"][[0, 1, 2, -1]] / totals.n).tolist() == [1, 2, 0, 3]


def test_retrievals_cannot_be_saved_without_a_round_0(tmp_path):
    path = tmp_path / "log.jsonl"
    log = [{"id": q, "round": r, "gold": "a", "answer": "ab"[q * r % 2]} for q in range(60) for r in (1, 2)]
    path.write_text("".join(json.dumps(row) + "\n" for row in log))
    recording = read_recording(import_recording(path, out=tmp_path / "log.parquet", log_golds="keep").path)
    with pytest.raises(DataError, match="round 0"):
        decide(recording, cost="retrievals")


def test_a_confidence_of_the_log_is_tried_in_a_loop_of_rounds(tmp_path):
    """It is a candidate by its name, in the direction of tune questions; other columns are named."""
    drawn, log = np.random.default_rng(4), []
    for q in range(600):
        answers = ["ab"[drawn.random() < 0.4], "ab"[drawn.random() < 0.3], "a"]
        log += [
            {"id": q, "round": r, "question": f"Tower {q}?", "gold": "a", "answer": answer}
            | {
                "uncertainty": round(drawn.random() * 0.4 + (answer == "b") * 0.5, 3),
                "weight": drawn.integers(9).item(),
            }
            for r, answer in enumerate(answers, start=1)
        ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in log))
    recording = read_recording(
        import_recording(
            path, out=tmp_path / "log.parquet", columns={"load": "weight"}, expected=["last-is-gold"], log_golds="keep"
        ).path
    )
    advice = decide(recording)
    assert advice.verdict == "do it"
    assert advice.sentence.startswith("Stop when uncertainty <= 0.")
    labels = [policy.label for policy in advice.trial.candidates]
    assert not any("load" in label for label in labels)
    named = [policy.label for policy in decide(recording, signals=["load"]).trial.candidates]
    assert {*labels} < {*named}
    assert any(label.startswith(("load >= ", "load <= ")) for label in named)


def test_a_confidence_cannot_stop_samples(tmp_path):
    path = tmp_path / "samples.jsonl"
    log = [
        {"id": q, "sample": r, "gold": "a", "answer": "abc"[q * r % 3], "confidence": q % 7}
        for q in range(60)
        for r in (1, 2, 3)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in log))
    recording = read_recording(import_recording(path, out=tmp_path / "s.parquet", samples=True).path)
    assert not any("confidence" in policy.label for policy in decide(recording).trial.candidates)
    with pytest.raises(DataError, match="independent samples"):
        decide(recording, signals=["confidence"])


@pytest.mark.parametrize(
    ("name", "word"), [("missing", "numeric column"), ("question", "numeric column"), ("f1", "metric")]
)
def test_columns_that_are_no_confidence_are_refused(telling, name, word):
    with pytest.raises(DataError, match=word):
        decide(telling, signals=[name])


def test_a_constant_confidence_is_refused(tmp_path):
    with pytest.raises(DataError, match="one value"):
        decide(recorded(tmp_path, rows(lambda known: 0.5, lambda known: 0.5, n=60)), signals=["confidence"])


def test_a_confidence_of_two_values_has_one_threshold(tmp_path):
    recording = recorded(tmp_path, rows(lambda known: 0.9 * known, lambda known: int(known > 0.5), n=100))
    assert [label for label, _ in gate_rules(recording, "f1", ["confidence"])] == ["closed_book", "confidence >= 1"]


def test_an_unnamed_confidence_is_pointed_out(telling):
    assert any("--signal" in note and "confidence" in note for note in decide(telling).notes)
    assert not any("--signal" in note for note in decide(telling, signals=["confidence"]).notes)


@pytest.mark.parametrize(
    ("name", "may_be"),
    [("latency_ms", False), ("usd", False), ("tokensUsed", False), ("callsLeft", False), ("zeal", True)],
)
def test_a_cost_is_not_pointed_out_as_a_confidence(telling, name, may_be):
    names = [name if own == "confidence" else own for own in telling.table.column_names]
    renamed = Recording(telling.table.rename_columns(names), telling.metadata)
    assert any("--signal" in note for note in decide(renamed).notes) is may_be


def test_decisions_without_retrievals_still_load(telling):
    data = json.loads(json.dumps(decide(telling, cost="calls").to_dict()))
    del data["trial"]["totals"]["costs"]["retrievals"]
    assert np.isnan(Advice.from_dict(data).trial.totals.costs["retrievals"]).all()


def test_two_columns_are_decided_by_two_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = rows(lambda known: 0.97 if known > 0.5 else 0.1, lambda known: round(known, 3), n=200)
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in log))
    asked = cli("import", "log.jsonl", code=2)
    assert "--column rounds=" in asked.err
    assert cli("import", "log.jsonl", "--column", "rounds=own,evidence_1", "--first-round", "0").code == 0
    decided = cli("decide", "log.parquet", "--signal", "confidence", code=0)
    assert "retrievals" in decided.words


@pytest.mark.parametrize("mapped", [True, False])
def test_a_boolean_column_of_the_log_can_decide(tmp_path, mapped):
    log = rows(lambda known: 0.97 if known > 0.5 else 0.1, lambda known: known > 0.5, n=200)
    log[0]["confidence"] = None
    log = [{**row, "confidence": None if row["confidence"] is None else bool(row["confidence"])} for row in log]
    recording = recorded(tmp_path, log) if not mapped else None
    if recording is None:
        path = tmp_path / "log.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in log))
        columns = {"rounds": "own,evidence_1", "confidence": "confidence"}
        recording = read_recording(
            import_recording(path, out=tmp_path / "log.parquet", columns=columns, first_round=0, normalizer="qa").path
        )
    assert set(np.unique(recording.column("confidence")[1:, 0])) == {0.0, 1.0}
    advice = decide(recording, signals=["confidence"])
    assert any("confidence" in item.policy for item in advice.figures)
    text = cli("decide", tmp_path / "log.parquet", "--signal", "question", "-o", tmp_path / "d.json").error
    assert "--column question=COLUMN" in " ".join(text.split())


@pytest.mark.parametrize(
    ("first_round", "saved"),
    [
        (0, {"fixed_k(1)": 2 / 3, "fixed_k(2)": 1 / 3, "closed_book": 2 / 3}),
        (1, {"fixed_k(1)": 3 / 4, "fixed_k(2)": 2 / 4, "fixed_k(3)": 1 / 4}),
    ],
)
def test_a_round_without_retrieval_is_paid_as_the_user_says(tmp_path, first_round, saved):
    log = [
        {
            "id": row["id"],
            "round": r,
            "answer": row[name],
            "gold": "Oslo",
            "prompt_tokens": 100,
            "completion_tokens": 10,
        }
        for row in rows(lambda known: known, lambda known: known, rounds=3, n=60)
        for r, name in enumerate(("own", "evidence_1", "evidence_2", "evidence_3"))
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in log))
    asked = cli("import", tmp_path / "log.jsonl", code=2)
    assert "whether or not anything was retrieved" in " ".join(asked.err.split())
    option = ("--first-round", first_round)
    assert cli("import", tmp_path / "log.jsonl", "-o", tmp_path / "log.parquet", *option).code == 0
    figures = {item.policy: item.saving for item in decide(read_recording(tmp_path / "log.parquet")).figures}
    fixed = {policy: saving for policy, saving in figures.items() if policy.startswith(("fixed", "closed"))}
    assert fixed == pytest.approx(saved)
