"""Recorded drafting loops: nothing paid for is lost, and replay equals a live run, on llama.cpp's own server too."""

from __future__ import annotations

import asyncio
import json
import math
import zlib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from suffice import ChatModel, Cost, DraftingLoop, Policy, Reply, parse_rule, parse_selector, read_recording, record
from suffice.errors import ConfigMismatchError, DataError, ModelError
from suffice.evaluation.replay import LIVE, CostTable, replay
from suffice.evaluation.replay.checks import policy_for
from suffice.evaluation.statistics import Resampling
from suffice.loops.judges import JudgeModel, Panel
from suffice.loops.models import DRAFTING
from suffice.policy.embedding import DraftEmbedder
from suffice.policy.session import stops
from suffice.recordings import Recording, ResponseCache
from suffice.recordings.journal_file import read_records
from suffice_reader.minilm import MiniLM
from tests.support import children, drafting, llamacpp, strategies as drawn
from tests.support.cli_tools import cli
from tests.support.drafting import ROUNDS, known_questions, loop, questions, reply, role_of
from tests.support.endpoint import Endpoint, prompt_of

RULES = ["critic_approved >= 1", "answer_stable >= 1", "round >= 2", "first_of((critic_approved >= 1), (tokens > 400))"]


def table_of(path):
    table = read_recording(path).table
    volatile = ("recorded_at", "cost.writer.seconds", "cost.critic.seconds")
    # Which of a prompt's tokens were cached depends on what the endpoint saw in between.
    names = [n for n in sorted(table.column_names) if n not in volatile and not n.endswith("cached_tokens")]
    return {name: table.column(name).to_pylist() for name in names}


def test_a_recording_holds_drafts_feedback_and_tokens_by_component(tmp_path):
    with Endpoint(reply) as endpoint:
        summary = record(questions(3), loop(endpoint.url), tmp_path / "r.parquet")
    recording = read_recording(tmp_path / "r.parquet")
    assert recording.shape == (3, ROUNDS)
    assert recording.objects("feedback")[0].tolist()[1:3] == ["Say more than draft 2 does.", "Approved"]
    assert recording.objects("passage_ids")[0, 0] == ["c1", "c2"]
    for component in ("writer", "critic"):
        assert (recording.column(f"cost.{component}.calls") == 1).all()
        assert (recording.column(f"cost.{component}.output_tokens") > 0).all()
        assert summary.costs[component].calls == 3 * ROUNDS
    assert recording.metadata["depends"] == {"model": "writer", "critic": "writer", "prompt_id": "drafting@1"}
    assert set(recording.ends) == {"max_rounds"}  # recorded past the approval: no rule is asked


def committed(journal):
    """Return the (question, round, part) of the replies that a killed run had committed."""
    records = [record for record in read_records(journal) if record[0] == "replies"]
    return {(question_id, r, part) for _, question_id, replies in records for r, part, _ in replies}


def key_of(prompt):
    """Return the question, round and part that a prompt belongs to."""
    question = "q" + prompt.split("Where is tower ")[1].split("?")[0]
    drafted = int(prompt.rpartition("\nDraft ")[2].partition(".")[0]) if "\nDraft " in prompt else 0
    return (question, drafted, "critic") if role_of(prompt) == "critic" else (question, drafted + 1, "writer")


def kill_after(replies, url, path, concurrency):
    """Record in a process of its own and kill it once it has committed that many replies."""
    child, pipe = children.told(drafting.run, url, str(path), concurrency)
    with pipe:
        for number in range(replies):
            if number:
                pipe.send("go on")
            assert pipe.recv() == "ready"
        children.killed(child)
    return committed(path.with_name(path.name + ".journal"))


