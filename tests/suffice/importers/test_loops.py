"""Two models, prompts or systems in one recording are two loops: no verdict is about both, and --where chooses one."""

from __future__ import annotations

import numpy as np
import pytest

from suffice import Claim, Policy, certify, decide, read_recording, write_recording
from suffice.errors import ConfigMismatchError, NotFoundError, UnsettledError
from suffice.recordings.recording import Recording
from suffice.recordings.runs import loops_by_label
from suffice.verdicts.decisions import Advice
from suffice.verdicts.watches import watch
from tests.support.cli_tools import cli
from tests.support.production import POLICY, production_log
from tests.support.shared import recording_of

CLAIM = Claim(epsilon=0.05)


def losing(n, *, share, seed, **columns):
    """Answers of two rounds: the first one loses in a share of the questions."""
    rng = np.random.default_rng(seed)
    answers = [["b" if lost else "a", "a"] for lost in (rng.random(n) < share).tolist()]
    return recording_of(answers, **columns)


def two_models(n=300):
    """Return the rounds of two models: the first round of A loses 30 points, that of B none."""
    rng = np.random.default_rng(1)
    answers = [["b" if lost else "a", "a"] for lost in (rng.random(n) < 0.3).tolist()] + [["a", "a"]] * n
    return recording_of(answers, model=["A"] * n + ["B"] * n, question=[f"Question {q % n}?" for q in range(2 * n)])


def saved(path, recording):
    write_recording(path, recording.table, recording.metadata)
    return path


@pytest.mark.parametrize("command", ["replay", "replay --jobs 1", "search", "report -o page.html", "diagnose"])
def test_no_command_prints_one_mean_over_two_models(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "both.parquet", two_models(60))
    name, *options = command.split()
    refused = cli(name, "both.parquet", *options)
    assert (refused.code, "--where model=A" in refused.err) == (2, True)
    assert "loops of" not in cli(name, "both.parquet", *options, "--where", "model=A").err


def test_a_gain_of_one_model_makes_up_for_no_loss_of_another():
    n, rng = 1000, np.random.default_rng(1)
    losing_one = [["b" if lost else "a", "a"] for lost in (rng.random(n) < 0.05).tolist()]
    gaining_one = [["a", "b" if gained else "a"] for gained in (rng.random(n) < 0.08).tolist()]
    texts = [f"text {q}" for q in range(n)] * 2
    recording = recording_of(losing_one + gaining_one, model=["A"] * n + ["B"] * n, question=texts)
    with pytest.raises(UnsettledError) as raised:
        decide(recording, max_loss=0.02)
    for part in (
        "loops of 2 values of 'model'",
        "recording.where(model=...)",
        "--where model=A (1,000 questions)",
        "model=B",
    ):
        assert part in str(raised.value)
    assert len(str(raised.value)) < 600
    assert decide(recording.where(model="A"), max_loss=0.02).verdict != "do it"
    advised = decide(recording.where(model="B"), max_loss=0.02)
    assert advised.verdict == "do it"
    assert advised.policy.depends["model"] == "B"


@pytest.mark.parametrize(
    "name", ["model", "prompt_id", "system", "temperature", "model_name", "config", "request.model"]
)
def test_no_verdict_is_about_two_values_of_a_label_of_the_loop(name):
    values = [0.0, 0.7] if name == "temperature" else ["one", "two"]
    columns = {name: [value for value in values for _ in range(100)]}
    recording = losing(200, share=0.0, seed=1, **columns)
    first = {name: str(values[1])}
    with pytest.raises(UnsettledError, match=f"--where {name}={values[1]} "):
        decide(recording)
    with pytest.raises(UnsettledError, match=f"--where {name}={values[1]} "):
        certify(recording, ["fixed_k(1)"], CLAIM)
    if name not in ("model", "temperature"):  # all name the loop by the same function
        return
    assert decide(recording.where(**first)).n < 100
    assert certify(recording.where(**first), ["fixed_k(1)"], CLAIM).n == 100
    log = production_log(200, **columns)
    with pytest.raises(UnsettledError, match=f"--where {name}={values[1]} "):
        watch(log, POLICY)
    assert watch(log.where(**first), POLICY).n == 100


