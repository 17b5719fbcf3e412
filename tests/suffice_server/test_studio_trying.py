"""What a rule does, at once: the figures of `replay`, in stages, and only for the latest edit."""

from __future__ import annotations

import json
import re
import shlex
import threading
from dataclasses import replace
from html import unescape
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pytest

from suffice.errors import NotFittedError, RuleSyntaxError
from suffice.evaluation.replay import calibrate, replay
from suffice.evaluation.replay.baselines import run_policy
from suffice.evaluation.replay.replayer import ComparedRuns, Replayer
from suffice.evaluation.statistics import Resampling
from suffice.policy.session import Policy, stops
from suffice.recordings import Recording, bundled_recording, read_recording, write_recording
from suffice_server.studio.describing import headline_metric
from suffice_server.studio.workbench import RuleDraft, SupersededError, Workbench
from tests.support.cli_tools import cli
from tests.support.money_logs import eur_recording
from tests.support.report_tools import HOSTILE, hostile, recording
from tests.support.shared import recording_of
from tests.support.studio import filled, opened_studio


def bench_of(known):
    return Workbench(known, headline_metric(known))


def never_superseded():
    return None


def plain(result):
    """Return what both stages know, as JSON."""
    return json.dumps(
        [
            [row.to_dict()[name] for name in ("label", "metrics", "bounds", "stop_rounds", "costs", "dominated_by")]
            for row in result.rows
        ]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("the 'trying' of $HOME"))


@pytest.fixture(scope="module")
def bench(folder):
    return bench_of(read_recording(folder / "eval.parquet"))


CUT = recording_of([["b", "a"], ["a"], ["b", "b", "a"]] * 5, end=["rule", "rule", "max_rounds"] * 5, overlap=0.5)


@pytest.mark.parametrize(
    ("known", "draft"),
    [
        ("eval", RuleDraft(rule="(answer_stable >= 1) & (p_correct > 0.3)")),
        ("eval", RuleDraft(rule="tasr(0.6)", selector="max_p_correct", max_rounds=4, metric="em", cost="tokens")),
        ("eval", RuleDraft(rule="round >= 2", baseline="full", model="gpt-4o-mini")),
        ("cut", RuleDraft(rule="round >= 3")),
        ("samples", RuleDraft(rule="lead(3)")),
    ],
)
def test_the_figures_are_those_of_replay_and_intervals_come_after(bench, known, draft):
    bench = {"eval": bench, "cut": bench_of(CUT), "samples": bench_of(bundled_recording("samples_date"))}[known]
    first, final = bench.stages(draft, never_superseded)
    wanted = replay(
        bench.recording,
        bench.policy(draft),
        metrics=draft.metric or bench.metric,
        baseline=draft.baseline,
        prices=bench.prices(draft.model),
        cost=draft.cost,
    )
    assert plain(final.result) == plain(wanted)
    metric = wanted.metrics[0]
    assert str([row.difference(metric) for row in final.result.rows]) == str(
        [row.difference(metric) for row in wanted.rows]
    )
    assert (first.final, final.final) == (False, True)
    if known != "samples":  # of fewer orders, and it says so
        assert plain(first.result) == plain(wanted)
    else:
        assert "means over 10 random orders" in first.result.notes[0]


def test_a_later_edit_ends_the_one_before_between_its_stages(bench):
    earlier = bench.stages(RuleDraft(rule="round >= 2"), bench.turns.begin("tab"))
    assert not next(earlier).final
    later = bench.stages(RuleDraft(rule="round >= 3"), bench.turns.begin("tab"))
    with pytest.raises(SupersededError):
        next(earlier)
    other = bench.stages(RuleDraft(rule="round >= 4"), bench.turns.begin("another tab"))
    assert [next(other).row.label, *(one.row.label for one in later)] == ["round >= 4", "round >= 3", "round >= 3"]