@pytest.mark.whole
def test_kills_repeat_no_committed_call_and_change_nothing(tmp_path):
    killed, whole = tmp_path / "killed.parquet", tmp_path / "whole.parquet"
    with Endpoint(reply, latency_s=0.02) as endpoint:
        for replies in (2, 9, 20):
            endpoint.allow = len(endpoint.requests) + replies + 3
            safe = kill_after(replies, endpoint.url, killed, 3)
        before = Counter(key_of(request.prompt) for request in endpoint.requests)
        endpoint.allow = None
        record(questions(), loop(endpoint.url), killed)
        sent = Counter(key_of(request.prompt) for request in endpoint.requests)
    assert len(safe) > 20
    assert {part for _, _, part in safe} == {"writer", "critic"}
    assert {key: sent[key] for key in safe} == {key: before[key] for key in safe}
    assert len(sent) == 12 * ROUNDS * 2
    assert sum(sent.values()) - len(sent) <= 3 * 3  # at most the calls in flight at each kill
    with Endpoint(reply) as endpoint:
        record(questions(), loop(endpoint.url), whole)
    assert table_of(killed) == table_of(whole)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["killed.parquet", "whole.parquet"]


def test_a_failing_critic_costs_no_draft_twice(tmp_path):
    path = tmp_path / "r.parquet"
    with Endpoint(reply, fault=[None, None, None, "500"]) as endpoint:
        summary = record(questions(1), loop(endpoint.url), path)
        assert list(summary.failed) == ["q0"]
        assert read_recording(path).shape == (1, 1)  # whole rounds only; draft 2 waits in the journal
        record(questions(1), loop(endpoint.url), path)
        assert len(endpoint.requests) == 2 * ROUNDS + 1
    assert read_recording(path).shape == (1, ROUNDS)


def test_an_empty_draft_is_recorded_without_a_critic(tmp_path):
    def misbehave(body):
        return "" if role_of(prompt_of(body)) == "draft" else reply(body)

    with Endpoint(misbehave) as endpoint:
        record(questions(1), loop(endpoint.url), tmp_path / "r.parquet")
        assert len(endpoint.requests) == ROUNDS
    recording = read_recording(tmp_path / "r.parquet")
    assert recording.answers.tolist() == [[None] * ROUNDS]
    assert recording.column("cost.writer.calls").sum() == ROUNDS


def test_drafts_of_200k_characters_are_recorded_whole(tmp_path):
    page = "The tower stands in Oslo. " * 8000
    with Endpoint(lambda body: "Shorter." if role_of(prompt_of(body)) == "critic" else page) as endpoint:
        made = loop(endpoint.url, Policy(max_rounds=2))
        record(questions(1), made, tmp_path / "r.parquet")
    assert read_recording(tmp_path / "r.parquet").answers.tolist() == [[page.strip()] * 2]


def test_another_critic_or_prompt_never_goes_into_the_same_file(tmp_path):
    path = tmp_path / "r.parquet"
    with Endpoint(reply) as endpoint:
        made = loop(endpoint.url)
        record(questions(1), made, path)
        critic = ChatModel("other", base_url=endpoint.url)
        for changed in (
            replace(made, critic=critic),
            replace(made, prompt=replace(DRAFTING, revise="\n\nTask: try again.")),
            replace(made, max_tokens=7),
        ):
            with pytest.raises(ConfigMismatchError, match="another configuration"):
                record(questions(2), changed, path)


def test_rounds_that_build_on_each_other_are_not_sent_together(tmp_path):
    with Endpoint(reply) as endpoint, pytest.raises(DataError, match="parallel_rounds"):
        record(questions(1), loop(endpoint.url), tmp_path / "r.parquet", parallel_rounds=True)


def test_the_response_cache_pays_once(tmp_path):
    with Endpoint(reply) as endpoint:
        cache = ResponseCache(tmp_path / "cache.sqlite")
        writer = ChatModel("writer", base_url=endpoint.url, cache=cache)
        made = DraftingLoop(writer=writer, policy=Policy(max_rounds=ROUNDS))
        record(questions(2), made, tmp_path / "a.parquet")
        sent = len(endpoint.requests)
        summary = record(questions(2), made, tmp_path / "b.parquet")
        assert len(endpoint.requests) == sent
        cache.close()
    assert summary.cost.calls == 0
    assert table_of(tmp_path / "a.parquet") == table_of(tmp_path / "b.parquet")


def test_replay_equals_live_decisions(tmp_path):
    with Endpoint(reply) as endpoint:
        record(questions(3), loop(endpoint.url), tmp_path / "r.parquet")
        recording = read_recording(tmp_path / "r.parquet")
        for rule in RULES:
            policy = Policy(rule=parse_rule(rule), max_rounds=ROUNDS)
            made = loop(endpoint.url, policy)
            assert_equal(recording, policy, [made.run(q.question, q.passages) for q in questions(3)])


