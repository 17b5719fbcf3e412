"""Panels of models: their order is chosen on tune questions, and the best single one stands beside every figure."""

from __future__ import annotations

import math

import numpy as np
import pytest

from suffice import Claim, certify, decide, replay
from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay import Price, order_panel, policy_for, seen_in
from suffice.evaluation.replay.panels import best_single, best_single_note, panel_members
from suffice.policy.seen import Seen
from suffice.recordings import Recording, bundled_recording, read_recording, write_recording
from suffice.recordings.schema import build_table
from tests.support.cli_tools import cli

RIGHT = {"small": 0.5, "large": 0.9, "middle": 0.75}


def panel(n: int = 200, *, column: str = "member", tokens: bool = False, missing: float = 0.0) -> Recording:
    """Return a panel of three models, in another order for each question."""
    rng = np.random.default_rng(3)
    rows = []
    for q in range(n):
        names = [name for name in rng.permutation([*RIGHT]).tolist() if name != "large" or rng.random() >= missing]
        for r, name in enumerate(names, 1):
            right = float(rng.random() < RIGHT[name])
            row = {"question_id": f"q{q}", "round": r, "answer": "ab"[int(1 - right)], "em": right, column: name}
            if tokens:
                row |= {f"cost.generator:{name}.output_tokens": 100.0 if name == "small" else 10.0}
            rows.append(row)
    return Recording(build_table(rows), {"exchangeable": True, "normalizer": "exact"})


def test_the_most_accurate_comes_first_and_questions_that_chose_are_excluded():
    recording = panel()
    ordered = order_panel(recording, metric="em")
    assert [item.name for item in ordered.members] == ["large", "middle", "small"]
    assert ordered.best == "large"
    rest = ordered.recording
    assert len(rest.question_ids) + ordered.n_tune == 200
    assert rest.objects("member").tolist() == [["large", "middle", "small"]] * len(rest.question_ids)
    scores = {
        (q, m): e
        for q, m, e in zip(
            *(recording.table.column(c).to_pylist() for c in ("question_id", "member", "em")), strict=True
        )
    }
    for place, question in enumerate(rest.question_ids):
        assert rest.column("em")[place].tolist() == [scores[question, name] for name in ("large", "middle", "small")]
    assert not rest.exchangeable
    assert rest.independent
    tune = [name for name in recording.question_ids if name not in set(rest.question_ids)]
    left_out = np.mean([scores[name, "large"] for name in tune])
    assert ordered.members[0].score == pytest.approx(left_out)
    assert seen_in(recording, Seen.from_dict(rest.metadata["fitted"]["panel"])).sum() == len(tune)
    assert "large" in ordered.tables()[0].rows[0]


@pytest.mark.parametrize(
    ("tokens", "order"), [(False, ["middle", "small", "large"]), (True, ["middle", "large", "small"])]
)
def test_the_cheapest_comes_first_by_tokens_where_they_were_recorded(tokens, order):
    prices = {
        name: Price(uncached=0.0, cached=0.0, output=usd)
        for name, usd in (("small", 2.0), ("middle", 1.0), ("large", 3.0))
    }
    ordered = order_panel(panel(column="model", tokens=tokens), metric="em", by="price", prices=prices)
    assert [item.name for item in ordered.members] == order
    assert ordered.best == "large"
    assert ordered.members[0].price == pytest.approx(0.01 if tokens else 1.0)
    with pytest.raises(DataError, match="large"):
        order_panel(panel(), by="price", metric="em", prices={"small": prices["small"], "middle": prices["middle"]})
    assert math.isnan(order_panel(panel(), metric="em").members[0].price)