def test_an_edit_replays_its_own_rule_alone(bench, monkeypatch):
    for _ in bench.stages(RuleDraft(rule="round >= 2"), never_superseded):
        pass
    replayed = []
    monkeypatch.setattr(
        "suffice.evaluation.replay.orders.run_policy",
        lambda prepared, policy, **named: replayed.append(policy.label) or run_policy(prepared, policy, **named),
    )
    for _ in bench.stages(RuleDraft(rule="p_correct > 0.77"), never_superseded):
        pass
    assert replayed == ["p_correct > 0.77"]


def test_every_offered_signal_can_be_read_and_missing_ones_are_not_offered(bench):
    signals = bench.vocabulary().signals
    assert {"p_correct", "answer_stable", "overlap", "round", "calls", "tokens"} <= set(signals)
    assert not {"judge_entailment", "semantic_distance", "p_known", "answer_margin"} & set(signals)
    for name in signals:
        assert next(bench.stages(RuleDraft(rule=f"{name} > 0.5"), never_superseded)).row.rule == f"{name} > 0.5"
    assert bench.vocabulary().values_of("answer_stable") == [0.0, 1.0]
    values = bench.vocabulary().values_of("p_correct")
    assert values == sorted(values)
    assert len(values) == 5


def test_a_saved_policy_was_chosen_on_these_questions_and_says_so(bench, tmp_path):
    policy = Policy.from_dict(json.loads(bench.file(RuleDraft(rule="answer_stable", selector="first", max_rounds=3))))
    assert (str(policy.rule), str(policy.selector), policy.max_rounds) == ("answer_stable >= 1", "first", 3)
    assert replay(bench.recording, policy, resampling=Resampling(n_resamples=10)).rows[0].selected_here
    with pytest.raises(NotFittedError, match="suffice calibrate"):
        bench.file(RuleDraft(rule="tasr"))
    with pytest.raises(RuleSyntaxError):
        bench.file(RuleDraft(rule="tasr +"))


def test_the_fitted_state_of_a_policy_can_be_tried_with_another_rule(tmp_path):
    path = recording(tmp_path / "run.parquet", n=80)
    known = read_recording(path)
    raw = known.table.rename_columns(
        ["answer_margin" if name == "p_correct" else name for name in known.table.column_names]
    )
    unfitted = Recording(raw, known.metadata)
    bench = bench_of(unfitted)
    assert "p_correct" not in bench.vocabulary().signals
    with pytest.raises(NotFittedError):
        next(bench.stages(RuleDraft(rule="p_correct > 0.5"), never_superseded))
    fitted, _ = calibrate(unfitted, rule="tasr")
    draft = RuleDraft(rule="p_correct > 0.5", fitted=fitted)
    assert "p_correct" in bench.vocabulary(fitted).signals
    tryout = next(bench.stages(draft, never_superseded))
    assert tryout.row.selected_here
    assert tryout.deployable == ""
    assert Policy.from_dict(json.loads(bench.file(draft))).calibrators == fitted.calibrators
    assert bench.commands(draft, path)["These figures"].endswith("--policy policy.json")


@pytest.mark.parametrize(
    "draft",
    [
        RuleDraft(rule="(answer_stable >= 1) & (p_correct > 0.3)"),
        RuleDraft(rule="tasr", selector="max_p_correct", max_rounds=4, metric="em", cost="tokens", baseline="full"),
        RuleDraft(rule="round >= 2", model="gpt-4o-mini", start_round=1),
        RuleDraft(rule="answer_stable", baseline="stable.json"),
    ],
)
def test_the_printed_command_gives_the_figures_of_the_page(bench, folder, draft):
    if draft.baseline == "stable.json":
        file = folder / draft.baseline
        draft = replace(draft, baseline=Policy.load(file), baseline_file=file)
    command = shlex.split(bench.commands(draft, folder / "eval.parquet")["These figures"])
    assert command[0] == "suffice"
    row = cli(*command[1:], "--json").json["rows"][0]
    _, final = bench.stages(draft, never_superseded)
    metric = draft.metric or bench.metric
    assert row["rule"] == final.row.rule
    assert row["metrics"][metric] == final.row.metrics[metric]
    assert (row["costs"], row["dominated_by"]) == (final.row.to_dict()["costs"], final.row.dominated_by)
    delta = row["deltas"].get(metric)
    assert [delta["delta"], delta["low"], delta["high"]] == [*final.row.deltas[metric].triple]


