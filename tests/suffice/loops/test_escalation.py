"""The escalation loop over a scripted endpoint: attempts in order, judges that are paid, and live = replayed."""

from __future__ import annotations

import numpy as np
import pytest

from suffice import EscalationLoop, Policy, read_recording, record, replay
from suffice.errors import ConfigMismatchError, DataError, ModelError
from suffice.evaluation.replay import policy_for
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.prices import Price
from suffice.evaluation.statistics import Resampling
from suffice.hosts.lines import own_lines
from suffice.policy.rounds import Cost, Reply
from suffice.recordings.runs import attempts_of
from tests.support.cli_tools import cli, dataset
from tests.support.endpoint import Endpoint, prompt_of
from tests.support.sampling import TOWER, assert_replayed, models_of, questions

DRAWS = Resampling(n_resamples=10)
MODELS = ("small", "middle", "large")
SAID = {"small": "Oslo Lima Rome Oslo Bern Lima", "middle": "Oslo Oslo Rome Bern Oslo Oslo", "large": "Oslo " * 6}
"""What each model answers to the six questions."""
PRICES = {name: Price(uncached=k, cached=k, output=4 * k) for name, k in zip(MODELS, (1, 5, 25), strict=True)}


def question_of(text):
    return int(text.rpartition("Where is tower ")[2].partition("?")[0])


def answer(body):
    return f"Answer: {SAID[body['model']].split()[question_of(prompt_of(body))]}"


class Verifier:
    """A verifier that has a mark for each answer, and costs three calls."""

    name = "verifier"
    capabilities = frozenset({"verifier"})

    def fingerprint(self):
        return {}

    async def measure(self, question, observed):
        mark = (3 * question_of(question) + 5 * observed.index) % 8 / 8
        return Reply(signals={"verifier_score": mark}, costs={self.name: Cost(calls=3, uncached_tokens=9)})


def loop(endpoint, **options):
    return EscalationLoop(model=models_of(endpoint, options.pop("names", MODELS)), **options)


@pytest.fixture
def endpoint():
    with Endpoint(answer, usage="plain") as running:
        yield running


def test_models_are_asked_in_order_until_two_agree(endpoint):
    outcome = loop(endpoint).run("Where is tower 1?")
    assert [r.answer for r in outcome.rounds] == ["Lima", "Oslo", "Oslo"]
    assert [request.body["model"] for request in endpoint.requests] == [*MODELS]
    assert (outcome.answer, outcome.decision.reason, outcome.cost.calls) == ("Oslo", "rule", 3)
    assert len(loop(endpoint).run(TOWER).rounds) == 2
    assert all("temperature" not in request.body or not request.body["temperature"] for request in endpoint.requests)


def test_models_that_do_not_know_do_not_agree():
    with Endpoint(lambda body: f"Answer: {'Oslo' if body['model'] == 'large' else 'I do not know.'}") as endpoint:
        outcome = loop(endpoint).run(TOWER)
    assert (outcome.answer, outcome.decision.stop_round) == ("Oslo", 3)


@pytest.mark.parametrize(("rule", "n"), [("answer_stable", 3), ("answer_length >= 1", 2)])
def test_the_next_model_is_asked_where_one_fails(rule, n, tmp_path):
    def reply(body):
        return {"error": {"message": "gone"}} if body["model"] == "small" else "Answer: Oslo"

    with Endpoint(reply) as endpoint:
        outcome = loop(endpoint, policy=Policy(rule=rule, max_rounds=3)).run(TOWER)
        assert [observed.answer for observed in outcome.rounds] == [None, "Oslo", "Oslo"][:n]
        assert (outcome.answer, outcome.error) == ("Oslo", None)
        with pytest.raises(ModelError, match="no question"):  # a recording has no attempt that failed
            record(questions()[:1], loop(endpoint), tmp_path / "r.parquet")
    with Endpoint(lambda body: {"error": {"message": "gone"}}) as endpoint:
        failed = loop(endpoint).run(TOWER)
    assert (failed.answer, failed.decision.reason) == (None, "failed")
    assert failed.error is not None


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("escalated") / "r.parquet"
    with Endpoint(answer, usage="plain") as endpoint:
        record(questions(), loop(endpoint, enrichers=(Verifier(),)), path)
    return read_recording(path)


@pytest.mark.parametrize("rule", ["answer_stable", "never()", "automix(0.5)", "frugalgpt(0.6, 0.3)", "fixed_k(2)"])
def test_replay_equals_live_escalations(endpoint, recording, rule):
    assert attempts_of(recording) == MODELS
    assert not recording.independent
    assert recording.objects("model")[0].tolist() == [*MODELS]
    policy = policy_for(recording, rule)
    live = loop(endpoint, enrichers=(Verifier(),), policy=policy)
    outcomes = [live.run(question.question) for question in questions()]
    assert_replayed(recording, policy, outcomes)
    spent = []
    for outcome in outcomes:
        usd = 0.0
        for observed in outcome.rounds:
            own, price = observed.costs["generator"], PRICES[MODELS[observed.index - 1]]
            usd += float(
                price.of(*(np.float64(getattr(own, f"{kind}_tokens")) for kind in ("uncached", "cached", "output")))
            )
            usd += observed.costs.get("verifier", Cost(calls=0)).uncached_tokens / 1e6
        spent.append(usd)
    prices = {**PRICES, "verifier": Price(uncached=1, cached=1, output=1)}
    row = replay(recording, [policy], metrics="em", prices=prices, resampling=DRAWS).row(policy.label)
    assert row.costs["money"] == pytest.approx(np.mean(spent))


