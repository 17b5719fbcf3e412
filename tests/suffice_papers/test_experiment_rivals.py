"""Rivals of a run: other ways of asking beside the plain loop, recorded, resumed and compared question by question."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter

import numpy as np
import pytest

from suffice.errors import DataError, NotFoundError, SchemaError
from suffice.evaluation.replay import replay
from suffice.recordings import read_recording
from suffice_gates.gates import fit_complexity
from suffice_papers.experiments import read_experiment
from suffice_reader.minilm import MiniLM
from tests.support.cli_tools import CITIES, cli, dataset, question, reply
from tests.support.endpoint import Endpoint, prompt_of

pytestmark = pytest.mark.usefixtures("quick_runs", "few_tables")

WAYS = """
seeds = [1, 2]
round-zero = true
max-rounds = 3
resamples = 40
tune-draws = 1

[[model]]
name = "served"
model = "m"
base-url = "URL"

[[data]]
name = "towers"
tune = "tune.jsonl"
eval = "eval.jsonl"

[[rival]]
name = "ircot"
loop = "ircot(k=1)"

[[rival]]
name = "stable"
loop = "ircot(k=2)"
rule = "answer_stable"

[[rival]]
name = "twice"
rule = "answer_stable"

[[rival]]
name = "sure"
rule = "answer_margin > 1"
threshold-of = "answer_margin"
"""


ONE_WAY = WAYS[: WAYS.index('[[rival]]\nname = "stable"')]


def chain(body):
    """Write two or three sentences of a chain, of which the last says an answer; otherwise answer as the plain reader."""
    prompt = prompt_of(body)
    if "Reasoning so far:" not in prompt:
        return reply(body)
    number = int(re.search(r"Where is tower (\d+)", prompt)[1])
    so_far = prompt.rpartition("Reasoning so far:")[2]
    noise = zlib.crc32(f"{body['seed']} {number}".encode())
    if so_far.count("tower") <= noise % 2:
        return f"The tower {number} is tall."
    return f"So the answer is: {CITIES[(number + (noise % 3 == 0)) % len(CITIES)]}."


def written(folder, text, n=4):
    dataset(folder / "tune.jsonl", *(question(i) for i in range(n)))
    dataset(folder / "eval.jsonl", *(question(i) for i in range(100, 100 + n)))
    (folder / "run.toml").write_text(text, encoding="utf-8")
    return folder / "run.toml"


def table_of(result, start):
    return next(table for table in result["tables"] if table["title"].startswith(start))


@pytest.fixture(scope="module")
def ways(tmp_path_factory):
    """A run with rivals and what was asked, by seed and in all; the endpoint is gone."""
    folder = tmp_path_factory.mktemp("ways")
    with Endpoint(chain) as endpoint:
        path = written(folder, WAYS.replace("URL", endpoint.url))
        before = cli("run", path, "--dry-run", "--json").json
        pilot = cli("run", path, "--dry-run", "--pilot", 2, "--json").json
        first = cli("run", path, "--json", code=0)
        asked = len(endpoint.requests)
        again = cli("run", path, "--json").json
        after = cli("run", path, "--dry-run", "--json").json
        assert len(endpoint.requests) == asked
        seeds = Counter(request.body["seed"] for request in endpoint.requests if "seed" in request.body)
    return {
        "path": path, "before": before, "pilot": pilot, "first": first.json, "again": again, "after": after, "seeds": seeds, "asked": asked,
    }  # fmt: skip


def eval_of(ways, *way, seed=1):
    place = "/".join(("served/towers/bm25", *way, "answer_first"))
    return read_recording(ways["path"].with_suffix("") / f"cells/{place}/seed-{seed}/eval.parquet")


def test_only_eval_questions_of_rivals_are_recorded_and_rules_are_not(ways):
    cells = ways["path"].with_suffix("") / "cells"
    recordings = {path.relative_to(cells).as_posix() for path in cells.rglob("*.parquet")}
    plain, own = "served/towers/bm25/{}answer_first/seed-{}/{}.parquet", ("ircot/", "stable/")
    assert recordings == {
        *(plain.format("", seed, split) for seed in (1, 2) for split in ("tune", "eval")),
        *(plain.format(way, seed, "eval") for way in own for seed in (1, 2)),
    }
    assert set(ways["seeds"]) == {1, 2}


def test_a_second_run_asks_nothing_and_a_dry_run_says_so(ways):
    assert "nothing was asked: all 8 recordings were complete" in ways["again"]["sentence"]
    assert ways["again"]["tables"] == ways["first"]["tables"]
    assert "left: 0 calls, 0 [0, 0] tokens" in ways["after"]["sentence"]


def test_a_methods_calls_are_unknown_until_a_pilot_extrapolates_them(ways):
    left = {cell["cell"]: cell["calls left"] for cell in ways["before"]["cells"]}
    assert left["served/towers/bm25/answer_first/seed-1"] == 8 * 4
    assert left["served/towers/bm25/ircot/answer_first/seed-1"] == "unknown"
    assert "≥ 64 calls" in ways["before"]["sentence"]
    left = {cell["cell"]: cell["calls left"] for cell in ways["pilot"]["cells"]}
    rounds = eval_of(ways, "ircot").seen.sum(axis=1)  # a sentence in each, and an answer by the reader at the end
    assert left["served/towers/bm25/ircot/answer_first/seed-1"]["value"] == 2 * (rounds[:2] + 1).mean()


def test_the_calls_of_a_run_are_those_that_the_endpoint_received(ways):
    spent = sum(
        float(np.nansum(recording.column(name)))
        for seed in (1, 2)
        for way in ((), ("ircot",), ("stable",))
        for recording in [eval_of(ways, *way, seed=seed)]
        for name in recording.names("cost")
        if name.endswith(".calls") and "retrieval" not in name
    )
    pilot = ways["asked"] - ways["first"]["calls"]
    assert 0 < pilot < spent
    tune = 2 * 4 * 4
    assert spent + tune <= ways["asked"] <= spent + tune + 2 * 8  # and what looks for log-probabilities


def test_each_line_is_what_the_replay_of_its_recording_says(ways):
    rows = {(row["cell"].rpartition("-")[2], row["method"]): row for row in table_of(ways["first"], "Ways")["rows"]}
    for seed in (1, 2):
        for way, rule, recording in (
            ("ircot", "full", eval_of(ways, "ircot", seed=seed)),
            ("stable", "answer_stable", eval_of(ways, "stable", seed=seed)),
            ("twice", "answer_stable", eval_of(ways, seed=seed)),
        ):
            row, told = rows[str(seed), way], replay(recording, rule, metrics="em").rows[0]
            assert row["right, %"] is not None
            assert (row["calls"], row["tokens"]) == pytest.approx((told.calls.mean, told.costs["tokens"]))
            assert row["retrievals"] == pytest.approx(told.costs["retrievals"])
        plain = eval_of(ways, seed=seed)
        fixed = rows[str(seed), "2 passages, ranked once"]
        assert (fixed["kind"], fixed["calls"], fixed["retrievals"]) == ("fixed", 1, 1)
        assert rows[str(seed), "TASR"]["kind"] == "rule"
        assert plain.index.tolist() == [0, 1, 2, 3]


def test_the_tune_threshold_is_right_most_often_and_the_table_says_so(ways):
    table = table_of(ways["first"], "Ways")
    for seed in (1, 2):
        [note] = [note for note in table["notes"] if f"seed-{seed}, sure: " in note]
        rule = note.rpartition("sure: ")[2].removesuffix(", by tune")
        place = ways["path"].with_suffix("") / f"cells/served/towers/bm25/answer_first/seed-{seed}"
        tune = read_recording(place / "tune.parquet")
        values = tune.column("answer_margin")
        others = [f"answer_margin > {value!r}" for value in [-1.0, *values[np.isfinite(values)].tolist()]]
        rows = replay(tune, [rule, *others], metrics="em").rows[: 1 + len(others)]
        best = max((round(row.metrics["em"], 9), -row.calls.mean) for row in rows)
        assert (round(rows[0].metrics["em"], 9), -rows[0].calls.mean) == pytest.approx(best)
        row = next(row for row in table["rows"] if (row["cell"][-1], row["method"]) == (str(seed), "sure"))
        told = replay(read_recording(place / "eval.parquet"), rule, metrics="em").rows[0]
        assert (row["kind"], row["calls"]) == ("rule by tune", pytest.approx(told.calls.mean))


def test_published_methods_answer_only_at_their_end_unless_a_rule_stops(ways):
    answered = {way: eval_of(ways, way) for way in ("ircot", "stable")}
    has = {way: [bool(text) for text in r.table["answer"].to_pylist()] for way, r in answered.items()}
    assert all(has["stable"])
    assert sum(has["ircot"]) == len(answered["ircot"].question_ids) < len(has["ircot"])


def test_the_tables_of_the_paper_leave_rivals_out_and_say_so(ways):
    cells = table_of(ways["first"], "Cells")
    assert [row["cell"] for row in cells["rows"]] == ["served/towers/bm25/answer_first"]
    assert any("left out of all tables but Ways of asking" in note and "ircot" in note for note in cells["notes"])
    certified = table_of(ways["first"], "Certificates")
    assert {row["cell"].count("/") for row in certified["rows"]} == {4}
    assert re.search(r"\d of 8 rivals did better than a fixed number", ways["first"]["headline"])
    screen = cli("run", ways["path"]).out
    assert "Ways of asking" in screen
    assert "Table 1" not in screen
    assert "ircot" in screen
    assert "ranked once  fixed" not in screen


def test_runs_of_a_rival_have_an_interval_over_runs(ways):
    runs = table_of(ways["first"], "Runs: right")
    rows = {row["configuration"].rpartition(": ")[2]: row for row in runs["rows"]}
    assert {"ircot", "twice", "TASR", "never retrieve"} <= {*rows}
    assert "macro" not in rows
    right = [eval_of(ways, "ircot", seed=seed) for seed in (1, 2)]
    means = [np.nanmax(np.where(r.column("chain_ended") == 1, r.column("em"), np.nan), axis=1).mean() for r in right]
    assert rows["ircot"]["runs"] == 2
    assert rows["ircot"]["over runs"]["value"] == pytest.approx(np.mean(means))


def test_a_rival_that_is_added_later_asks_only_its_own_questions(ways, tmp_path):
    with Endpoint(chain) as endpoint:
        path = written(tmp_path, ONE_WAY.replace("URL", endpoint.url).replace("seeds = [1, 2]", "seeds = [1]"), n=4)
        assert cli("run", path).code == 0
        asked = len(endpoint.requests)
        more = '\n[[rival]]\nname = "flare"\nloop = "flare(theta=0.99, beta=0.99)"\n'
        path.write_text(path.read_text() + more, encoding="utf-8")
        result = cli("run", path, "--json", code=0)
        assert {stage["cell"] for stage in result.json["stages"] if stage["calls"]} == {
            "served/towers/bm25/flare/answer_first/seed-1"
        }
        assert not any("Where is tower 1?" in request.prompt for request in endpoint.requests[asked:])
        path.write_text(path.read_text().replace("theta=0.99", "theta=0.5"), encoding="utf-8")
        assert "other settings" in cli("run", path).error


def test_a_failed_chain_ends_the_run_and_repeats_only_unpaid_calls(tmp_path):
    failing = []

    def fault(body):
        is_last = "Where is tower 103" in prompt_of(body) and "is tall" in prompt_of(body)
        return "400" if is_last and failing else None

    with Endpoint(chain, fault=fault) as endpoint:
        text = ONE_WAY.replace("URL", endpoint.url).replace("seeds = [1, 2]", "seeds = [5]")
        path = written(tmp_path, text, n=4)
        failing.append(True)
        assert "1 question failed" in cli("run", path).error
        asked = len(endpoint.requests)
        failing.clear()
        assert cli("run", path).code == 0
        again = [request for request in endpoint.requests[asked:] if "Where is" in request.prompt]
        assert again
        assert all("tower 103" in request.prompt for request in again)


@pytest.mark.usefixtures("quick_reader")
def test_a_question_classifier_is_a_rival_before_the_plain_loop(tmp_path):
    def half_known(body):
        """Know half of the answers alone, and read all others from passages."""
        prompt = prompt_of(body)
        number = int(re.search(r"Where is tower (\d+)", prompt)[1]) if "Where is tower" in prompt else 0
        right = number % 2 == 0 or "Passage" in prompt
        return f"Answer: {CITIES[(number + (not right)) % len(CITIES)]}\nConfidence: 4", 1.0 + number % 5

    with Endpoint(half_known) as endpoint:
        rivals = WAYS.index("[[rival]]")
        text = WAYS[:rivals].replace("URL", endpoint.url).replace("seeds = [1, 2]", "seeds = [1]")
        path = written(tmp_path, text, n=10)
        assert cli("run", path).code == 0
        tune = tmp_path / "run/cells/served/towers/bm25/answer_first/seed-1/tune.parquet"
        fit_complexity(read_recording(tune), MiniLM()).save(tmp_path / "classes")
        gated = '[[rival]]\nname = "adaptive-rag"\ngate = "classes"\nrule = "adaptive_rag"\n'
        path.write_text(text + gated, encoding="utf-8")
        assert cli("run", path, "--dry-run", "--json").json["cells"][1]["calls left"] == 10 * 4
        result = cli("run", path, "--json", code=0)
        seen = tune.with_name("eval.parquet")
        fit_complexity(read_recording(seen), MiniLM()).save(tmp_path / "seen")
        path.write_text(f'{text}{gated}[[rival]]\nname = "seen"\ngate = "seen"\nrule = "adaptive_rag"\n')
        notes = table_of(cli("run", path, "--json").json, "Ways")["notes"]
    assert [note.partition(":")[0] for note in notes if "selected here" in note] == ["seen"]
    row = next(row for row in table_of(result.json, "Ways")["rows"] if row["method"] == "adaptive-rag")
    recording = read_recording(tune.parents[2] / "adaptive-rag/answer_first/seed-1/eval.parquet")
    told = replay(recording, "adaptive_rag", metrics="em").rows[0]
    assert (row["kind"], row["calls"]) == ("gate", pytest.approx(told.calls.mean))
    assert row["right, %"] is not None


@pytest.mark.parametrize(
    ("old", "new", "kind", "message"),
    [
        ('loop = "ircot(k=1)"', 'loop = "irctt"', DataError, "rival 'ircot': "),
        ('loop = "ircot(k=1)"', "", DataError, "rival 'ircot': give 'loop', 'gate' with 'rule', or 'rule'"),
        ('loop = "ircot(k=1)"', 'lop = "ircot"', SchemaError, "unknown key 'lop'. Did you mean 'loop'"),
        ('loop = "ircot(k=1)"', 'gate = "nowhere"\nrule = "adaptive_rag"', NotFoundError, "nowhere"),
        ('loop = "ircot(k=1)"', 'gate = "tune.jsonl"', DataError, "give the key 'rule', as rule = \"adaptive_rag\""),
        ('loop = "ircot(k=1)"', 'gate = "tune.jsonl"\nloop = "ircot"', DataError, "a method decides itself"),
        ('loop = "ircot(k=1)"', 'loop = "ircot"\nrule = "tasr"', DataError, "reads 'p_correct', which is fitted"),
        ('loop = "ircot(k=1)"', 'rule = "answer_stable"\nthreshold-of = "f"', DataError, "has 0 thresholds on 'f'"),
        (
            'loop = "ircot(k=1)"',
            'loop = "ircot"\nrule = "answer_margin > 2"\nthreshold-of = "answer_margin"',
            DataError,
            "the rule has a threshold that is chosen on tune questions",
        ),
        ('loop = "ircot(k=1)"', 'loop = "ircot"\nmodels = ["sered"]', DataError, "Did you mean 'served'"),
        ('name = "twice"', 'name = "ircot"', DataError, "'ircot' occurs twice"),
        ('rule = "answer_stable"\n\n', 'rule = "answer_stabl >"\n\n', DataError, "rival 'stable': "),
        ("seeds = [1, 2]", 'protocol = "semantic"', DataError, "'rival' has no meaning for the protocol 'semantic'"),
    ],
)
def test_a_rival_that_cannot_be_is_an_error_that_names_it(old, new, kind, message, tmp_path):
    text = WAYS.replace("URL", "http://127.0.0.1:1/v1")
    assert old in text
    if "semantic" in new:
        text = text.replace("round-zero = true\n", "")
    with pytest.raises(kind) as raised:
        read_experiment(written(tmp_path, text.replace(old, new, 1)))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("model", "loop", "why"),
    [
        ('model = "span-reader"', "ircot", "writes a chain, and model 'served' only answers from passages"),
        ("scripted = [0.5]", "ircot", "writes a chain, and model 'served' only answers from passages"),
        ('model = "m"\nbase-url = "URL"', "dragin(theta=0.4)", "reads attentions, which an endpoint does not give"),
        ('model = "m"\nbase-url = "URL"\nlogprobs = false', "flare", "needs log-probabilities: write logprobs = true"),
    ],
)
def test_a_model_unfit_for_a_rival_is_refused_before_calls(model, loop, why, tmp_path):
    with Endpoint(chain) as endpoint:
        text = WAYS.replace('model = "m"\nbase-url = "URL"', model).replace("ircot(k=1)", loop)
        path = written(tmp_path, text.replace("URL", endpoint.url), n=2)
        result = cli("run", path, "--dry-run", "--json", code=2)
        assert any(why in problem for problem in result.json["problems"]), result.json["problems"]
        assert cli("run", path).code == 1
        assert endpoint.requests == []


def test_a_signal_of_own_passes_needs_a_local_model(tmp_path):
    text = WAYS.replace("URL", "http://127.0.0.1:1/v1") + '\n[signals]\nown-signal = ["sample_spread"]\n'
    result = cli("run", written(tmp_path, text), "--dry-run", "--json")
    assert any("own-signal 'sample_spread' reads passes of a model" in text for text in result.json["problems"])
    assert json.dumps(result.json)


def test_reflection_tokens_decide_for_a_model_that_runs_here_alone(tmp_path):
    gate = 'gate = "self-rag"\nrule = "p_retrieve <= 0.2"'
    text = WAYS.replace("URL", "http://127.0.0.1:1/v1").replace('loop = "ircot(k=1)"', gate)
    result = cli("run", written(tmp_path, text), "--dry-run", "--json")
    assert any("rival 'ircot' reads tokens of a model that runs here" in text for text in result.json["problems"])


def test_a_rival_that_cannot_be_asked_leaves_the_others_their_line(tmp_path):
    def refused(body):
        return "401" if "Reasoning so far:" in prompt_of(body) else None

    with Endpoint(chain, fault=refused) as endpoint:
        text = WAYS.replace("URL", endpoint.url).replace("seeds = [1, 2]", "seeds = [1]")
        result = cli("run", written(tmp_path, text), "--json")
    assert result.code == 1, result.err
    assert {name.split("/")[3] for name in result.json["failed"]} == {"ircot", "stable"}
    rows = {row["method"]: row["verdict"] for row in table_of(result.json, "Ways of asking")["rows"]}
    assert rows["ircot"] == "not run: its cell failed"
    assert "not run" not in rows["TASR"] + rows["twice"]
