"""Everything fitted carries the questions that it saw: certificates refuse them, every other figure marks them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from suffice import Policy, ScriptedModel
from suffice.errors import ConfigMismatchError, DataError, SchemaError
from suffice.evaluation.replay import calibrate, policy_for, replay, selected_on
from suffice.evaluation.search import search
from suffice.evaluation.statistics import Resampling
from suffice.loops import RetrievalLoop, record
from suffice.loops.retrieval import InMemoryRetriever, Question
from suffice.policy.rounds import Passage
from suffice.policy.seen import Seen, id_hash
from suffice.policy.signals import Idf, state_from_dict
from suffice.recordings import Recording, read_recording, write_recording
from suffice.recordings.schema import build_table
from suffice.verdicts.certificates import Certificate, Claim, certify, listed
from suffice.verdicts.diagnostics import diagnose
from suffice_gates.gates import GateEvaluation, column_gate, compare_gates
from suffice_gates.report import gate_part
from suffice_gates.rerank import RERANKER_CARD, CrossEncoderScorer, Reranked
from tests.support.certify_tools import planted
from tests.support.cli_tools import cli
from tests.support.gating import ScriptedGate
from tests.support.replayed import replay_in_blocks

N = 40
LOOSE = Claim(epsilon=0.9)
GATED = "p_known > 0.5"


def text_of(q: int) -> str:
    return f"Who built tower {q}?"


def made(path, *, seen: Seen | None, prefix: str = "q", retriever=None, state=None) -> Recording:
    """Questions that a gated loop recorded; the gate is right about every other one."""
    questions = [
        Question(
            question_id=f"{prefix}{q}",
            question=text_of(q),
            answers=("Ann",),
            passages=(Passage(passage_id=f"{q}", title="", text=f"Ann built tower {q}."),),
        )
        for q in range(N)
    ]
    model = ScriptedModel({text_of(q): ["Ann" if q % 2 else "Bob", "Ann"] for q in range(N)})
    gate = ScriptedGate({text_of(q): 0.9 if q % 2 else 0.1 for q in range(N)}, model, seen=seen)
    policy = Policy(start_round=0, max_rounds=1, state=state or {})
    loop = RetrievalLoop(model=model, retriever=retriever or InMemoryRetriever(), policy=policy, gate=gate)
    record(questions, loop, path)
    return read_recording(path)


@pytest.fixture(scope="module")
def leaky(tmp_path_factory):
    """Recorded with a gate that was fitted on 30 of the 40 questions, under ids of its own."""
    seen = Seen.of([f"train{q}" for q in range(30)], [f"who built  Tower {q}" for q in range(30)])
    return made(tmp_path_factory.mktemp("leaky") / "r.parquet", seen=seen)


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    seen = Seen.of([f"train{q}" for q in range(30)], ["Who built castle 1?"])
    return made(tmp_path_factory.mktemp("clean") / "r.parquet", seen=seen)


@pytest.fixture(scope="module")
def unknown(tmp_path_factory):
    return made(tmp_path_factory.mktemp("unknown") / "r.parquet", seen=None)


def test_a_certificate_on_questions_that_fitted_the_gate_is_refused(leaky, clean):
    with pytest.raises(ConfigMismatchError, match="certification questions"):
        certify(leaky, listed([GATED], leaky), LOOSE)
    found = certify(leaky, listed(["fixed_k(1)"], leaky), replace(LOOSE, baseline="fixed_k(1)"))
    assert found.n == N  # a rule that does not read the gate may be certified there
    assert not any("on record" in note for note in certify(clean, listed([GATED], clean), LOOSE).measured.notes)


def test_a_policy_keeps_the_questions_that_its_gate_has_seen(leaky, clean, tmp_path):
    policy_for(leaky, GATED).save(tmp_path / "p.json")
    policy = Policy.load(tmp_path / "p.json")
    silent = Recording(clean.table, {key: value for key, value in clean.metadata.items() if key != "fitted"})
    with pytest.raises(ConfigMismatchError, match="fitted on 30"):
        certify(silent, listed([policy], policy), LOOSE)


def test_a_gate_with_unrecorded_questions_is_certified_with_a_note(unknown):
    found = certify(unknown, listed([GATED], unknown), LOOSE)
    assert any("questions that the gate was fitted on are unknown" in note for note in found.measured.notes)
    assert found.certificate is None or found.certificate.notes == found.measured.notes
    assert any("the gate" in note for note in replay(unknown, [GATED], resampling=Resampling(n_resamples=2)).notes)
    assert not any(
        "the gate" in note for note in replay(unknown, ["fixed_k(1)"], resampling=Resampling(n_resamples=2)).notes
    )


def test_replay_calibrate_compare_gates_diagnose_and_report_mark_what_was_seen(leaky, clean):
    said = "the gate was fitted on 30"
    result = replay(leaky, [GATED, "fixed_k(1)"], baseline="full", resampling=Resampling(n_resamples=2))
    gated, fixed = result.rows[:2]
    assert (gated.selected_here, gated.n_selected, fixed.selected_here) == (True, 30, False)
    assert any(said in note for note in result.notes)
    _, summary = calibrate(leaky, rule=GATED)
    assert any(said in note for note in summary.notes)
    prepared = GateEvaluation(leaky, resampling=Resampling(n_resamples=2))
    compared = compare_gates(prepared, [column_gate("p_known", prepared, None)])
    assert any(said in note for note in compared.notes)
    assert any(said in note for note in compared.to_dict()["notes"])
    assert any(said in note for note in diagnose(leaky, resampling=Resampling(n_resamples=2)).notes)
    [part] = gate_part(leaky, ("f1",), resampling=Resampling(n_resamples=2, seed=0, level=0.95), margin=0.02)
    assert any(said in sentence for sentence in part.sentences)
    for notes in (
        replay(clean, [GATED], resampling=Resampling(n_resamples=2)).notes,
        calibrate(clean, rule=GATED)[1].notes,
    ):
        assert not any("the gate" in note for note in notes)


def test_the_command_line_says_what_the_gate_saw(leaky, tmp_path):
    path = tmp_path / "r.parquet"
    write_recording(path, leaky.table, leaky.metadata)
    (tmp_path / "rules.txt").write_text(f"{GATED}\n")
    told = cli("certify", path, "--rules", tmp_path / "rules.txt", "--max-loss", "0.9").error
    assert "the gate was fitted on 30" in " ".join(told.split())
    assert "the gate was fitted on 30" in " ".join(
        cli("gate", "compare", path, "--column", "p_known", "--no-questions").out.split()
    )


def test_a_calibrated_policy_saw_its_tune_questions_by_id_and_by_text(clean, tmp_path):
    policy, _ = calibrate(clean, rule=GATED)
    again = made(tmp_path / "r.parquet", seen=Seen(), prefix="other")
    assert replay(again, [policy], resampling=Resampling(n_resamples=2)).rows[0].n_selected == N
    with pytest.raises(ConfigMismatchError, match="selected on 40"):
        certify(again, listed([policy], policy), LOOSE)
    with pytest.raises(ConfigMismatchError, match="40 of 40"):
        search(again, tune=clean)
    prepared, tune = (
        GateEvaluation(again, resampling=Resampling(n_resamples=2)),
        GateEvaluation(clean, resampling=Resampling(n_resamples=2)),
    )
    with pytest.raises(DataError, match="40 evaluation"):
        compare_gates(prepared, [column_gate("p_known", prepared, tune)], tune)


def test_a_certificate_keeps_the_texts_that_it_was_given_on(clean, tmp_path):
    questions = made(tmp_path / "r.parquet", seen=Seen(), prefix="other")
    found = certify(clean, listed(["fixed_k(1)"], clean), replace(LOOSE, baseline="closed_book"))
    assert found.policy is not None
    with pytest.raises(ConfigMismatchError, match="of the 40"):
        certify(questions, listed([found.policy], found.policy), LOOSE)
    old = {key: value for key, value in found.certificate.to_dict().items() if key != "question_texts"}
    assert Certificate.from_dict(old).question_texts == ()


def test_a_stream_marks_what_replay_marks_whatever_the_blocks(leaky, tmp_path):
    path = tmp_path / "r.parquet"
    write_recording(path, leaky.table, leaky.metadata)
    result = replay(leaky, [GATED], resampling=Resampling(n_resamples=2))
    for rows in (3, 1000):
        streamed = replay_in_blocks(path, GATED, block_rows=rows, baseline="fixed_k(1)")
        assert streamed.rows[0].n_selected == result.rows[0].n_selected == 30
        assert [note for note in streamed.notes if "the gate" in note] == [n for n in result.notes if "the gate" in n]


def test_without_texts_only_ids_are_compared_and_that_is_said(leaky):
    bare = Recording(leaky.table.drop_columns(["question"]), leaky.metadata)
    result = replay(bare, [GATED], resampling=Resampling(n_resamples=2))
    assert not result.rows[0].selected_here
    assert any("questions that the gate saw are known by id alone" in note for note in result.notes)


def test_a_reranker_that_was_trained_on_these_questions_spoils_every_figure(tmp_path):
    folder = tmp_path / "reranker"
    folder.mkdir()
    (folder / RERANKER_CARD).write_text(json.dumps(Seen.of((), [text_of(q) for q in range(7)]).to_dict()))

    class Lengths:
        def predict(self, pairs):
            return [float(len(text)) for _, text in pairs]

    scorer = CrossEncoderScorer(folder)
    scorer._encoder = Lengths()
    recording = made(tmp_path / "r.parquet", seen=Seen(), retriever=Reranked(InMemoryRetriever(), scorer))
    row = replay(recording, ["fixed_k(1)"], resampling=Resampling(n_resamples=2)).rows[0]
    assert row.n_selected == 7
    with pytest.raises(ConfigMismatchError, match="fitted on 7"):
        certify(recording, listed(["fixed_k(1)"], recording), LOOSE)
    (folder / RERANKER_CARD).write_text("{}")
    assert scorer.seen is None  # trained here, before cards said on what
    assert CrossEncoderScorer("someone/else").seen == Seen()
    (folder / RERANKER_CARD).write_text("[1]")
    with pytest.raises(DataError, match="be read"):
        _ = scorer.seen


def test_document_frequencies_know_whose_passages_they_weigh(tmp_path):
    idf = Idf.fit(["Ann built tower 1."], Seen.of(["q1"], [text_of(1)]))
    assert state_from_dict(json.loads(json.dumps(idf.to_dict()))).seen == idf.seen
    assert state_from_dict(replace(idf, seen=Seen()).to_dict()) == idf  # the questions change no weight
    recording = made(tmp_path / "r.parquet", seen=Seen(), state={"overlap": idf})
    selected = selected_on(policy_for(recording, "overlap > 0.5"), recording)
    assert selected.by_part == {"the state of 'overlap'": 1}
    with pytest.raises(DataError, match="object"):
        state_from_dict({**idf.to_dict(), "seen": 3})


def test_a_search_keeps_two_questions_of_one_text_on_one_side():
    recording = planted(40, seed=0)
    texts = [f"Who is {int(name[1:]) // 2}?" for name in recording.table.column("question_id").to_pylist()]
    result = search(
        Recording(recording.table.append_column("question", [texts])), resampling=Resampling(n_resamples=0), budget=5
    )
    assert result.n_tune % 2 == 0


def test_a_search_says_that_what_ordered_the_passages_saw_some_questions():
    recording = planted(40, seed=0)
    seen = Seen.of(recording.question_ids[:6]).to_dict()
    marked = Recording(recording.table, {**recording.metadata, "fitted": {"retriever": seen}})
    notes = " ".join(search(marked, resampling=Resampling(n_resamples=0), budget=5).notes)
    assert "selected here: of these" in notes
    assert "the retriever was fitted on" in notes
    assert "selected here" not in " ".join(search(recording, resampling=Resampling(n_resamples=0), budget=5).notes)


def test_hashes_that_are_no_lists_of_text_are_refused():
    assert Seen.from_dict({}) is None
    assert Seen.from_dict({"tune_ids": [id_hash("q")]}) == Seen.of(["q"])
    for wrong in ({"tune_ids": "abc"}, {"tune_texts": [1]}):
        with pytest.raises(SchemaError, match="hashes"):
            Seen.from_dict(wrong)


def test_questions_of_equal_text_are_one_unit_and_replay_notes_clusters():
    rows = [
        {"question_id": f"q{q}", "cluster": f"q{q}", "round": 1, "end": "max_rounds", "question": f"Who  wrote book {q % 3}?", "answer": "a",
         "em": float(q % 2), "f1": float(q % 2), "cost.generator.calls": 1.0}
        for q in range(6)
    ]  # fmt: skip
    notes = replay(
        Recording(build_table(rows)), ["full"], baseline="fixed_k(1)", resampling=Resampling(n_resamples=10)
    ).notes
    assert any("6 questions have 3 texts" in note for note in notes)
    bare = [{name: value for name, value in row.items() if name != "cluster"} for row in rows]
    for clustered in ([{**row, "cluster": row["question"]} for row in rows], bare):
        result = replay(
            Recording(build_table(clustered)), ["full"], baseline="fixed_k(1)", resampling=Resampling(n_resamples=10)
        )
        assert result.n_clusters == 3
        assert not any("texts" in note for note in result.notes)