def test_each_model_alone_pays_one_attempt_in_a_replay(endpoint, tmp_path):
    record(questions(), loop(endpoint), tmp_path / "r.parquet")
    recording = read_recording(tmp_path / "r.parquet")
    result = replay(recording, ["answer_stable"], metrics="em", prices=PRICES, cost="money", resampling=DRAWS)
    rows = {row.label: row for row in result.rows}
    assert [rows[f"{name} alone"].calls.mean for name in MODELS] == [1, 1, 1]
    assert [rows[f"{name} alone"].metrics["em"] for name in MODELS] == pytest.approx([2 / 6, 4 / 6, 1])
    whole = rows["fixed_k(3)"].costs["money"]
    assert whole == pytest.approx(sum(rows[f"{name} alone"].costs["money"] for name in MODELS))
    assert rows["large alone"].costs["money"] < whole
    assert result.baseline == "large alone"
    mixed = rows["answer_stable"].mixture
    assert mixed is not None
    assert {mixed.cheap, mixed.dear} <= {f"{name} alone" for name in MODELS} | {"fixed_k(1)"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"names": ["small"]}, "two models"),
        ({"policy": Policy(rule="answer_stable", max_rounds=4)}, "max_rounds=3"),
        ({"wave": 2}, "wave=1"),
        ({"names": ["small", "small", "large"], "policy": Policy(max_rounds=3)}, "list each once"),
    ],
)
def test_an_escalation_that_cannot_run_is_refused_before_it_asks(endpoint, options, said):
    options = {"policy": Policy(rule="answer_stable", max_rounds=1), **options}
    with pytest.raises(DataError, match=said):
        loop(endpoint, **options).run(TOWER)
    assert not endpoint.requests


def test_a_policy_belongs_to_its_models_in_their_order(endpoint, tmp_path):
    record(questions(), loop(endpoint), tmp_path / "r.parquet")
    policy = policy_for(read_recording(tmp_path / "r.parquet"), "answer_stable")
    with pytest.raises(ConfigMismatchError, match="belongs to another"):
        loop(endpoint, names=MODELS[::-1], policy=policy).run(TOWER)


def test_the_command_line_escalates_and_records_every_model(endpoint, tmp_path):
    at = ("--model", ",".join(MODELS), "--base-url", endpoint.url, "--set", "escalate=true")
    at = (*at, "--prompt", "answer_first")
    shown = cli("sample", "answer", "Where is tower 1?", *at, "--json").json
    assert (shown["answer"], shown["stop_round"], shown["fired"]) == (
        "Oslo",
        3,
        "(answer_stable >= 1) & (abstained < 1)",
    )
    lines = [{"id": q.question_id, "question": q.question, "answers": ["Oslo"]} for q in questions()]
    path = tmp_path / "r.parquet"
    cli("sample", "record", dataset(tmp_path / "q.jsonl", *lines), "-o", path, *at)
    recording = read_recording(path)
    assert attempts_of(recording) == MODELS
    assert recording.shape == (6, 3)
    assert not recording.independent


def test_pasted_lines_of_a_recorded_escalation_stop_where_it_was_judged(endpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    record(questions(), loop(endpoint, temperature=0.5), "r.parquet")
    recording = read_recording("r.parquet")
    policy = policy_for(recording, "answer_stable")
    policy.save("policy.json")
    lines = cli("deploy", "policy.json", "--json").json["lines"]
    assert "loop = EscalationLoop(" in lines
    space = {}
    exec(lines, space)
    decided = [space["ask"](question.question) for question in questions()]
    stopped = PreparedRecording.of(recording).stops(policy)
    assert [decision.stop_round for _, decision in decided] == stopped.rounds.tolist()
    answers = recording.objects("answer")[np.arange(6), stopped.answer_rounds - 1]
    assert [answer for answer, _ in decided] == answers.tolist()


@pytest.mark.parametrize("changed", [{"prompt_id": "own@1"}, {"attempts": ["small", "middle"]}, {"retriever": "bm25"}])
def test_lines_of_another_loop_are_not_those_of_an_escalation_loop(endpoint, changed):
    depends = {**loop(endpoint).depends, **changed}
    lines = own_lines(Policy(rule="answer_stable", max_rounds=2, depends=depends), "policy.json")
    assert "EscalationLoop" not in lines
    assert 'MODELS = ["small", "middle"]' in lines