def test_tune_questions_of_another_model_choose_nothing():
    tune, recording = (losing(100, share=0.1, seed=seed, model=model) for seed, model in ((1, "A"), (2, "B")))
    renamed = Recording(tune.table.set_column(0, "question_id", [[f"t{name}" for name in tune.table[0].to_pylist()]]))
    for judge in (
        lambda: decide(recording, tune=renamed),
        lambda: certify(recording, ["fixed_k(1)"], CLAIM, tune=renamed),
    ):
        with pytest.raises(ConfigMismatchError, match="model is 'A'"):
            judge()
    with pytest.raises(UnsettledError, match="2 values"):
        decide(recording, tune=two_models(50))


def test_a_decision_goes_on_with_the_same_model_alone(tmp_path):
    first = decide(losing(200, share=0.0, seed=1, model="A"))
    first.save(tmp_path / "d.json")
    again = Advice.load(tmp_path / "d.json")
    later = losing(100, share=0.0, seed=2, model="B")
    with pytest.raises(ConfigMismatchError, match="the model 'A'"):
        decide(later, previous=again)
    unnamed = losing(200, share=0.0, seed=1)
    assert decide(unnamed, previous=again).n == first.n, "a log that names no model is taken at its word"


def test_attempts_of_a_cheap_then_a_dear_model_are_one_loop():
    answers = [["b", "a"]] * 30 + [["a"]] * 30 + [["a", "a"]] * 40
    models = [["small", "large"][: len(rounds)] for rounds in answers]
    recording = recording_of(
        answers, model=models, end=["rule" if len(rounds) == 1 else "max_rounds" for rounds in answers]
    )
    assert not loops_by_label(recording)
    decide(recording)
    assert len(recording.where(model="small + large").question_ids) == 100, "those that ended after the first one, too"
    mixed = recording_of([["a", "a"]] * 100, model=[["small", "large"], ["small", "small"]] * 50)
    with pytest.raises(UnsettledError, match="--where model=small"):
        decide(mixed)
    for chosen in ("small", "small + large"):  # as the message prints them
        assert decide(mixed.where(model=chosen)).n <= 50


def test_a_loop_that_changes_its_model_at_different_rounds_is_one_loop():
    models = [["small", "small", "large"], ["small", "large", "large"]] * 50
    recording = recording_of([["b", "a", "a"]] * 100, model=models)
    assert not loops_by_label(recording), "a choice between one value and itself is none"
    decide(recording)


def test_two_models_samples_are_two_loops_but_a_panel_is_one():
    answers = [["a", "a", "b"]] * 60
    for columns in (
        {"member": [["A", "B", "C"]] * 60},
        {"model": [["A", "B", "C"], ["B", "A", "C"]] * 30},
        {"model": "A"},
    ):
        decide(recording_of(answers, metadata={"exchangeable": True, "normalizer": "qa"}, **columns))
    two = recording_of(answers, metadata={"exchangeable": True, "normalizer": "qa"}, model=["A", "B"] * 30)
    with pytest.raises(UnsettledError, match="model=A"):
        decide(two)


def test_labels_that_say_something_of_the_question_tell_no_loops_apart():
    prompts = [f"Today is day {q}." for q in range(100)]
    recording = losing(100, share=0.0, seed=1, system=prompts, seed_=["1", "2"] * 50, corpus=["wiki", "news"] * 50)
    assert not loops_by_label(recording)
    days = losing(100, share=0.0, seed=1, run_file=["2026-05-01", "b"] * 50)
    assert not loops_by_label(days), "hardly any question is in two files"