# --- over HTTP --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inside(folder):
    hostile(folder / "hostile.parquet")
    with opened_studio(folder) as address, httpx.Client(base_url=address.partition("/open")[0], timeout=600) as client:
        client.get(address)
        yield client


def address_of(inside, name):
    return re.search(rf'href="(/\w+/\w+)"><bdi>{re.escape(name)}</bdi>', inside.get("/").text)[1]


def answers(inside, address, **values):
    response = inside.get(f"{address}/try/figures", params={"tab": "a", **values})
    assert response.status_code == 200
    return [json.loads(line) for line in response.text.splitlines()]


@pytest.mark.whole
def test_of_twenty_quick_edits_only_the_last_is_computed(inside, folder, monkeypatch):
    address = address_of(inside, "eval.parquet")
    answers(inside, address, rule="round >= 2")
    computed, waiting, may_begin = [], [], threading.Event()
    compare = Replayer.compare

    def counted(self, policies, baseline=None, **options):
        computed.append(str(policies.rule))
        may_begin.wait(600)
        return compare(self, policies, baseline, **options)

    monkeypatch.setattr(Replayer, "compare", counted)
    replies = {}

    def edit(number):
        replies[number] = answers(inside, address, rule=f"p_correct > 0.{number}")

    begin, turns = Workbench.stages, []
    monkeypatch.setattr(
        Workbench, "stages", lambda self, draft, check: turns.append(draft.rule) or begin(self, draft, check)
    )
    for number in range(10, 30):
        waiting.append(threading.Thread(target=edit, args=(number,)))
        waiting[-1].start()
        while len(turns) < number - 9 or not computed:  # the first one computes before there is a second
            threading.Event().wait(0.005)
    may_begin.set()
    for thread in waiting:
        thread.join(600)
    assert [number for number, lines in replies.items() if lines[-1].get("final")] == [29]
    assert all(replies[number] == [{"superseded": True}] for number in range(10, 29))
    assert set(computed) == {"p_correct > 0.1", "p_correct > 0.29"}
    assert len(computed) == 2  # the first, which was running, and the last


@pytest.mark.whole
@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"rule": "(answer_stabel >= 1)"}, "Did you mean 'answer_stable'"),
        ({"rule": "answer_stable >="}, "not finished"),
        ({"rule": ""}, "not finished"),
        ({"rule": "tasr", "max_rounds": "many"}, "max_rounds is 'many'"),
        ({"rule": "tasr", "max_rounds": "9"}, "runs to round 9"),
        ({"rule": "tasr", "metric": "nothing"}, "nothing"),
        ({"rule": "tasr", "cost": "nothing"}, "there is no cost 'nothing'"),
        ({"rule": "tasr", "model": "nothing"}, "no list price of 'nothing'"),
        ({"rule": "tasr", "selector": "nothing"}, "is not a selector"),
        ({"rule": "tasr", "baseline": "policy:../../etc/passwd"}, "not in the folder"),
        ({"rule": "tasr", "fitted": "x"}, "not in the folder"),
        ({"rule": "judge_entailment > 3"}, "no such column"),
        ({"rule": "answer_margin > 3"}, "no such column"),
        ({"rule": "(" * 4000}, "is not a rule"),
        ({"rule": "__import__('os')"}, "is not"),
    ],
)
def test_what_cannot_be_tried_is_a_problem_with_its_place(inside, values, problem):
    (answer,) = answers(inside, address_of(inside, "eval.parquet"), **values)
    assert problem in answer["problem"]["message"]
    assert 0 <= answer["problem"]["first"] <= answer["problem"]["last"] <= len(values["rule"])


