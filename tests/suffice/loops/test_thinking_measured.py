"""Measurements of a chain itself: live, each is made where the rule reads it, as replay charges it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from suffice import Policy, read_recording, record
from suffice.errors import DataError, UnknownSignalError
from suffice.evaluation.replay import check_policy
from suffice.evaluation.replay.baselines import run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.loops.retrieval import Question
from suffice.policy.embedding import DraftEmbedder
from suffice.policy.rounds import Cost, Reply
from suffice.policy.signals import PROBER, SETTLED, KnownDifficulty
from tests.suffice.loops.test_thinking_loop import CHAINS, completion, loop, reply
from tests.support.cli_tools import cli
from tests.support.endpoint import Endpoint


class Letters:
    """Embeds a text by the counts of its letters, scaled to length one."""

    id, revision, pooling = "letters", "1", "none"

    def embed(self, texts):
        rows = [[float(text.count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]
        lengths = [math.hypot(*row) or 1.0 for row in rows]
        return np.array([[value / length for value in row] for row, length in zip(rows, lengths, strict=True)])

    def embed_costed(self, texts):
        return self.embed(texts), Cost(calls=1.0, uncached_tokens=float(sum(map(len, texts))))


class Lengths:
    """Takes a chain for settled the surer the more words it has, at the cost of one token for each."""

    name = PROBER
    capabilities = frozenset({SETTLED})

    def fingerprint(self):
        return {"kind": "lengths"}

    async def measure(self, question, observed):
        return await self.measure_chain(question, [observed])

    async def measure_chain(self, question, rounds):
        n = sum(len((observed.thinking or "").split()) for observed in rounds)
        cost = Cost(calls=1.0, uncached_tokens=float(n))
        return Reply(signals={SETTLED: n / (n + 4) if rounds[-1].thinking else math.nan}, costs={PROBER: cost})


RULES = (
    "p_settled > 0.5",
    "(p_settled > 0.3) & (answer_stable >= 1)",
    "(answer_stable >= 1) & (p_settled > 0.3)",
    "(trial_hesitates < 1) & (p_settled > 0.6)",
    "(thinking_tokens >= 5) & (p_settled > 0.3)",
    "(semantic_distance < 0.6) & (answer_stable >= 1)",
    "(answer_stable >= 1) & (semantic_novelty < 0.9)",
    "(thinking_tokens >= 5) & (semantic_novelty < 0.6) & (p_settled > 0.1)",
    "(p_settled > 0.6) | (answer_stable >= 1)",
    "(answer_stable >= 1) | (p_settled > 0.99)",
    "(answer_stable >= 1) | (semantic_novelty < 0.01)",
    "(thinking_tokens >= 5) & ((answer_stable >= 1) | (p_settled > 0.99))",
    "patience((p_settled > 0.3), 2)",
    "fixed_k(9)",
)
KINDS = ("calls", "uncached_tokens", "cached_tokens", "output_tokens")
MEASURES = (DraftEmbedder(Letters()), Lengths())


@pytest.fixture(scope="module")
def endpoint():
    with Endpoint(reply) as running:
        yield running


@pytest.fixture(scope="module")
def recording(endpoint, tmp_path_factory):
    path = tmp_path_factory.mktemp("measured") / "t.parquet"
    questions = [Question(question_id=name, question=f"{name}?", answers=("42",)) for name in CHAINS]
    record(questions, loop(endpoint, enrichers=MEASURES), path)
    return read_recording(path)


def test_stretches_of_thought_are_compared_with_all_earlier_ones(recording):
    thoughts, _, _ = CHAINS["settles"]
    place, vectors = list(recording.question_ids).index("settles"), Letters().embed(thoughts)
    distances = 1 - vectors @ vectors.T
    novelty, step = (recording.column(name)[place] for name in ("semantic_novelty", "semantic_distance"))
    assert novelty[1:4] == pytest.approx([distances[r, :r].min() for r in (1, 2, 3)], abs=1e-6)
    assert step[1:4] == pytest.approx([distances[r, r - 1] for r in (1, 2, 3)], abs=1e-6)
    assert np.isnan([novelty[0], novelty[4], step[0], step[4]]).all()


def test_a_recording_without_an_embedder_knows_no_distance(endpoint, tmp_path):
    record([Question(question_id="a", question="settles?", answers=("42",))], loop(endpoint), tmp_path / "t.parquet")
    recording = read_recording(tmp_path / "t.parquet")
    assert np.isnan(recording.column("semantic_novelty")).all()
    assert np.isnan(recording.column("semantic_distance")).all()
    with pytest.raises(UnknownSignalError, match="embed the drafts"):
        check_policy(Policy(rule="semantic_novelty < 0.5", max_rounds=9), recording)
    with pytest.raises(UnknownSignalError, match="suffice think record"):
        check_policy(Policy(rule="p_settled > 0.5", max_rounds=9), recording)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_measured_live_runs_stop_and_cost_as_replayed(endpoint, recording, rule, overlap):
    policy = Policy(rule=rule, max_rounds=9)
    run, stopped = run_policy(PreparedRecording.of(recording, metrics=("em",)), policy)
    live_loop = loop(endpoint, policy, enrichers=MEASURES, overlap=overlap)
    assert sorted(recording.question_ids) == sorted(CHAINS)
    for place, name in enumerate(recording.question_ids):
        outcome = live_loop.run(f"{name}?")
        answered = int(stopped.answer_position[place])
        assert outcome.decision.stop_round == stopped.rounds[place], name
        assert outcome.answer == (recording.answers[place, answered] if answered >= 0 else None), name
        for component in ("generator", "trial", "embedder", "prober"):
            live = outcome.costs.get(component, Cost())
            replayed = [run.ledger.costs[component][kind][place] for kind in KINDS]
            assert [getattr(live, kind) for kind in KINDS] == replayed, (name, component)


@pytest.mark.parametrize(
    "rule", ["(p_settled > 0.3) & (answer_stable >= 1)", "(answer_stable >= 1) | (p_settled > 0.99)"]
)
@pytest.mark.parametrize("sent", range(1, 6))
def test_a_failed_request_ends_a_measured_run_without_raising(rule, sent):
    with Endpoint(reply, fault=[None] * sent + ["500"]) as failing:
        outcome = loop(failing, Policy(rule=rule, max_rounds=9), enrichers=(Lengths(),)).run("settles?")
    assert outcome.decision.reason in ("failed", "rule")
    assert (outcome.error is not None) == (outcome.decision.reason == "failed")
    assert outcome.answer in ("40", "42", None)


@pytest.mark.parametrize("enrichers", [(), (Lengths(),)])
def test_a_server_that_is_down_ends_a_run_without_raising(enrichers):
    with Endpoint(reply, fault=[None] * 2 + ["500"] * 9) as failing:
        outcome = loop(failing, Policy(rule="never()", max_rounds=9), enrichers=enrichers).run("settles?")
    assert (outcome.answer, outcome.decision.reason) == (None, "failed")


def test_a_measured_recording_goes_on_where_it_failed(recording, tmp_path):
    questions = [Question(question_id=name, question=f"{name}?", answers=("42",)) for name in CHAINS]
    with Endpoint(reply, fault=[None] * 6 + ["500"]) as failing:
        made = loop(failing, enrichers=MEASURES)
        record(questions, made, tmp_path / "t.parquet", concurrency=1)
        record(questions, made, tmp_path / "t.parquet", concurrency=1)
    again = read_recording(tmp_path / "t.parquet")
    kept = [name for name in recording.table.column_names if name != "recorded_at" and not name.endswith("seconds")]
    assert again.table.select(kept).to_pylist() == recording.table.select(kept).to_pylist()


def test_recorded_chains_are_measured_as_they_are_asked(endpoint, tmp_path):
    thoughts, _, own = CHAINS["changes"]
    log = {"id": "a", "question": "changes?", "gold": "4", "response": f"Answer: {own}"}
    log["reasoning_content"] = "".join(f" {thought}" for thought in thoughts)
    (tmp_path / "log.jsonl").write_text(json.dumps(log))
    with Endpoint(lambda body: completion("3", "stop", body["prompt"])) as trials:
        asked = ("think", "ask", tmp_path / "log.jsonl", "-o", tmp_path / "t.parquet", "--yes", "--model", "m")
        done = cli(*asked, "--base-url", trials.url, "--set=every=2", "--set=embedder=minilm")
    assert done.code == 0, done
    novelty = read_recording(tmp_path / "t.parquet").column("semantic_novelty")[0]
    assert np.isfinite(novelty[1])


def test_a_policy_pins_what_measured_the_chain(endpoint):
    pinned = loop(endpoint, enrichers=MEASURES).pinned
    assert (pinned[PROBER], pinned["embedder"]["id"]) == ({"kind": "lengths"}, "letters")


def test_a_thinking_loop_refuses_what_measures_answers(endpoint):
    with pytest.raises(DataError, match="measure answers"):
        loop(endpoint, enrichers=(KnownDifficulty({}),)).run("settles?")


def test_a_probe_is_refused_where_trials_end_before_what_it_reads(endpoint, tmp_path):
    made = loop(endpoint, enrichers=(Lengths(),), boundary="words")
    with pytest.raises(DataError, match="beyond it"):
        made.run("settles?")
    with pytest.raises(DataError, match="beyond it"):
        record([Question(question_id="a", question="settles?", answers=("42",))], made, tmp_path / "t.parquet")
