"""Likeness to gold answers and preference over the last draft, as columns and by the command line."""

from __future__ import annotations

import asyncio
import json
import math

import numpy as np
import pytest

from suffice import ChatModel
from suffice.errors import AuthenticationFailedError, DataError, ModelError
from suffice.evaluation.replay import replay
from suffice.evaluation.statistics import Resampling
from suffice.loops.judges import (
    PREFERRED,
    JudgeModel,
    PairwiseJudge,
    prefer_to_last,
    reference_columns,
    rouge_l,
    token_f1,
    with_columns,
)
from suffice.recordings import Recording, ResponseCache, read_recording, write_recording
from suffice.recordings.schema import build_table
from tests.support.cli_tools import cli
from tests.support.endpoint import Endpoint, prompt_of

DRAFTS = {
    "a": ["It lies in Lima.", "Oslo, Norway.", "It lies in Lima.", "Oslo."],
    "b": ["Rome", None, "Paris", "  "],
    "c": [None, None, None, None],
}
GOLDS = {"a": ["Oslo", "Oslo, Norway"], "b": ["Paris"], "c": []}


def rows():
    return [
        {
            "question_id": name,
            "round": t,
            "end": "max_rounds",
            "question": f"Where is {name}?",
            "answer": draft,
            "golds": GOLDS[name],
            "cost.writer.calls": 1.0,
        }
        for name, drafts in DRAFTS.items()
        for t, draft in enumerate(drafts, 1)
    ]


def recording():
    return Recording(build_table(rows()))


@pytest.fixture
def path(tmp_path):
    write_recording(tmp_path / "r.parquet", rows(), {"kept": "as it was"})
    return tmp_path / "r.parquet"


def compared(endpoint, cache=None, source=None, **options):
    model = ChatModel("j", base_url=endpoint.url, max_retries=0)
    judge = PairwiseJudge(JudgeModel(model, cache=cache))
    return asyncio.run(prefer_to_last(source or recording(), judge, **options))


def likes(word):
    """A judge that prefers the draft with a word in it, wherever it stands."""

    def answer(body):
        prompt = prompt_of(body)
        first, second = prompt.split("Draft A")[1].split("Draft B")
        better = "A" if word in first and word not in second else "B" if word in second and word not in first else "tie"
        return json.dumps({"reason": "", "better": better})

    return answer


def by_row(column):
    return {name: [column[i] for i, row in enumerate(rows()) if row["question_id"] == name] for name in DRAFTS}


# --- gold answers --------------------------------------------------------------------------------------------------


def test_likenesses_are_those_of_the_measures_row_by_row():
    columns = reference_columns(recording(), ["token_f1", "rouge_l"])
    for i, row in enumerate(rows()):
        for name, measure in (("token_f1", token_f1), ("rouge_l", rouge_l)):
            assert columns[name][i] == pytest.approx(measure(row["answer"], row["golds"]), nan_ok=True)
    assert by_row(columns["token_f1"])["a"][1] == 1.0


def test_similarities_embed_every_text_once_and_never_leave_0_to_1():
    asked = []

    def embed(texts):
        asked.append(list(texts))
        return np.array([[1.0, 0.0] if "Oslo" in text else [-1.0, 0.1] for text in texts])

    found = by_row(reference_columns(recording(), ["embedding_similarity"], embed=embed)["embedding_similarity"])
    assert len(asked) == 1
    assert len(asked[0]) == len(set(asked[0])) == 7
    assert found["a"] == pytest.approx([0.0, 1.0, 0.0, 1.0])  # opposite counts as no likeness
    assert found["b"][:3] == pytest.approx([1.0, math.nan, 1.0], nan_ok=True)
    assert np.isnan(found["c"]).all()


@pytest.mark.parametrize(
    ("names", "message"), [(["bleu"], "'bleu'"), ([], "'none'"), (["embedding_similarity"], "embedder")]
)
def test_unknown_measures_are_refused(names, message):
    with pytest.raises(DataError, match=message):
        reference_columns(recording(), names)


