"""`suffice watch` and `suffice demo watch`: what they print, write and exit with."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from suffice import Policy, read_recording, write_recording
from suffice.cli.watching import EXIT_CODES
from suffice.verdicts.watches import STATUSES
from suffice_reader.demo import watch_demo
from suffice_reader.demo.watch_demo import certified_policy, watched_runs
from tests.support.cli_tools import cli
from tests.support.production import BEGIN, MINUTE, certified, production_log
from tests.support.shared import recording_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watch")
    for name, loss in (("healthy", 0.01), ("broken", 0.4)):
        log = production_log(2000, loss=lambda number, loss=loss: 0.01 if number < 1000 else loss)
        write_recording(folder / f"{name}.parquet", log.table, log.metadata)
    certified().save(folder / "policy.json")
    return folder


def watched(folder, name, *arguments):
    return cli("watch", folder / f"{name}.parquet", "--policy", folder / "policy.json", *arguments)


def test_a_healthy_log_prints_one_sentence_and_exits_with_0(folder):
    shown = watched(folder, "healthy", "--exit-code")
    assert (shown.code, shown.err) == (0, "")
    assert shown.words.startswith("Keep the policy: the harm of em against the full run is ")
    assert len(shown.out.splitlines()) <= 40
    assert f"next: suffice watch {folder}/healthy.parquet --policy {folder}/policy.json" in shown.out


def test_a_broken_log_exits_with_4_and_writes_a_fallback_policy(folder, tmp_path):
    out = {name: tmp_path / name for name in ("safe.json", "audited.parquet", "plot.svg", "plot.html", "figures.prom")}
    shown = watched(folder, "broken", "--exit-code", "--fallback", out["safe.json"], "--audited", out["audited.parquet"],
                    "--plot", out["plot.svg"], "--prometheus", out["figures.prom"])  # fmt: skip
    assert (shown.code, shown.err) == (4, "")
    assert shown.words.startswith("Fall back to full width: ")
    assert str(Policy.load(out["safe.json"]).rule) == "never()"
    assert not Policy.load(folder / "policy.json").suspended, "no file is changed unasked"
    audited = read_recording(out["audited.parquet"])
    assert audited.seen.all()
    assert "alarm" in out["plot.svg"].read_text()
    families = {item.name for item in text_string_to_metric_families(out["figures.prom"].read_text())}
    assert {"suffice_audited_loss", "suffice_e_value", "suffice_log_stops", "suffice_log_rounds_saved"} <= families
    cli("calibrate", out["audited.parquet"], "--rule", "margin", "-o", tmp_path / "again.json", code=0)
    assert watched(folder, "broken").code == 0, "only with --exit-code"


def test_a_policy_file_is_suspended_when_asked_and_every_reader_warns(folder, tmp_path, recwarn):
    policy = tmp_path / "policy.json"
    certified().save(policy)
    for name in ("healthy", "broken"):
        assert cli("watch", folder / f"{name}.parquet", "--policy", policy, "--suspend").code == 0
        assert recwarn.list == []
    with pytest.warns(UserWarning, match="request q1"):
        suspended = Policy.load(policy)
    assert suspended.digest == certified().digest
    assert not suspended.certified


def test_the_certificate_holds_whatever_the_file_of_settings_says(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suffice.toml").write_text("max-loss = 0.5\n")
    assert watched(folder, "broken", "--json").json["question"]["bound"] == 0.03
    assert watched(folder, "broken", "--json", "--max-loss", 0.4).json["question"]["bound"] == 0.4


def test_without_a_certificate_nothing_is_suspended(folder, tmp_path):
    policy = tmp_path / "policy.json"
    production = Policy.load(folder / "policy.json")
    Policy(rule=production.rule, max_rounds=3).save(policy)
    shown = cli("watch", folder / "broken.parquet", "--policy", policy, "--suspend", "--max-loss", 0.03, "--details")
    assert "has no certificate, so nothing is suspended" in shown.out
    assert Policy.load(policy).certificate is None


def test_json_says_the_status_the_sentence_and_the_next_command(folder):
    shown = watched(folder, "broken", "--json")
    values = shown.json
    assert values["status"] == "fall back"
    assert values["sentence"].startswith("Fall back")
    assert values["next"].endswith("--fallback full-width.json --suspend")
    assert values["alarm"]["rang"] > 1000
    together = watched(folder, "broken", "--json", "--prometheus", "-")
    assert together.code == 2
    assert "name a file" in together.error
    plain = watched(folder, "broken", "--prometheus", "-")
    assert [*text_string_to_metric_families(plain.out)]


def test_what_has_moved_exits_with_3_and_prints_the_commands(folder, tmp_path):
    moved = production_log(2000, margin=lambda number: 0.0 if number < 1000 else -1.0)
    write_recording(tmp_path / "moved.parquet", moved.table, moved.metadata)
    policy = folder / "policy.json"
    shown = cli("watch", tmp_path / "moved.parquet", "--policy", policy, "--exit-code", code=3)
    assert "Recalibrate the policy: answer_margin" in shown.words
    assert "--audited audited.parquet" in shown.out
    again = cli("watch", tmp_path / "moved.parquet", "--policy", policy, "--audited", tmp_path / "a.parquet")
    assert f"next: suffice calibrate {tmp_path}/a.parquet --rule 'answer_margin >= 1'" in again.out


def test_the_next_command_asks_the_same_again(folder, tmp_path):
    policy = tmp_path / "policy.json"
    Policy.load(folder / "policy.json").save(policy)
    text = "--metric agreement --max-loss 0.05 --since 2026-01-01 --set deadline=2h --set risk=0.2 --set window=400"
    given = text.split()
    shown = cli("watch", folder / "broken.parquet", "--policy", policy, *given, "--json").json
    words = shown["next"].split()
    assert words[-2:] == ["--fallback", "full-width.json"]
    assert {*zip(given[::2], given[1::2], strict=True)} <= {*itertools.pairwise(words)}
    again = cli(*words[1:-1], tmp_path / "safe.json", "--suspend", "--json").json
    assert again["sentence"] == shown["sentence"]
    assert any("the alarm is not about what is certified" in note for note in again["notes"])
    assert not Policy.load(policy).suspended
    own = cli("watch", folder / "broken.parquet", "--policy", policy, "--suspend", "--json").json
    assert any("is suspended: every program that loads it says so" in note for note in own["notes"])


def test_audited_requests_that_are_no_fair_sample_are_said(folder, tmp_path):
    log = production_log(300, rate=lambda number: (0.5, 0.6)[number % 2], lost=lambda number: number % 3 == 0)
    write_recording(tmp_path / "log.parquet", log.table, log.metadata)
    command = (
        "watch",
        tmp_path / "log.parquet",
        "--policy",
        folder / "policy.json",
        "--audited",
        tmp_path / "a.parquet",
    )
    assert any("audits got lost and audit rates vary" in note for note in cli(*command, "--json").json["notes"])
    fair = watched(folder, "healthy", "--audited", tmp_path / "a.parquet", "--json").json
    assert not any("fair sample" in note for note in fair["notes"])


def test_what_a_log_lacks_is_on_the_first_screen(folder, tmp_path):
    """What every log has follows what this one lacks."""
    log = production_log(2000, rate=lambda number: (0.3, 0.4)[number // 1000], lost=lambda number: 20 <= number < 100)
    write_recording(tmp_path / "log.parquet", log.table, log.metadata)
    shown = cli("watch", tmp_path / "log.parquet", "--policy", folder / "policy.json")
    lost, vary, always = (
        shown.words.find(text) for text in ("got lost (drawn", "audit rates vary", "intervals hold at every look")
    )
    assert 0 < lost < vary
    assert always in (-1, max(lost, vary, always))


def test_a_file_of_user_signals_is_read_as_csv_or_json_lines(folder, tmp_path):
    log = read_recording(folder / "healthy.parquet")
    times = [BEGIN + MINUTE * number for number in range(2000)]
    rows = [(name, time) for name, time in zip(log.question_ids, times, strict=True)][1500:]
    (tmp_path / "s.csv").write_text("question_id,time,value\n" + "".join(f"{n},{t + 5},1\n" for n, t in rows))
    (tmp_path / "s.jsonl").write_text("".join(json.dumps({"question_id": n, "time": t + 5}) + "\n" for n, t in rows))
    results = [
        watched(
            folder, "healthy", "--signal", tmp_path / f"s.{form}", "--set=deadline=2h", "--max-loss", 0.1, "--json"
        ).json
        for form in ("csv", "jsonl")
    ]
    assert {**results[0], "next": ""} == {**results[1], "next": ""}
    assert results[0]["whole"]["mean"] == pytest.approx(0.25)
    assert results[0]["status"] == "fall back"
    assert "36h" in watched(folder, "healthy", "--set=deadline=soon").error
    assert watched(folder, "healthy", "--since", "2026-01-01T10:00:00Z", "--json").json["n"] == 1400


def test_wrong_inputs_are_said_in_one_line(folder, tmp_path):
    assert "does not exist" in cli("watch", tmp_path / "no.parquet", "--policy", folder / "policy.json").error
    Policy(rule="fixed_k(2)").save(tmp_path / "other.json")
    told = cli("watch", folder / "healthy.parquet", "--policy", tmp_path / "other.json")
    assert "no request" in told.error
    plain = recording_of([["a", "b"]])
    write_recording(tmp_path / "plain.parquet", plain.table)
    assert (
        "no column 'policy_digest'"
        in cli("watch", tmp_path / "plain.parquet", "--policy", folder / "policy.json").error
    )


def test_every_status_has_an_exit_code_and_the_help_says_it():
    assert set(EXIT_CODES) == set(STATUSES)
    told = cli("watch", "--help").words
    assert "Exit with 3 if it says recalibrate or" in told
    assert "4 if the alarm has rung" in told


# The demo


def questions_of(n: int, seed: int):
    """Return recorded questions on which a high margin says that the answer is the last one's."""
    rng = np.random.default_rng(seed)
    last = rng.integers(1, 6, size=n)
    answers = [["a" if r >= turn else f"w{r}" for r in range(1, 6)] for turn in last.tolist()]
    margins = [[float(rng.normal(4.0 if r >= turn else 0.0, 0.5)) for r in range(1, 6)] for turn in last.tolist()]
    plain = dict.fromkeys(("answer_length", "top_score", "score_gap", "answer_stable"), 0.0)
    kinds = dict.fromkeys(("answer_margin", *plain), "signal")
    columns = {
        f"cost.generator.{kind}": 1.0 for kind in ("uncached_tokens", "cached_tokens", "output_tokens", "seconds")
    }
    return recording_of(answers, kinds=kinds, answer_margin=margins, question=[f"what is {seed} {q}" for q in range(n)],
                        question_id=[f"{seed}.{q}" for q in range(n)], **plain, **columns)  # fmt: skip