def test_recorded_embeddings_replay_a_distance_rule_as_live(tmp_path):
    embedder = DraftEmbedder(MiniLM())
    rule = parse_rule("patience((semantic_distance < 0.05), 2)")

    def converge(body):
        return reply(body).replace("Draft 4.", "Draft 4. It is old, and open to nobody.")

    with Endpoint(converge) as endpoint:
        record(questions(2), loop(endpoint.url, enrichers=(embedder,)), tmp_path / "r.parquet")
        recording = read_recording(tmp_path / "r.parquet")
        policy = policy_for(recording, rule)
        assert policy.depends["embedder"] == dict(embedder.fingerprint())
        made = loop(endpoint.url, policy, enrichers=(embedder,))
        outcomes = [made.run(question.question, question.passages) for question in questions(2)]
        assert_equal(recording, policy, outcomes)
        distances = recording.column("semantic_distance")
        assert [d["semantic_distance"] for d in (o.decision.signals for o in outcomes)] == distances[:, 2].tolist()
        assert {o.decision.stop_round for o in outcomes} == {3}
        assert (recording.column("cost.embedder.calls") == 1).all()
        other = replace(policy, depends={**policy.depends, "embedder": {"id": "bge-small-en-v1.5"}})
        with pytest.raises(ConfigMismatchError, match="embedder"):
            loop(endpoint.url, other, enrichers=(embedder,)).check()
        with pytest.raises(ModelError, match="embedding"):
            loop(endpoint.url, policy).check()
    assert np.isnan(distances[:, 0]).all()


class Directions:
    """An embedder of few directions, by the hash of the text."""

    id, revision, pooling = "directions", "1", "none"

    def embed(self, texts):
        return self.embed_costed(texts)[0]

    def embed_costed(self, texts):
        return np.array([[1.0, zlib.crc32(t.encode()) % 3] for t in texts], dtype=np.float32), Cost(calls=len(texts))


class Marker:
    """A judge that marks by the hash of the draft."""

    name = "judge:information_score"
    capabilities = frozenset({"information_score"})

    def fingerprint(self):
        return {"kind": "marker"}

    async def measure(self, question, observed):
        score = math.nan if not observed.answer else zlib.crc32(observed.answer.encode()) % 5 / 4
        return Reply(
            signals={"information_score": score}, costs={self.name: Cost(calls=4, uncached_tokens=7, output_tokens=4)}
        )


def whimsical(body):
    """Draft, fail to draft, approve and praise by the hash of the prompt."""
    prompt = prompt_of(body)
    chance = zlib.crc32(prompt.encode())
    if role_of(prompt) == "critic":
        return ("Approved.", "This is good and clear.", "This is wrong and unclear.", "")[chance % 4]
    return ("", "It stands in Oslo.", "It stands in Lima.", "In Oslo.", "It is in Oslo, Norway.")[chance % 5]


MEASURING = (DraftEmbedder(Directions()), Marker())
READ = (
    *("critic_approved", "critic_praise", "semantic_distance", "semantic_distance_2", "information_gain"),
    *("information_score", "answer_stable", "draft_tokens", "round", "calls", "tokens"),
)
SELECTED = ("last", "majority", "max_critic_praise", "max_information_score", "centroid")


@pytest.fixture(scope="module")
def whims(tmp_path_factory):
    """An endpoint, and what was recorded of it."""
    path = tmp_path_factory.mktemp("whims") / "r.parquet"
    with Endpoint(whimsical, usage="plain") as endpoint:
        record(questions(5), loop(endpoint.url, enrichers=MEASURING), path)
        yield endpoint, read_recording(path)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn.rules(READ), st.sampled_from(SELECTED), st.integers(1, ROUNDS), st.booleans())
def test_a_live_run_pays_what_replay_charges_component_by_component(whims, rule, selector, max_rounds, whole):
    endpoint, recording = whims
    policy = Policy(rule=rule, selector=parse_selector(selector), max_rounds=ROUNDS if whole else max_rounds)
    made = loop(endpoint.url, policy, enrichers=MEASURING)
    assert_equal(recording, policy, [made.run(q.question, q.passages) for q in questions(5)])