def test_a_recording_without_gold_answers_is_refused():
    table = recording().table.drop_columns(["golds"])
    with pytest.raises(DataError, match="'golds'"):
        reference_columns(Recording(table), ["rouge_l"])


def test_the_command_adds_figures_and_a_replay_takes_them_as_quality(path, tmp_path):
    out = tmp_path / "gold.parquet"
    told = cli("judge", "gold", path, "-o", out, "--set=measures=token_f1,embedding_similarity", "--json").json
    assert [row["round"] for row in told["table"]["rows"]] == [1, 2, 3, 4]
    made = read_recording(out)
    assert made.metadata["kept"] == "as it was"
    assert {"token_f1", "embedding_similarity"} <= set(made.names("metric"))
    similar = made.column("embedding_similarity")
    assert 0.5 < similar[0, 3] <= 1
    assert similar[0, 3] > similar[0, 0]
    assert "rouge_l" in cli("judge", "gold", path, "-o", out).out
    known = made.select(np.array([True, False, False]))
    assert (
        replay(known, ["fixed_k(2)"], metrics=("token_f1",), resampling=Resampling(n_resamples=10))
        .rows[0]
        .metrics["token_f1"]
        == 1.0
    )
    assert "unknown similarity 'bleu'" in cli("judge", "gold", path, "-o", out, "--set=measures=bleu").error


def test_likeness_may_replace_the_score_as_a_labelled_oracle(path, tmp_path):
    out = tmp_path / "gold.parquet"
    assert cli("judge", "gold", path, "-o", out, "--set=measures=rouge_l", "--set=score=rouge_l").code == 0
    made = read_recording(out)
    assert made.metadata["oracles"] == ["information_score", "information_gain"]
    score, gain = made.column("information_score"), made.column("information_gain")
    np.testing.assert_equal(score, made.column("rouge_l"))
    np.testing.assert_equal(gain[:, 1:], np.diff(score, axis=1))
    assert np.isnan(gain[:, 0]).all()
    assert "measures has: token_f1" in cli(
        "judge", "gold", path, "-o", out, "--set=measures=token_f1", "--set=score=rouge_l"
    ).error.replace("\n", " ")


# --- pairs ---------------------------------------------------------------------------------------------------------


def test_every_distinct_draft_is_compared_with_the_last_one_in_both_orders():
    with Endpoint(likes("Norway")) as endpoint:
        found = compared(endpoint)
        requests = len(endpoint.requests)
    columns = by_row(found.columns[PREFERRED])
    assert columns["a"] == [0.5, 1.0, 0.5, 0.5]  # a tie, better, the same tie, itself
    assert columns["b"][0] == 0.5
    assert math.isnan(columns["b"][1])
    assert columns["b"][2] == 0.5  # the last draft that is not blank
    assert math.isnan(columns["b"][3])
    assert np.isnan(columns["c"]).all()
    assert (found.pairs, requests) == (3, 6)
    assert found.verdicts == {"tie": 2, "first": 1}
    calls = by_row(found.columns[f"cost.judge:{PREFERRED}.calls"])
    assert calls["a"] == [2.0, 2.0, 0.0, 0.0]  # a draft that comes back is paid for once


def test_a_worse_draft_scores_nothing_and_an_order_dependent_one_half():
    with Endpoint(likes("Oslo.")) as endpoint:
        assert by_row(compared(endpoint).columns[PREFERRED])["a"][0] == 0.0
    with Endpoint(json.dumps({"reason": "", "better": "A"})) as endpoint:
        found = compared(endpoint)
    assert found.verdicts == {"order_dependent": 3}
    assert by_row(found.columns[PREFERRED])["a"] == [0.5] * 4
    with Endpoint("I like them both") as endpoint:
        unread = compared(endpoint)
    assert unread.verdicts == {"undefined": 3}
    assert math.isnan(by_row(unread.columns[PREFERRED])["a"][0])