@pytest.mark.whole
@pytest.mark.parametrize(
    ("values", "base"),
    [
        ({"rule": "p_correct > 0.5"}, Policy(rule="round >= 3")),
        (
            {"rule": "p_correct > 0.5", "max_rounds": "4", "selector": "max_p_correct"},
            Policy(rule="round >= 3", selector="max_p_correct"),
        ),
        ({"rule": "round >= 2", "baseline": "full"}, Policy()),
        ({"rule": "round >= 2", "baseline": "stable.json"}, Policy(rule="answer_stable")),
    ],
)
def test_the_walk_shows_where_the_rule_and_the_baseline_answer_differently(inside, folder, values, base):
    address = address_of(inside, "eval.parquet")
    if values.get("baseline") == "stable.json":
        values = values | {"baseline": "policy:" + address_of(inside, "stable.json").rpartition("/")[2]}
    page = answers(inside, address, **values)[-1]["html"]
    (link,) = [unescape(part) for part in re.findall(r'href="([^"]*show=against)"', page)]
    known = read_recording(folder / "eval.parquet")
    ids, rows = known.answer_ids("qa"), np.arange(known.shape[0])
    mine = Policy(
        rule=values["rule"], max_rounds=int(values.get("max_rounds", 5)), selector=values.get("selector", "last")
    )
    places = [stops(one, known.rounds(one.raw_columns)).answer_rounds - 1 for one in (mine, base)]
    n = int((ids[rows, places[0]] != ids[rows, places[1]]).sum())
    listed = inside.get(link)
    assert listed.status_code == 200
    assert 0 < n < len(rows)
    assert f"{n} questions" in listed.text
    question = re.search(r'href="(/recording/[^"]*/questions/\d+[^"]*)"', listed.text)[1]
    assert inside.get(unescape(question)).status_code == 200


@pytest.mark.whole
def test_text_of_a_recording_stays_text_in_every_answer(inside):
    address = address_of(inside, "hostile.parquet")
    texts = [inside.get(f"{address}/try").text, inside.get(f"{address}/try", params={"rule": HOSTILE[0]}).text]
    texts += [answer["html"] for answer in answers(inside, address, rule="round >= 2")]
    for bad in HOSTILE:
        reply = inside.get(f"{address}/try/completion", params={"text": bad, "cursor": 3, "what": "rule"})
        assert reply.headers["content-type"] == "application/json"
        (answer,) = answers(inside, address, rule=bad)
        assert answer["problem"]["message"]
    assert not [text for text in texts if "<script>alert" in text or "<img src=x" in text]


def test_many_questions_use_fewer_draws_and_the_command_says_so(bench, monkeypatch):
    monkeypatch.setattr("suffice_server.studio.workbench._MANY_UNITS", 100)
    few = bench_of(bench.recording)
    *_, final = few.stages(RuleDraft(rule="round >= 2"), never_superseded)
    assert final.result.resampling.n_resamples == 200
    assert few.commands(RuleDraft(rule="round >= 2"), Path("x.parquet"))["These figures"].endswith(
        "--set resamples=200"
    )


def failed(answers):
    return recording_of(answers, end=["failed", *["max_rounds"] * (len(answers) - 1)], overlap=0.5)


ODD = {
    "cut": CUT,
    "failed": failed([["b", "a"], ["a", "a"], ["b", "a"]]),
    "all failed": failed([["b", "a"]]),
    "one question": recording_of([["b", "a"]]),
    "one round": recording_of([["a"], ["b"]]),
    "round 0": recording_of([["b", "a", "a"]] * 4, start=0, p_known=[[0.7, None, None]] * 4),
    "no answers": Recording(CUT.table.drop_columns(["answer", "em", "f1"]), {}),
    "samples": bundled_recording("samples_date").select(np.arange(369) < 40),
    "panel": recording_of([["b", "a", "a"]] * 6, metadata={"independent": True}),
}