def test_a_selector_that_looks_back_further_than_there_are_rounds_is_charged(whims):
    endpoint, recording = whims
    policy = Policy(selector=parse_selector("centroid"), max_rounds=ROUNDS)
    made = loop(endpoint.url, policy, enrichers=MEASURING)
    assert_equal(recording, policy, [made.run(q.question, q.passages) for q in questions(5)])


@pytest.mark.parametrize(
    "rule", ["fixed_k(1)", "fixed_k(2)", "fixed_k(4)", "critic_only", "answer_stable", "calls >= 3"]
)
def test_without_enrichers_a_live_run_pays_what_replay_charges(whims, rule):
    endpoint, recording = whims
    policy = Policy(rule=parse_rule(rule), max_rounds=ROUNDS)
    made = loop(endpoint.url, policy)
    outcomes = [made.run(q.question, q.passages) for q in questions(5)]
    assert_equal(without_enrichers(recording), policy, outcomes)
    waited = [asyncio.run(made.run_async(q.question, q.passages)) for q in questions(5)]
    assert_equal(without_enrichers(recording), policy, waited)


def without_enrichers(recording):
    names = [name for name in recording.table.column_names if not name.startswith(("cost.judge", "cost.embedder"))]
    return Recording(recording.table.select(names), recording.metadata)


def test_fixed_budgets_pay_for_no_critique_that_nobody_reads(whims):
    _, recording = whims
    drafted = recording.answers != None  # noqa: E711 - an array
    for k in range(1, ROUNDS + 1):
        found = replay(recording, [f"fixed_k({k})"], metrics=("f1",), resampling=Resampling(n_resamples=10))
        paid = found.row(f"fixed_k({k})").components
        assert paid["writer"]["calls"] == k
        assert paid["critic"]["calls"] == pytest.approx(drafted[:, : k - 1].sum() / 5)
    published = replay(
        recording, ["fixed_k(1)"], metrics=("f1",), resampling=Resampling(n_resamples=10), ledger="published"
    )
    assert published.row("fixed_k(1)").components["critic"]["calls"] == pytest.approx(drafted[:, 0].mean())


def test_a_recording_holds_the_critique_of_every_draft_the_last_one_too(whims):
    _, recording = whims
    drafted = recording.answers != None  # noqa: E711 - an array
    assert (recording.column("cost.critic.calls") == drafted).all()
    given = recording.objects("feedback") != None  # noqa: E711
    assert (given == drafted).all()
    assert np.isfinite(recording.column("critic_approved")[:, 1:][drafted[:, 1:]]).all()


def assert_equal(recording, policy, outcomes):
    replayed = stops(policy, recording.rounds(policy.raw_columns))
    assert [o.decision.stop_round for o in outcomes] == replayed.rounds.tolist()
    assert [o.decision.reason for o in outcomes] == replayed.reasons(recording.ends, policy.max_rounds)
    answers = recording.answers[np.arange(len(outcomes)), replayed.answer_rounds - 1]
    assert [o.answer for o in outcomes] == answers.tolist()
    table = CostTable(recording)
    masks = LIVE.policy_masks(table, policy, replayed)
    feedback = recording.objects("feedback")
    for n, outcome in enumerate(outcomes):
        for place, observed in enumerate(outcome.rounds):
            asked = masks["critic"][n, place]
            assert observed.feedback == (feedback[n, place] if asked else None)
        for component in table.components:  # component by component, round by round
            for kind in ("calls", "output_tokens"):
                paid = np.where(masks[component][n], table.columns[component][kind][n], 0.0)[: len(outcome.rounds)]
                live = [getattr(r.costs.get(component, Cost()), kind) for r in outcome.rounds]
                assert live == paid.tolist(), (component, kind, str(policy.rule))