def test_the_demos_alarm_rings_after_its_fault_and_only_then(tmp_path):
    recordings = {"tune": questions_of(100, 1), "eval": questions_of(150, 2)}
    policy = certified_policy(recordings)
    assert policy.certified
    broken, control = watched_runs(recordings["eval"], policy, tmp_path, requests=300, audit_rate=0.5)
    assert broken.result.status == "fall back"
    assert 0 < broken.delay < 300
    assert control.result.status == "keep"
    assert control.delay is None
    assert "true loss: 0.0 points before half-way and" in broken.truth
    log = read_recording(broken.path)
    audited = log.column("audited")[:, 0] == 1
    assert (log.seen[audited].all(axis=1)).all(), "audits run to the end"
    assert 0.4 < audited.mean() < 0.6
    halves = [set(log.question_ids[:300]), set(log.question_ids[300:])]
    assert not halves[0] & halves[1]
    before, after = (log.column("answer_margin")[rows][:, 0] for rows in (slice(300), slice(300, 600)))
    assert not np.isclose(np.sort(before).sum(), np.sort(after).sum()), "other requests"
    healthy = read_recording(control.path).column("answer_margin")[300:, 0]
    assert np.sort(after) == pytest.approx(np.sort(healthy)), "a permutation of the margins at the first round"