def test_the_last_round_ties_with_itself_in_replay():
    with Endpoint(likes("Norway")) as endpoint:
        found = compared(endpoint)
    made = Recording(with_columns(recording().table, found.columns)).select(np.array([True, False, False]))
    result = replay(made, ["fixed_k(2)"], metrics=(PREFERRED,), resampling=Resampling(n_resamples=10), baseline="full")
    assert result.row("fixed_k(4)").metrics[PREFERRED] == 0.5
    assert result.rows[0].metrics[PREFERRED] == 1.0


def test_a_failure_is_told_and_what_was_answered_is_kept(tmp_path):
    with ResponseCache(tmp_path / "c.sqlite") as cache, Endpoint(likes("Norway"), fault=[None, "500"]) as endpoint:
        first = compared(endpoint, cache, concurrency=1)
        assert len(endpoint.requests) == 6
        second = compared(endpoint, cache, concurrency=1)
        assert len(endpoint.requests) == 7  # the one order that had failed
    assert len(first.failed) == 1
    assert math.isnan(by_row(first.columns[PREFERRED])["a"][0])
    assert second.failed == ()
    assert by_row(second.columns[PREFERRED])["a"] == [0.5, 1.0, 0.5, 0.5]


def test_refusals_are_undefined_and_refusing_everything_is_an_error():
    def picky(body):
        if "Norway" in prompt_of(body):
            return {"error": {"code": 400, "message": "content filter"}}
        return json.dumps({"reason": "", "better": "tie"})

    with Endpoint(picky) as endpoint:
        found = compared(endpoint, concurrency=1)
    assert found.verdicts == {"tie": 2, "refused": 1}
    assert math.isnan(by_row(found.columns[PREFERRED])["a"][1])
    with Endpoint(fault="404") as endpoint, pytest.raises(ModelError, match="such model"):
        compared(endpoint)
    with Endpoint(fault="401") as endpoint, pytest.raises(AuthenticationFailedError):
        compared(endpoint)


def test_the_command_writes_the_column_and_goes_on_after_a_failure(path, tmp_path, monkeypatch):
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    out = tmp_path / "pairs.parquet"
    with Endpoint(likes("Norway"), fault=["500"] * 30) as endpoint:
        arguments = ("judge", "pairs", path, "-o", out, "--base-url", endpoint.url, "--model", "j", "--set=timeout=600")
        failed = cli(*arguments, "--set=concurrency=1")
    assert failed.code == 1
    assert not out.exists()
    assert "run the same command again" in failed.words
    with Endpoint(likes("Norway")) as endpoint:
        arguments = ("judge", "pairs", path, "-o", out, "--base-url", endpoint.url, "--model", "j")
        told = cli(*arguments, "--json").json
        text = cli(*arguments).out
        requests = len(endpoint.requests)
    assert requests == 6  # the second run was answered by the cache
    assert (told["pairs"], told["verdicts"]) == (3, {"tie": 2, "first": 1})
    assert "the earlier draft, in both orders" in text
    made = read_recording(out)
    assert made.metadata["judges"][f"judge:{PREFERRED}"]["fingerprint"]["prompt_id"] == "better_of_two@1"
    assert made.metadata["kept"] == "as it was"


def test_shards_compare_what_one_process_compares(path, tmp_path):
    with Endpoint(likes("Norway"), usage="plain") as endpoint:
        pairs = ("judge", "pairs", path, "--base-url", endpoint.url, "--model", "j", "-o")
        assert cli(*pairs, tmp_path / "one.parquet").code == 0
        alone = len(endpoint.requests)
        asked = [
            cli(*pairs, tmp_path / "many.parquet", "--shard", shard, "--json").json["asked"] for shard in ("2/2", "1/2")
        ]
        assert (sum(asked), len(endpoint.requests)) == (3, 2 * alone)
        assert not (tmp_path / "many.parquet").exists()
        assert cli(*pairs, tmp_path / "many.parquet").code == 0
        assert len(endpoint.requests) == 2 * alone
    one, many = (read_recording(tmp_path / name) for name in ("one.parquet", "many.parquet"))
    np.testing.assert_equal(many.column(PREFERRED), one.column(PREFERRED))
    assert not list(tmp_path.glob("many.parquet.part-*"))