def test_on_llamacpp_a_killed_recording_goes_on_and_replay_equals_live(taught_model, tmp_path):
    path, whole = tmp_path / "r.parquet", tmp_path / "whole.parquet"
    asked = known_questions()
    with llamacpp.start_server(taught_model) as server:  # and no response cache anywhere
        safe = kill_after(7, server.url, path, 1)
        resumed = loop(server.url)
        record(asked, resumed, path, concurrency=1)
        record(asked, loop(server.url), whole, concurrency=1)
        outcomes = {}
        for rule in RULES:
            live = loop(server.url, Policy(rule=parse_rule(rule), max_rounds=ROUNDS))
            outcomes[rule] = [live.run(question.question, question.passages) for question in asked]
    recording = read_recording(path)
    assert recording.shape == (len(asked), ROUNDS)
    assert len(safe) >= 6
    calls = sum(recording.column(f"cost.{part}.calls").sum() for part in ("writer", "critic"))
    assert len(safe) + resumed.writer.stats.requests_sent == calls  # nothing that was committed is asked again
    assert table_of(path) == table_of(whole)
    for rule in RULES:
        assert_equal(recording, Policy(rule=parse_rule(rule), max_rounds=ROUNDS), outcomes[rule])
    assert len({outcome.decision.stop_round for outcome in outcomes["answer_stable >= 1"]}) > 1
    assert (recording.column("cost.critic.cached_tokens") > 0).all()  # the writer has paid for the contexts


def test_the_command_line_records_and_drafts(tmp_path):
    from tests.support.cli_tools import corpus, dataset

    file, folder = dataset(tmp_path / "q.jsonl", n=2), corpus(tmp_path / "docs")
    with Endpoint(reply) as endpoint:
        arguments = ("draft", "record", file, "-o", tmp_path / "r.parquet", "--model", "m", "--base-url", endpoint.url)
        told = cli(*arguments, "--max-rounds", 3, "--json").json
        assert (told["questions"], told["rounds"], told["calls"]) == (2, 6, 18)  # and an embedding for each draft
        assert len(endpoint.requests) == 12
        told = cli(
            *("draft", "answer", "Where is tower 0?", "--model", "m", "--base-url", endpoint.url, "--contexts", folder),
            *("--set=critic-model=c", "--rule", "critic_approved >= 1", "--json"),
        ).json
        assert {request.body["model"] for request in endpoint.requests[12:]} == {"m", "c"}
        assert (told["stop_round"], told["reason"]) == (3, "rule")
        assert told["rounds"][0]["feedback"] == "Say more than draft 1 does."
        assert set(told["costs"]) == {"writer", "critic"}
        shown = cli("draft", "answer", "Where?", "--model", "m", "--base-url", endpoint.url, "--max-rounds", 2)
        assert "Say more than draft 1 does." in shown.out
    with Endpoint(reply, fault="400") as endpoint:
        failed = cli("draft", "record", file, "-o", tmp_path / "f.parquet", "--model", "m", "--base-url", endpoint.url)
    assert failed.code == 1
    assert "needs an endpoint" in cli("draft", "answer", "Where?", "--model", "m").error
    assert "critic-base-url" not in cli("draft", "answer", "Where?", "--model", "m").error


def marked(body):
    """Mark drafts, in the schema of the mark: the second draft is as good as the first."""
    if "response_format" not in body:
        return reply(body)
    return json.dumps(
        {
            "statements": [{"statement": "s", "supported": True}],
            "mark": 3,
            "passages": [{"number": n, "useful": True} for n in (1, 2)],
        }
    )


def test_the_whole_cascade_runs_from_the_command_line_and_its_recording_replays(tmp_path):
    from tests.support.cli_tools import corpus, dataset

    folder = corpus(tmp_path / "docs")
    paragraphs = [{"title": f"T{i}", "text": f"Text {i}."} for i in range(2)]
    file = dataset(
        tmp_path / "q.jsonl", {"id": "a", "question": "Where?", "answers": ["Oslo"], "paragraphs": paragraphs}
    )
    judge = ("--judge-model", "j", "--set=marks=faithfulness,answer_relevancy")
    with Endpoint(marked) as endpoint:
        model = ("--model", "m", "--base-url", endpoint.url)
        told = cli(
            *("draft", "answer", "Where is tower 0?", *model, *judge, "--contexts", folder, "--max-rounds", 4),
            *("--rule", "semantic_full(0.000001)", "--json"),
        ).json
        assert (told["stop_round"], told["reason"], told["fired"]) == (2, "rule", "information_gain <= 0")
        assert told["costs"]["judge:information_score"]["calls"] == 4
        assert {request.body["model"] for request in endpoint.requests} == {"m", "j"}
        told = cli("draft", "record", file, *model, *judge, "-o", tmp_path / "r.parquet", "--max-rounds", 3, "--json")
        assert told.code == 0, told.error
    recording = read_recording(tmp_path / "r.parquet")
    assert recording.column("information_score").tolist() == [[0.875] * 3]
    replayed = cli(
        *("replay", tmp_path / "r.parquet", "--rule", "semantic_full(0.000001)", "--metric", "information_score"),
        *("--set=resamples=10", "--json"),
    ).json
    row = next(row for row in replayed["rows"] if row["kind"] == "rule")
    assert row["components"]["judge:information_score"]["calls"] == 4