def test_the_demo_prints_the_true_loss_both_sentences_and_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr(watch_demo, "record_bundled", lambda *_, **__: None)  # half a minute of the embedded reader
    for split, n in (("tune", 100), ("eval", 150)):
        log = questions_of(n, n)
        write_recording(tmp_path / f"hotpotqa_{split}.parquet", log.table, log.metadata)
    page = tmp_path / "page.md"
    arguments = ("demo", "watch", "-o", tmp_path, "--set=requests=200", "--set=audit-rate=0.8")
    shown = cli(*arguments, f"--set=markdown={page}")
    assert (shown.code, shown.err) == (0, "")
    for words in (
        "true loss: 0.0 points before half-way",
        "Fall back to full width: ",
        "Keep the policy: ",
        "alarm after",
    ):
        assert words in shown.words, words
    assert len(shown.out.splitlines()) <= 40
    text = page.read_text()
    assert "suffice demo watch --set requests=200 --set audit-rate=0.8" in text
    assert "](page.svg)" in text
    assert "alarm" in page.with_suffix(".svg").read_text()
    assert str(Policy.load(tmp_path / "full-width.policy.json").rule) == "never()"
    runs = cli(*arguments, "--json").json["runs"]
    assert [run["watch"]["status"] for run in runs.values()] == ["fall back", "keep"]
    assert [run["delay"] is None for run in runs.values()] == [False, True]
    assert "cannot be written" in cli(*arguments, f"--set=markdown={tmp_path / 'no' / 'page.md'}").error