def test_the_best_single_model_is_a_row_beside_the_panel():
    ordered = order_panel(panel(missing=0.1), metric="em").recording
    result = replay(ordered, "lead(2)", metrics=["em"], baseline="best_single")
    row = next(row for row in result.rows if row.label == "best_single")
    members = ordered.objects("member")
    asked = (members == "large").any(axis=1)
    right = np.where(members == "large", ordered.column("em"), 0.0)
    assert row.metrics["em"] == pytest.approx(np.nansum(right) / len(asked))
    assert row.calls.mean == pytest.approx(asked.mean())
    assert 0.8 < asked.mean() < 1.0
    assert any("large, the best single model on" in note for note in row.notes)
    assert any(f"no answer of it in {int((~asked).sum())} questions" in note for note in row.notes)
    assert any("best single model on tune questions, large" in note for note in result.notes)
    assert {row.baseline for row in result.rows} == {"best_single"}
    assert next(row for row in result.rows if row.label == "lead(2)").selector == "majority_of_samples"


def test_without_an_order_half_of_the_questions_choose_the_best_model():
    recording = panel()
    single = best_single(recording, "em")
    assert single.model == "large"
    names, right = recording.objects("member"), recording.column("em")
    assert single.score == pytest.approx(right[single.half][names[single.half] == "large"].mean())
    note = best_single_note(recording, "em")[0]
    assert f"large, chosen on half of the questions, has {100 * single.score:.1f} em" in note
    for notes in (
        replay(recording, "lead(2)", metrics=["em"], orders=3).notes,
        decide(recording, metric="em", orders=3, max_loss=0.2).notes,
        certify(recording, ["lead(2)"], Claim(epsilon=0.2, metric="em", orders=3)).measured.notes,
    ):
        assert note.partition(",")[0] in " ".join(notes)
    samples = bundled_recording("samples_date")
    assert best_single_note(samples, "match") == []


def test_no_model_is_best_where_the_choosing_half_names_none():
    recording = panel()
    chose = set(np.array(recording.question_ids)[~best_single(recording, "em").half])
    rows = [row | ({"member": None} if row["question_id"] in chose else {}) for row in recording.table.to_pylist()]
    unnamed = Recording(build_table(rows), recording.metadata)
    assert panel_members(unnamed) is not None
    assert best_single(unnamed, "em") is None
    assert best_single_note(unnamed, "em") == []


def test_an_order_is_part_of_the_policy():
    by_accuracy = order_panel(panel(), metric="em").recording
    other = Recording(by_accuracy.table, {**by_accuracy.metadata, "depends": {"panel": "small > middle > large"}})
    policy = policy_for(by_accuracy, "lead(2)")
    assert policy.depends["panel"] == "large > middle > small"
    with pytest.raises(ConfigMismatchError, match="panel"):
        replay(other, policy, metrics=["em"])
    advice = decide(by_accuracy, metric="em", max_loss=0.2)
    assert advice.trial.orders == 1
    assert advice.now == "now: 3 samples"
    assert {str(item.selector) for item in advice.trial.candidates} == {"majority_of_samples"}


def test_what_is_no_panel_has_no_order():
    with pytest.raises(DataError, match="no panel"):
        order_panel(bundled_recording("samples_date"))
    follow = Recording(panel().table, {})
    assert panel_members(follow) is None
    for wrong, message in (({"by": "name"}, "accuracy"), ({"tune_share": 1.0}, "between")):
        with pytest.raises(DataError, match=message):
            order_panel(panel(), metric="em", **wrong)
    with pytest.raises(DataError, match="too few"):
        order_panel(panel(1), metric="em")


def test_the_command_writes_the_other_questions_in_the_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recording = panel()
    write_recording("panel.parquet", recording.table, recording.metadata)
    done = cli("sample", "order", "panel.parquet", "-o", "ordered.parquet", "--metric", "em", code=0)
    assert "with large first, then 2 other models; the best single model on" in done.words
    assert "next: suffice replay ordered.parquet --baseline best_single" in done.out
    assert read_recording("ordered.parquet").metadata["panel"]["order"] == ["large", "middle", "small"]
    told = cli("sample", "order", "panel.parquet", "-o", "o.parquet", "--metric", "em", "--json").json
    assert [item["model"] for item in told["order"]] == ["large", "middle", "small"]
    again = cli("replay", "ordered.parquet", "--metric", "em", "--baseline", "best_single", "--rule", "lead(2)", code=0)
    assert "best_single" in again.out