def test_unknown_values_and_missing_columns_are_named():
    recording = two_models(10)
    with pytest.raises(NotFoundError, match="model 'C'"):
        recording.where(model="C")
    with pytest.raises(NotFoundError, match="'modle'"):
        recording.where(modle="A")
    numbers = losing(4, share=0.0, seed=1, temperature=[0.0, 0.7, 0.7, 0.7])
    for value in ("0.7", 0.7, "0.70"):
        assert len(numbers.where(temperature=value).question_ids) == 3


def test_a_long_value_is_chosen_as_the_message_shows_it():
    prompts = [
        f"You are a helpful assistant of the department of {what}, and you answer in one word" for what in ("law", "it")
    ]
    recording = losing(
        40, share=0.0, seed=1, system=prompts * 20, model=["m" * 80, "n" * 80] * 20, prompt_id=["p", "r"] * 20
    )
    with pytest.raises(UnsettledError, match="'prompt_id'") as raised:
        decide(recording)
    assert len(str(raised.value)) < 600
    assert "--where model=" + "m" * 40 + "... (20 questions)" in str(raised.value)
    assert set(recording.where(model="m" * 40 + "...").per_question("prompt_id", [])) == {"p"}


def test_two_models_are_refused_and_the_chosen_one_is_judged(tmp_path):
    both = saved(tmp_path / "both.parquet", two_models())
    log = saved(tmp_path / "log.parquet", production_log(400, model=["A"] * 200 + ["B"] * 200))
    POLICY.save(tmp_path / "policy.json")
    (tmp_path / "rules.txt").write_text("fixed_k(1)\n")
    commands = {
        "decide": ("decide", both, "-o", tmp_path / "d.json", "--max-loss", 0.05),
        "certify": ("certify", both, "--rules", tmp_path / "rules.txt", "--max-loss", 0.05),
        "watch": ("watch", log, "--policy", tmp_path / "policy.json"),
    }
    for name, words in commands.items():
        refused = cli(*words, code=2)
        for part in ("--where model=A", "--where model=B", "recording.where(model=...)"):
            assert part in refused.error, name
        assert cli(*words, "--where", "model=C").code == 2
        assert "COLUMN=VALUE" in cli(*words, "--where", "model").error
    decided = cli(*commands["decide"], "--where", "model=B")
    assert "Allow at most 1 round instead of 2" in decided.words
    other = cli(*commands["decide"], "--where", "model=A")
    assert "other questions" in other.error
    lossy = cli("decide", both, "-o", tmp_path / "a.json", "--where", "model=A", "--json")
    assert lossy.json["verdict"] != "do it"
    assert cli(*commands["certify"], "--where", "model=A").code == 1
    assert cli(*commands["certify"], "--where", "model=B").code == 0
    watched = cli(*commands["watch"], "--where", "model=A", code=0)
    assert "--where model=A" in watched.out, "the next command asks of the same model"


def test_tune_questions_are_those_of_the_chosen_model(tmp_path):
    recording = two_models()
    names = recording.question_ids
    tune = np.array([q % 3 == 0 for q in range(len(names))])
    first, rest = (
        saved(tmp_path / "tune.parquet", recording.select(tune)),
        saved(tmp_path / "r.parquet", recording.select(~tune)),
    )
    done = cli(
        "decide", rest, "--tune", first, "-o", tmp_path / "d.json", "--where", "model=B", "--max-loss", 0.05, "--json"
    )
    assert (done.code, done.json["verdict"]) == (0, "do it")
    assert read_recording(rest).where(model="B").metadata["depends"] == {"model": "B"}


def test_the_loops_of_other_policies_and_before_an_upgrade_are_not_judged():
    log = production_log(200, model=["old"] * 100 + ["new"] * 100)
    assert watch(log, POLICY, since=float(log.column("recorded_at")[100, 0])).n == 100
    other = Policy(rule="answer_margin >= 2", max_rounds=3)
    digests = [other.digest] * 100 + [POLICY.digest] * 100
    assert watch(production_log(200, model=["old"] * 100 + ["new"] * 100, policy_digest=digests), POLICY).n == 100