@pytest.mark.whole
def test_every_kind_of_recording_is_tried_or_says_why_not(tmp_path):
    for name, known in ODD.items():
        write_recording(tmp_path / f"{name}.parquet", known.table, known.metadata)
    told = {}
    with opened_studio(tmp_path) as opened, httpx.Client(base_url=opened.partition("/open")[0], timeout=600) as client:
        client.get(opened)
        for name in ODD:
            address = address_of(client, f"{name}.parquet")
            page = client.get(f"{address}/try")
            assert page.status_code == 200, name
            assert client.get(f"{address}/decide").status_code == 200, name
            walk = client.get(f"{address}/questions")
            assert walk.status_code == (422 if name == "no answers" else 200), name
            assert ("have no answers" in walk.text) == (name == "no answers")
            lines = answers(client, address, rule="round >= 2")
            told[name] = lines[-1].get("problem", {}).get("message") or lines[-1]["html"]
            assert lines[-1].get("final") or name in ("all failed", "no answers"), (name, lines)
    assert "no answers" in told["no answers"]
    assert "all 1 recorded questions failed" in told["all failed"]
    assert "Censored" in told["cut"]
    assert "1 questions failed" in told["failed"]
    assert "means over 100 random orders" in told["samples"]
    assert "no spread" in told["one question"]


@pytest.mark.whole
def test_many_rounds_leave_the_studio_free_while_intervals_are_drawn(tmp_path, monkeypatch):
    path = recording(tmp_path / "some.parquet", n=210)
    table = read_recording(path).table
    ids = table.column("question_id").to_pylist()
    copies = [
        table.set_column(0, "question_id", pa.array([f"{name} {n}" for name in ids])).drop_columns(["question"])
        for n in range(2_000 // len(ids) + 1)
    ]
    assert table.column_names[0] == "question_id"
    write_recording(tmp_path / "many.parquet", pa.concat_tables(copies), {})
    monkeypatch.setattr("suffice_server.studio.workbench._MANY_UNITS", 1000)  # so that the draws themselves are few
    may_end, result = threading.Event(), ComparedRuns.result

    def held(self, *, intervals=True, tests=True):
        if intervals:
            assert may_end.wait(600)
        return result(self, intervals=intervals, tests=tests)

    monkeypatch.setattr(ComparedRuns, "result", held)
    with opened_studio(tmp_path) as opened, httpx.Client(base_url=opened.partition("/open")[0], timeout=600) as client:
        client.get(opened)
        address = address_of(client, "many.parquet")
        with client.stream("GET", f"{address}/try/figures", params={"rule": "tasr", "tab": "a"}) as response:
            lines = response.iter_lines()
            first = json.loads(next(lines))
            assert (first["final"], first["sentence"].split(",")[0]) == (
                False,
                f"On {210 * len(copies):,} questions".split(",")[0],
            )
            offered = client.get(
                f"{address}/try/completion", params={"text": "p_c", "cursor": 3, "what": "rule"}
            ).json()
            assert offered["candidates"][0]["insert"] == "p_correct "
            assert client.get(f"{address}/questions", params={"rule": "tasr"}).status_code == 200
            may_end.set()
            assert json.loads(next(lines))["final"]


@pytest.mark.whole
def test_the_policy_is_saved_or_what_is_missing_is_said(inside):
    address = address_of(inside, "eval.parquet")
    saved = inside.get(f"{address}/try/policy", params={"rule": "answer_stable"})
    assert saved.headers["content-disposition"] == 'attachment; filename="policy.json"'
    assert Policy.from_dict(saved.json()).label == "answer_stable"
    refused = inside.get(f"{address}/try/policy", params={"rule": "tasr"})
    assert refused.status_code == 422
    assert "suffice calibrate" in refused.text


def test_the_studio_shows_money_in_the_currency_of_the_log(tmp_path):
    eur_recording(tmp_path, n=20)
    with opened_studio(tmp_path) as opened, httpx.Client(base_url=opened.partition("/open")[0], timeout=600) as client:
        client.get(opened)
        shown = answers(client, address_of(client, "log.parquet"), rule="spend > 0.004")[-1]
    assert shown["final"]
    assert "EUR per question" in json.dumps(shown["charts"]["tradeoff-money"])
    assert re.search(r"shown-money\">EUR</label>", shown["html"])
    assert "EUR for 1,000" in shown["html"]
    assert "<dt>EUR</dt>" in shown["html"]
    assert "USD" not in shown["html"]
