"""States of a thinking model's chains: read at checkpoints, a probe trained on them, and live runs that stop as replayed."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from training.thinker.puzzles import WHOLE, questions

from suffice import ChatModel, Policy, ThinkingLoop, read_recording, record
from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay import policy_for
from suffice.evaluation.replay.baselines import run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.hosts.lines import own_lines
from suffice.loops.retrieval import Question
from suffice.loops.thinking_loop import CHATML, DEEPSEEK_R1
from suffice.policy.rounds import Round
from suffice.recordings.recording import Recording
from suffice_gates.models import ChainStates, TransformersModel
from suffice_gates.models.state_files import read_states
from suffice_gates.probes import Probe, SettledProbe, checkpoint_labels, collect_chain_states
from suffice_gates.probes.chains import prompt_of_recording, recorded_chains
from tests.support.cli_tools import cli
from tests.support.llamacpp import start_server, stored_model

STORED = Path(__file__).resolve().parents[1] / "data" / "thinker"
ROUNDS, TUNE, TEST = 12, 40, 6

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    return stored_model(tmp_path_factory.mktemp("thinker") / "model", STORED)


@pytest.fixture(scope="module")
def server(thinker):
    with start_server(thinker) as running:
        yield running


def thinking(server, **more) -> ThinkingLoop:
    settings = {"temperature": 1.0, "seed": 3, "extra_body": WHOLE, "max_retries": 0}
    model = ChatModel("thinker", base_url=server.url, api="completions", **settings)
    policy = Policy(max_rounds=ROUNDS)
    return ThinkingLoop(
        **{"model": model, "policy": policy, "every": 16, "trial_tokens": 8, "answer_tokens": 16} | more
    )


def puzzles(n: int, seed: int) -> list[Question]:
    return [
        Question(question_id=f"{seed}-{item['id']}", question=item["question"], answers=tuple(item["answers"]))
        for item in islice(questions(seed=seed), n)
    ]


@pytest.fixture(scope="module")
def source(thinker):
    return ChainStates(TransformersModel(thinker.directory, layers=("middle", "last"), dtype="float32"), CHATML)


@pytest.fixture(scope="module")
def folder(server, thinker, tmp_path_factory):
    """Record tune chains, read their states, and train a probe by the commands; then record test chains with it."""
    made = tmp_path_factory.mktemp("states")
    record(puzzles(TUNE, 11), thinking(server), made / "tune.parquet", concurrency=1)
    states = ("gate", "states", made / "tune.parquet", "-o", made / "tune.states", "--prompt", "thoughts")
    done = cli(*states, "--model", thinker.directory, "--layers", "middle,last", "--set=dtype=float32", code=0)
    train = ("gate", "train", made / "tune.states", "--labels", made / "tune.parquet", "-o", made / "probe")
    done = cli(*train, "--kind", "logistic", "--json", code=0)
    (made / "train.json").write_text(done.out)
    lines = [json.dumps({"id": q.question_id, "question": q.question, "answers": q.answers}) for q in puzzles(TEST, 12)]
    (made / "test.jsonl").write_text("\n".join(lines))
    asked = ("think", "record", made / "test.jsonl", "-o", made / "test.parquet", "--model", "thinker")
    sampled = (f"--set=extra-body={json.dumps(WHOLE | {'seed': 3})}", "--set=temperature=1", "--set=concurrency=1")
    cuts = ("--set=every=16", "--set=trial-tokens=8", "--set=max-tokens=16", f"--max-rounds={ROUNDS}")
    opened = ("--probe", made / "probe", f"--set=gate-model={thinker.directory}", "--set=embedder=minilm")
    done = cli(*asked, "--base-url", server.url, *sampled, *cuts, *opened, code=0)
    return made


def test_one_pass_reads_what_a_pass_for_each_checkpoint_reads(folder, source):
    _, question, rounds = recorded_chains(read_recording(folder / "tune.parquet"))[0]
    assert all(observed.thinking_ids for observed in rounds)
    each = np.stack([source.of_chain(question, rounds[: r + 1])[0] for r in range(len(rounds))])
    np.testing.assert_allclose(source.of_checkpoints(question, rounds), each, atol=1e-4)
    assert np.abs(np.diff(each, axis=0)).max() > 0.1
    assert source.of_chain(question, rounds)[1].uncached_tokens > sum(len(r.thinking_ids) for r in rounds)


def test_a_chain_of_text_is_read_from_its_text(folder, source):
    _, question, rounds = recorded_chains(read_recording(folder / "tune.parquet"))[0]
    text = [Round(index=observed.index, thinking=observed.thinking) for observed in rounds]
    states = source.of_checkpoints(question, text)
    np.testing.assert_allclose(states[-1], source.of_chain(question, text)[0], atol=1e-5)


def test_states_go_on_where_they_were_interrupted(folder, source, tmp_path):
    recording = read_recording(folder / "tune.parquet")
    first = recording.select(np.arange(TUNE) < 3)
    begun = collect_chain_states(source, first, tmp_path / "s")
    whole = collect_chain_states(source, recording.select(np.arange(TUNE) < 5), tmp_path / "s")
    assert 0 < begun.read == begun.stored < whole.stored == begun.stored + whole.read
    stored = read_states(folder / "tune.states")
    again = read_states(tmp_path / "s")
    np.testing.assert_allclose(again.of(list(again.ids)), stored.of(list(again.ids)), atol=1e-2)


def test_checkpoints_of_a_question_share_a_set_and_a_draw(folder):
    labels, questions = checkpoint_labels(read_recording(folder / "tune.parquet"))
    assert set(labels.known.values()) == {0.0, 1.0}
    assert len(set(questions.values())) == TUNE < len(labels.known)
    trained = json.loads((folder / "train.json").read_text())
    assert trained["measured"][0]["n"] < len(labels.known) / 2
    seen = Probe.load(folder / "probe").card.seen
    recording = read_recording(folder / "tune.parquet")
    fitted = seen.among(recording.question_ids, recording.per_question("question", ()).tolist())
    assert 0.5 < fitted.mean() < 1


def test_the_probe_knows_more_than_chance(folder):
    test = read_recording(folder / "test.parquet")
    settled, right = test.column("p_settled"), test.column("em")
    known = ~np.isnan(settled)
    assert settled[known & (right == 1)].mean() > settled[known & (right == 0)].mean()
    assert np.isfinite(test.column("semantic_novelty")).any()


RULES = (
    "p_settled > 0.5",
    "lynx(0.7)",
    "(thinking_hesitation > 0) & (p_settled > 0.4)",
    "(p_settled > 0.3) & deer(0.9)",
)


@pytest.mark.parametrize("rule", RULES)
def test_a_probed_chain_stops_live_as_replayed(server, folder, thinker, rule):
    test = read_recording(folder / "test.parquet")
    policy = Policy(rule=rule, max_rounds=ROUNDS)
    run, stopped = run_policy(PreparedRecording.of(test, metrics=("em",)), policy)
    probe = Probe.load(folder / "probe")
    own = TransformersModel(thinker.directory, layers=(probe.card.layer,), dtype="float32")
    loop = thinking(server, policy=policy, enrichers=(SettledProbe(probe, ChainStates(own, CHATML)),))
    for place, question in enumerate(puzzles(TEST, 12)):
        outcome = loop.run(question.question)
        answered = int(stopped.answer_position[place])
        assert outcome.decision.stop_round == stopped.rounds[place]
        assert outcome.answer == (test.answers[place, answered] if answered >= 0 else None)
        for component in ("prober", "trial"):
            live = outcome.costs[component].calls if component in outcome.costs else 0
            assert live == run.ledger.costs[component]["calls"][place]
    assert len(set(stopped.rounds.tolist())) > 1


def test_the_lines_of_deploy_bring_the_probe(server, folder, thinker, tmp_path, monkeypatch):
    test = read_recording(folder / "test.parquet")
    policy = policy_for(test, "lynx(0.7)")
    lines = own_lines(policy, tmp_path / "policy.json")
    policy.save(tmp_path / "policy.json")
    assert "DraftEmbedder" in own_lines(policy_for(test, "semantic_novelty < 0.5"), "p.json")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    lines = lines.replace('"probe"', repr(str(folder / "probe"))).replace(
        f"({policy.depends['prober']['model']!r}", f"({str(thinker.directory)!r}, dtype='float32'"
    )
    names: dict = {}
    exec(compile(lines, "lines", "exec"), names)
    names["loop"] = replace(names["loop"], model=thinking(server).model)  # sampled with the recording's seed
    _, stopped = run_policy(PreparedRecording.of(test, metrics=("em",)), policy)
    for place, question in enumerate(puzzles(3, 12)):
        answer, decision = names["ask"](question.question)
        assert decision.stop_round == stopped.rounds[place]
        assert answer == test.answers[place, stopped.answer_position[place]]


def test_a_probe_refuses_another_template_and_another_kind_of_states(folder, source, thinker):
    probe = Probe.load(folder / "probe")
    with pytest.raises(ConfigMismatchError, match="thinking_prompt_sha256"):
        SettledProbe(probe, ChainStates(source.model, DEEPSEEK_R1))
    with pytest.raises(ConfigMismatchError, match="prompts thoughts"):
        probe.card.check_prompt("qa")
    with pytest.raises(DataError, match="no place"):
        source.read("What?", [object()])
    assert source.read("What is 2 plus 2?").values.shape == source.read_batch(["What is 2 plus 2?"]).shape[1:]
    train = ("gate", "train", folder / "tune.states", "--labels", folder / "tune.parquet", "-o", folder / "other")
    refused = cli(*train, "--set=least=0.7", code=1)
    assert "leave out least" in refused.err
    refused = cli(*train[:4], folder / "test.jsonl", *train[5:], code=1)
    assert "give their recording" in refused.err
    states = ("gate", "states", folder / "test.jsonl", "-o", folder / "no.states", "--prompt", "thoughts")
    refused = cli(*states, "--model", thinker.directory, code=1)
    assert "is not a recording" in refused.err


def test_chains_without_their_words_or_template_are_refused(folder, source, tmp_path):
    recording = read_recording(folder / "tune.parquet")
    bare = Recording(recording.table.drop(["thinking"]), recording.metadata)
    with pytest.raises(DataError, match="column 'thinking'"):
        collect_chain_states(source, bare, tmp_path / "s")
    named = recording.table.schema.get_field_index("prompt_id")
    mine = pa.array(["mine@1"] * len(recording.table))
    with pytest.raises(DataError, match="ThinkingPrompt"):
        prompt_of_recording(Recording(recording.table.set_column(named, "prompt_id", mine), recording.metadata))
    assert prompt_of_recording(recording) == CHATML