def test_a_rule_on_one_mark_pays_for_the_panel_live_and_replayed(tmp_path):
    rule = "first_of((critic_approved >= 1), (faithfulness >= 0.5))"
    with Endpoint(marked) as endpoint:
        judge = JudgeModel(ChatModel("j", base_url=endpoint.url, api_key="k"))
        panel = Panel(judge, ["faithfulness", "answer_relevancy"])
        record(questions(2), loop(endpoint.url, enrichers=(panel,)), tmp_path / "r.parquet")
        recording = read_recording(tmp_path / "r.parquet")
        policy = policy_for(recording, parse_rule(rule))
        made = loop(endpoint.url, policy, enrichers=(panel,))
        outcomes = [made.run(question.question, question.passages) for question in questions(2)]
        assert_equal(recording, policy, outcomes)
    assert [(o.decision.stop_round, o.decision.fired) for o in outcomes] == [(1, "faithfulness >= 0.5")] * 2
    assert all(outcome.costs["judge:information_score"].calls == 2 for outcome in outcomes)
    row = next(row for row in replay(recording, [policy]).rows if row.kind == "rule")
    assert row.components["judge:information_score"]["calls"] == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "--judge-model NAME"),
        (("--judge-model", "j"), "--contexts"),
        (("--judge-model", "j", "--set=marks=answer_relevancy"), "two marks or more"),
        (("--judge-model", "j", "--set=marks=context_recall,faithfulness"), "gold answer"),
        (("--set=embedder=none", "--rule", "semantic(0.1)"), "--set embedder=minilm"),
    ],
)
def test_what_a_cascade_lacks_is_an_error_before_the_first_call(options, says):
    with Endpoint(marked) as endpoint:
        arguments = (
            "draft",
            "answer",
            "Where?",
            "--model",
            "m",
            "--base-url",
            endpoint.url,
            "--rule",
            "semantic_full(0.1)",
        )
        assert says in cli(*arguments, *options).error.replace("\n", " ")
        assert not endpoint.requests


@pytest.mark.parametrize(
    ("rule", "options", "says"),
    [
        ("answer_stabel >= 1", (), "Did you mean 'answer_stable'?"),
        ("faithfulness >= 0.5", (), "--judge-model NAME --set marks"),
        ("faithfulnes >= 0.5", ("--judge-model", "j"), "Did you mean 'faithfulness'?"),
    ],
)
def test_a_signal_that_nothing_measures_is_refused_before_the_first_call(tmp_path, rule, options, says):
    from tests.support.cli_tools import corpus

    folder = corpus(tmp_path / "docs")
    with Endpoint(marked) as endpoint:
        model = ("--model", "m", "--base-url", endpoint.url, "--rule", rule)
        assert says in cli("draft", "answer", "Where?", *model, *options, "--contexts", folder).error.replace("\n", " ")
        if not options:
            assert says in cli("answer", "Where?", *model, "--corpus", folder).error.replace("\n", " ")
        assert not endpoint.requests


def test_without_contexts_a_mark_that_needs_none_may_have_all_the_weight():
    with Endpoint(marked) as endpoint:
        told = cli(
            *(
                "draft",
                "answer",
                "Where?",
                "--model",
                "m",
                "--base-url",
                endpoint.url,
                "--rule",
                "semantic_full(0.000001)",
            ),
            *("--judge-model", "j", "--set=weights=answer_relevancy=1", "--json"),
        ).json
    assert (told["stop_round"], told["fired"]) == (2, "information_gain <= 0")
