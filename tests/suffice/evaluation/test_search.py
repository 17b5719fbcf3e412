"""Search: counts by formula, stops as by plain loops, merging, thresholds, and what tune and eval may say."""

import itertools
import json
import math
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from suffice.common.tables import render
from suffice.errors import CensoredError, ConfigMismatchError, DataError, SchemaError, UnknownSignalError
from suffice.evaluation.replay import policy_for, reads_round_0, replay
from suffice.evaluation.replay.front import pareto_front
from suffice.evaluation.search import (
    FORMS,
    MOST_RULES,
    PRESETS,
    Block,
    Explorer,
    Literal,
    Space,
    available,
    equivalent_intervals,
    read_space,
    search,
    space_from_dict,
    write_rules,
)
from suffice.evaluation.search.bits import first_bit, in_a_row, pack_bits
from suffice.evaluation.search.data import Questions, by_prompt
from suffice.evaluation.search.facts import TuneShare
from suffice.evaluation.search.families import FormFamily
from suffice.evaluation.search.fitting import fit
from suffice.evaluation.search.passes import Checks
from suffice.evaluation.search.sums import RuleSums
from suffice.evaluation.statistics import Resampling, keyed_numbers, keys_of, paired_t
from suffice.policy.rounds import COST_KINDS
from suffice.policy.rules import parse_rule
from suffice.policy.rules.algebra import thresholds
from suffice.policy.signals import SIGNALS
from suffice.recordings import Recording, read_recording, write_recording
from suffice.recordings.schema import build_table
from suffice_papers.tasr import read_tasr
from tests.support import reference
from tests.support.replayed import equivalent_thresholds

NAN = float("nan")
NAMES = ("overlap", "score_gap", "p_correct", "top_score_z_pool")


def rows_of(n, width=5, seed=0, *, prefix="q", lengths=False, end="exhausted", missing=0.2, **columns):
    """Rounds of n questions with random signals, some undefined."""
    rng = np.random.default_rng(seed)
    rows = []
    for q in range(n):
        rounds = int(rng.integers(1, width + 1)) if lengths and q else width
        for r in range(1, rounds + 1):
            right = float(rng.random() < 0.3 + 0.1 * r)
            row = {
                "question_id": f"{prefix}{q}",
                "round": r,
                "end": "max_rounds" if rounds == width else end,
                "answer": f"answer {rng.integers(3)}",
                "answer_stable": NAN if r == 1 else float(rng.integers(2)),
                **{name: NAN if rng.random() < missing else float(np.round(rng.random(), 2)) for name in NAMES},
                "em": right,
                "f1": right or float(np.round(rng.random(), 2)),
                "cost.generator.calls": 1.0,
                "cost.generator.uncached_tokens": 100.0 * r,
                "cost.generator.cached_tokens": 0.0,
                "cost.generator.output_tokens": 5.0,
                "cost.generator.seconds": 0.1,
            }
            rows.append({**row, **{name: value(rng) for name, value in columns.items()}})
    return rows


def recording(*args, **kwargs):
    return Recording(build_table(rows_of(*args, **kwargs), {"alien": "signal"}))


def gated(n, width=4, seed=0, **kwargs):
    """The same with a round 0 behind a gate, in which some answers are missing, and a question's length at least 1."""
    rng = np.random.default_rng([seed, 7])
    rows = []
    for row in rows_of(n, width, seed, lengths=True, verbal_confidence=lambda rng: float(rng.integers(1, 6)), **kwargs):
        gate = {"p_known": NAN, **{f"cost.gate.{kind}": 0.0 for kind in COST_KINDS}}
        if row["round"] == 1:
            known = {"p_known": float(np.round(rng.random(), 2)), "cost.gate.uncached_tokens": 30.0}
            draft = {"verbal_confidence": float(rng.integers(1, 6)), "cost.generator.uncached_tokens": 40.0}
            right = float(rng.random() < 0.4)
            rows.append({**row, **gate, **known, **draft, "round": 0, "answer": "draft", "em": right, "f1": right})
        blank = {"answer": "", "em": 0.0, "f1": 0.0} if row["round"] == 1 and rng.random() < 0.2 else {}
        rows.append({**row, **gate, **blank})  # where it is blank the draft is the answer
    return Recording(build_table(rows))


GATED = ("p_known", "overlap", "verbal_confidence", "score_gap", "tokens")
THRESHOLDS = {"verbal_confidence": (2.0, 4.0), "tokens": (120.0, 300.0)}


def gated_space(form, names=GATED, **changes):
    made = tuple(Literal(signal=name, thresholds=THRESHOLDS.get(name, (0.3, 0.6))) for name in names)
    return Space(name="gated", blocks=(Block(form=form, literals=made),), **changes)


def literals(*names, grid=1, comparison=">"):
    values = tuple(np.round(np.linspace(0.2, 0.8, grid), 3).tolist()) if grid > 1 else (0.5,)
    return tuple(Literal(signal=name, comparison=comparison, thresholds=values) for name in names)


def space(form="dnf", names=NAMES[:3], grid=1, **changes):
    return Space(name="test", blocks=(Block(form=form, literals=literals(*names, grid=grid)),), **changes)


def explorer(made, of, metric="f1", baseline="fixed_k(3)"):
    signals = list(dict.fromkeys(item.signal for block in made.blocks for item in block.literals))
    parts = by_prompt(of)
    policies = {prompt: fit(part, signals, target="em") for prompt, part in parts.items()}
    return Explorer(made, Questions.of(parts, policies, metric=metric, baseline=baseline))


def all_numbers(made):
    return np.arange(made.space.count)


def distinct_of(made):
    """The rules that stand for all that stop alike."""
    sums = RuleSums.zero(made.space.count)
    sums.add_questions(made.space, made.questions)
    return made.distinct_by(sums.hashes)


def stops_of_all(made, numbers):
    """Positions of the stops, past the end moved to the last round, shape (n_rules, n_questions)."""
    parts = [np.minimum(position, side.last) for _, side, position in made.positions(numbers)]
    return np.concatenate(parts)


def plain_stops(rule, of, max_rounds=None):
    """The same by plain loops over rows."""
    found = []
    columns = {name: np.array(of.column(name)) for name in rule.signals}
    for name, column in columns.items():
        column[:, : max(0, SIGNALS[name].first_round - 1)] = NAN  # what stands in a recording before is no measurement
    for q in range(of.shape[0]):
        n = int(of.seen[q].sum())
        n = min(n, max_rounds) if max_rounds else n
        rows = [{"round": t + 1, **{name: column[q, t] for name, column in columns.items()}} for t in range(n)]
        found.append(reference.stop(rule, rows)[0])
    return found


# Counts -----------------------------------------------------------------------------------------------------------------


def brute_partitions(items):
    if not items:
        yield []
        return
    first, *rest = items
    for partition in brute_partitions(rest):
        yield [[first], *partition]
        for i, block in enumerate(partition):
            yield [*partition[:i], [first, *block], *partition[i + 1 :]]


def brute_rules(form, widths):
    """Every rule of a form as a value of nested tuples, from its definition."""
    found = []
    for m in range(1, len(widths) + 1):
        for subset in itertools.combinations(range(len(widths)), m):
            for values in itertools.product(*(range(widths[i]) for i in subset)):
                chosen = list(zip(subset, values, strict=True))
                if form == "dnf":
                    found += [frozenset(map(frozenset, p)) for p in brute_partitions(chosen)]
                elif form == "k_of_n":
                    found += [(k, frozenset(chosen)) for k in range(1, m + 1)]
                else:
                    found.append(frozenset(chosen))
    return found


@pytest.mark.parametrize("form", FORMS)
@given(widths=st.lists(st.integers(1, 3), min_size=1, max_size=4))
@settings(max_examples=20, deadline=None)
def test_the_formula_counts_as_many_rules_as_the_space_lists(form, widths):
    made = tuple(
        Literal(signal=f"s{i}", thresholds=tuple(float(v) for v in range(width))) for i, width in enumerate(widths)
    )
    block = Block(form=form, literals=made)
    brute = brute_rules(form, widths)
    assert block.count == len(brute) == len(set(brute))
    family = FormFamily(block)
    codes = family.decode(np.arange(family.count))
    texts = {str(family.rule(codes, row)) for row in range(family.count)}
    singles = sum(widths) if form == "k_of_n" else 0
    assert len(texts) == block.count  # no rule twice, none missing
    assert singles == 0 or all(str(literal.threshold(0)) in texts for literal in made)


def test_the_published_spaces_have_the_published_counts():
    assert PRESETS["tasr-381"].count == 381
    assert [block.count for block in PRESETS["tasr-381"].blocks] == [255, 63, 63]
    assert PRESETS["tasr-dnf-876"].count == 876


def test_patience_and_highest_rounds_multiply_the_count():
    assert space(patience=(1, 2), max_rounds=(2, 3, 5)).count == 6 * space().count


def tasr_row(prompt, q, r, rng):
    return {
        "qid": f"q{q}",
        "prompt_id": f"{prompt}@1",
        "round": r,
        "question_type": "bridge",
        "current_answer": f"answer {rng.integers(2)}",
        "current_em": float(rng.random() < 0.2 + 0.1 * r),
        "current_f1": float(rng.random()),
        "jaccard_overlap": float(rng.random()),
        "gap_1_2": float(rng.exponential()),
        "top_bm25_score": float(rng.normal(9, 2)),
        "rank2_bm25_score": 1.0,
        "llm_confidence": float(rng.integers(1, 6)),
        "calibrated_conf": float(rng.random()),
        "first_token_margin": float(rng.random()),
        "answer_token_margin": float(rng.exponential()),
        "calibrated_logit_margin": float(rng.random()),
        "answer_token_str": "x",
        "n_tokens": 7,
        "top_score_z_global": float(rng.normal()),
        "top_score_z_intra": float(rng.normal()),
        "judge_entailment": float(rng.integers(1, 6)),
        "rerank_score": float(rng.normal()),
        "answer_in_evidence": float(rng.integers(2)),
    }


def tasr_file(path, prompts=("answer_first", "confidence_first"), n=60, drop=()):
    """A full-column file of TASR's kind: every searched signal, the same questions with each prompt."""
    rng = np.random.default_rng(3)
    rows = [tasr_row(prompt, q, r, rng) for prompt in prompts for q in range(n) for r in range(1, 6)]
    kept = [{name: value for name, value in row.items() if name not in drop} for row in rows]
    pq.write_table(pa.Table.from_pylist(kept), path)
    return path


def imported(tmp_path, **changes):
    run = read_tasr(tasr_file(tmp_path / "rounds.parquet", **changes))
    write_recording(tmp_path / "recording.parquet", run.rows())
    return read_recording(tmp_path / "recording.parquet")


def test_an_imported_file_with_two_prompts_has_381_and_876_rules(tmp_path):
    whole = imported(tmp_path)
    result = search(whole, "tasr-381", resampling=Resampling(n_resamples=50))
    assert result.n_rules == 381
    assert set(result.explorer.questions.sides) == {"answer_first", "confidence_first"}
    assert result.n + result.n_tune == 60  # a question with two prompts is one
    assert [named.prompt for named in result.named] == ["answer_first", "confidence_first"]
    first = whole.select(np.array([p == "answer_first@1" for p in whole.per_question("prompt_id", []).tolist()]))
    assert search(first, "tasr-dnf-876", resampling=Resampling(n_resamples=0)).n_rules == 876


def test_each_block_reads_the_rounds_of_its_own_prompt(tmp_path):
    result = search(imported(tmp_path), "tasr-381", resampling=Resampling(n_resamples=0))
    made = result.explorer
    numbers = np.array([254, 255, 317, 318])
    prompts, _ = made.settings(numbers)
    assert prompts == ["answer_first", "confidence_first", "confidence_first", "answer_first"]
    side = made.questions.sides["confidence_first"]
    rule = made.rules(np.array([255]))[0]
    rows = [
        [{name: side.view[name][q, t] for name in rule.signals} for t in range(5)] for q in range(len(made.questions))
    ]
    assert stops_of_all(made, np.array([255]))[0].tolist() == [reference.stop(rule, row)[0] for row in rows]
    names = [name.split("@")[0] for name in side.recording.question_ids]
    assert sorted(names) == sorted(made.questions.clusters.tolist())


def test_the_runs_of_one_question_are_paired_whatever_their_order():
    rows = []
    for prompt, order in (("a", [3, 1, 2, 0, 9]), ("b", [0, 8, 1, 2, 3])):
        for q in order:
            for row in rows_of(1, 3, seed=q):
                named = {"question_id": f"{q}-{prompt}", "cluster": f"q{q}", "prompt_id": f"{prompt}@1", "score_gap": q}
                rows.append({**row, **named})
    blocks = tuple(Block(form="or", literals=literals("score_gap"), prompt=prompt) for prompt in "ab")
    made = explorer(Space(name="two", blocks=blocks), Recording(build_table(rows)))
    assert made.questions.clusters.tolist() == ["q3", "q1", "q2", "q0"]
    assert made.questions.left_out == 2
    checks = Checks()
    checks.add_questions(made.questions, "f1")
    assert "2 questions are left out: they were not recorded with every prompt" in checks.sentences
    for side in made.questions.sides.values():
        assert side.view["score_gap"][:, 0].tolist() == [3, 1, 2, 0]
        assert {name[0] for name in side.recording.question_ids} == set("0123")
        alone = by_prompt(side.recording)
        assert len(next(iter(alone.values())).question_ids) == 4
    twice = Recording(build_table([{**row, "cluster": "q0"} for row in rows]))
    with pytest.raises(DataError, match="once"):
        explorer(Space(name="two", blocks=blocks), twice)
    apart = Recording(build_table([{**row, "cluster": row["question_id"]} for row in rows]))
    with pytest.raises(DataError, match="share no"):
        search(apart, Space(name="two", blocks=blocks))


def test_a_preset_names_the_columns_that_a_recording_lacks(tmp_path):
    whole = imported(tmp_path, drop=("rerank_score", "judge_entailment"))
    with pytest.raises(UnknownSignalError, match="rerank_score"):
        search(whole, "tasr-381")


def test_a_preset_with_two_prompts_refuses_a_recording_of_one(tmp_path):
    whole = imported(tmp_path, prompts=("answer_first",))
    with pytest.raises(ConfigMismatchError, match="'confidence_first'"):
        search(whole, "tasr-381")


# Stops ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_fifty_random_rules_stop_where_plain_loops_stop(form):
    of = recording(40, lengths=True, seed=1)
    made = explorer(space(form, NAMES, grid=2, patience=(1, 2), max_rounds=(2, 5)), of)
    numbers = np.sort(np.random.default_rng(0).choice(made.space.count, 50, replace=False))
    rules = made.rules(numbers)
    _, highest = made.settings(numbers)
    found = stops_of_all(made, numbers)
    for rule, most, stopped in zip(rules, highest, found, strict=True):
        assert stopped.tolist() == plain_stops(rule, of, most), (str(rule), most)


def test_outcomes_are_those_of_replay():
    of = recording(60, lengths=True, seed=2)
    made = explorer(space("dnf", NAMES), of)
    numbers = np.array([0, 7, 30, 50])
    means = made.means(numbers)
    deltas = next(made.deltas(numbers))[1]
    replayed = replay(of, made.rules(numbers), metrics=("f1",), resampling=Resampling(n_resamples=1))
    for i, rule in enumerate(made.rules(numbers)):
        row = replayed.row(str(rule))
        assert means["quality"][i] == pytest.approx(row.metrics["f1"], abs=1e-12)
        assert means["calls"][i] == pytest.approx(row.calls.mean, abs=1e-12)
        assert means["tokens"][i] == pytest.approx(row.costs["tokens"], abs=1e-9)
        assert deltas["quality"][i].mean() == pytest.approx(row.deltas["f1"].delta, abs=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_gated_rules_start_at_round_0_and_equal_replay(form):
    of = gated(20, seed=2)
    for names in (GATED, GATED[:4], GATED[:1]):
        made = explorer(gated_space(form, names, patience=(1, 2)), of)
        numbers = np.sort(np.random.default_rng(1).choice(made.space.count, min(made.space.count, 15), replace=False))
        rules = made.rules(numbers)
        assert {reads_round_0(rule) for rule in rules} == ({True, False} if len(names) > 1 else {True})
        means = made.means(numbers)
        deltas = [deltas["quality"].mean(axis=1) for _, deltas in made.deltas(numbers)]
        replayed = replay(of, rules, metrics=("f1",), resampling=Resampling(n_resamples=1))
        for i, (rule, delta) in enumerate(zip(rules, np.concatenate(deltas), strict=True)):
            row = replayed.row(str(rule))
            assert means["quality"][i] == pytest.approx(row.metrics["f1"]), str(rule)
            assert means["calls"][i] == pytest.approx(row.calls.mean), str(rule)
            assert means["tokens"][i] == pytest.approx(row.costs["tokens"]), str(rule)
            assert delta == pytest.approx(row.deltas["f1"].delta), str(rule)


@pytest.mark.parametrize("form", FORMS)
def test_a_gated_block_holds_the_same_rules_with_gates_first(form):
    names = ("overlap", "p_known", "score_gap")
    made = explorer(gated_space(form, names), gated(20))
    found = made.rules(all_numbers(made))
    plain = FormFamily(gated_space(form, names).blocks[0])
    codes = plain.decode(np.arange(plain.count))

    def bare(rule):  # a rule without the order of its members
        text = re.sub(r"k_of\((\d),", r"\1 |", str(rule))
        return frozenset(frozenset(re.findall(r"[a-z_]\w* > [\d.]+|^\d", part)) for part in text.split(" | "))

    assert len(set(map(str, found))) == len(found) == plain.count
    assert {bare(rule) for rule in found} == {bare(plain.rule(codes, row)) for row in range(plain.count)}
    for rule in found:
        assert "p_known" not in str(rule) or str(rule).find("p_known") < max(20, str(rule).find("overlap"))
    numbers = np.array([n for n, rule in enumerate(found) if reads_round_0(rule)])
    assert numbers.tolist() == list(range(plain.count - len(numbers), plain.count))


def test_rules_merge_where_stops_and_closed_book_costs_are_equal():
    of = gated(12, seed=5)
    made = explorer(gated_space("dnf", GATED[:4], patience=(1, 2)), of)
    numbers = all_numbers(made)
    starts = [0 if reads_round_0(rule) else 1 for rule in made.rules(numbers)]
    calls = np.concatenate([deltas["calls"] for _, deltas in made.deltas(numbers)])
    stops = stops_of_all(made, numbers)
    groups = {(s, *p, *c) for s, p, c in zip(starts, stops.tolist(), calls.tolist(), strict=True)}
    assert len({(s, *p) for s, p in zip(starts, stops.tolist(), strict=True)}) < len(groups) < made.space.count
    assert len(distinct_of(made)) == len(groups)
    assert distinct_of(made).members.sum() == made.space.count


@pytest.mark.parametrize("given_tune", [False, True])
def test_a_constant_score_is_left_out_with_a_note(given_tune):
    rows = rows_of(80, top_score=lambda rng: 0.1)  # the mean of which is not 0.1
    tune = Recording(build_table(rows_of(80, seed=1, prefix="t", top_score=lambda rng: 0.1))) if given_tune else None
    made, plain = Recording(build_table(rows)), Resampling(n_resamples=0)
    result = search(made, tune=tune, resampling=plain, budget=9.0)
    assert result.n_rules > 1
    assert "top_score_z is not searched: top_score is the same in all tune questions" in result.notes
    with pytest.raises(UnknownSignalError, match="top_score_z"):
        search(made, space("or", ("top_score_z",), grid=3), tune=tune, resampling=plain)
    varied = Recording(build_table(rows_of(80, top_score=lambda rng: float(rng.random()))))
    assert not any("is not searched" in note for note in search(varied, resampling=plain, budget=9.0).notes)


def test_without_em_a_target_is_needed_only_where_something_is_calibrated():
    rows = rows_of(60, verbal_confidence=lambda rng: float(rng.integers(1, 6)))
    marked = [{"mark": row["f1"], **{name: row[name] for name in row if name not in ("em", "f1")}} for row in rows]
    made, plain = Recording(build_table(marked, {"mark": "metric"})), Resampling(n_resamples=0)
    assert search(made, space("or", ("overlap",), grid=3), metric="mark", resampling=plain).n_rules == 3
    confident = space("or", ("calibrated_confidence",), grid=3)
    with pytest.raises(DataError, match="'em'"):
        search(made, confident, metric="mark", resampling=plain)
    chosen = search(made, confident, metric="mark", target="mark", resampling=plain, budget=9.0).chosen
    assert [calibrator.target for calibrator in chosen.policy.calibrators] == ["mark"]


@pytest.mark.parametrize("form", FORMS)
def test_the_interval_of_a_gates_threshold_is_the_one_that_bisection_finds(form):
    of = gated(15, seed=6)
    made = explorer(gated_space(form, GATED[:4], patience=(1, 2), max_rounds=(2, 4)), of)
    numbers = np.sort(np.random.default_rng(1).choice(made.space.count, 12, replace=False))
    _, highest = made.settings(numbers)
    for rule, most, intervals in zip(made.rules(numbers), highest, equivalent_intervals(made, numbers), strict=True):
        policy = policy_for(of, rule, max_rounds=most)
        for literal in thresholds(rule):
            expected = equivalent_thresholds(policy, of.rounds(policy.raw_columns), literal)
            got = intervals[f"{literal.name} {literal.comparison}"]
            assert got == pytest.approx(expected, abs=0), (str(rule), str(literal), most)


@pytest.mark.parametrize("baseline", ["fixed_k(2)", "p_known > 0.6", "(p_known > 0.6) & (verbal_confidence > 3)"])
def test_a_gate_is_locked_selected_and_written_with_its_start_round(baseline):
    tune, of = gated(60, seed=11), gated(60, seed=12, prefix="e")
    names = ("p_known", "overlap")
    block = Block(form="and", literals=tuple(Literal(signal=name) for name in names))
    made = Space(name="gate", blocks=(block,))
    result = search(
        of, made, tune=tune, metric="f1", resampling=Resampling(n_resamples=50), budget=9.0, baseline=baseline
    )
    assert result.locked[0].literal.signal == "p_known"
    values = tune.column("p_known")[:, 0]
    tried = np.linspace(values.min(), values.max(), 40)
    rows = replay(
        tune, [f"p_known > {v!r}" for v in tried.tolist()], metrics=("f1",), resampling=Resampling(n_resamples=1)
    ).rows[:40]
    assert result.locked[0].quality == pytest.approx(max(row.metrics["f1"] for row in rows))
    chosen = result.chosen
    assert chosen.policy.start_round == (0 if "p_known" in chosen.policy.rule.signals else 1)
    told = [note for note in result.notes if note.startswith("overlap is undefined")]
    assert len(told) == 1  # the same from round 1 and from round 0 on, and said once
    row = replay(of, [chosen.policy], metrics=("f1",), resampling=Resampling(n_resamples=2), baseline=baseline).rows[0]
    nested = result.optimism.estimate("nested")
    assert nested == chosen.estimate
    assert chosen.point == pytest.approx((row.metrics["f1"], row.calls.mean))
    assert nested.delta.delta == pytest.approx(row.deltas["f1"].delta)
    for row in result.rows(range(len(result.distinct))):
        expected = (
            replay(of, [row["rule"]], metrics=("f1",), resampling=Resampling(n_resamples=50), baseline=baseline)
            .rows[0]
            .deltas
        )
        assert row["delta"] == pytest.approx(expected["f1"].delta)
        assert row["calls_delta"] == pytest.approx(expected["calls"].delta)


def test_a_gate_alone_is_a_space_that_starts_at_round_0():
    made = Space(name="gate", blocks=(Block(form="or", literals=(Literal(signal="p_known", grid=5),)),))
    of = gated(40, seed=2, prefix="e")
    result = search(of, made, tune=gated(40, seed=1), metric="f1", resampling=Resampling(n_resamples=20), budget=2.0)
    assert result.n_rules == 5
    assert result.chosen.policy.start_round == 0
    assert result.chosen.policy.max_rounds == 4
    assert replay(of, [result.chosen.policy], resampling=Resampling(n_resamples=2)).rows[0].stop_rounds[0] > 0


def test_the_runs_of_one_question_are_paired_from_round_0_on_too():
    parts = []
    for prompt, order in (("a", [3, 1, 2]), ("b", [1, 2, 3])):
        for q in order:
            named = {"question_id": f"{q}-{prompt}", "cluster": f"q{q}", "prompt_id": f"{prompt}@1"}
            parts += [{**row, **named} for row in gated(1, 3, seed=q).table.to_pylist()]
    literal = Literal(signal="p_known", thresholds=(0.5,))
    blocks = tuple(Block(form="or", literals=(literal,), prompt=prompt) for prompt in "ab")
    made = explorer(Space(name="two", blocks=blocks), Recording(build_table(parts)))
    first, second = (side.gated for side in made.questions.sides.values())
    assert first.view["p_known"][:, 0].tolist() == second.view["p_known"][:, 0].tolist()
    assert first.paid.tolist() == second.paid.tolist()


def test_a_gate_without_round_0_is_refused_with_a_remedy():
    made = Space(name="gate", blocks=(Block(form="or", literals=(Literal(signal="p_known", thresholds=(0.5,)),)),))
    of, tune = (recording(20, prefix=prefix, p_known=lambda _: 0.7) for prefix in "et")
    with pytest.raises(UnknownSignalError, match="--round-zero --gate"):
        search(of, made, tune=tune)


@pytest.mark.parametrize("width", [1, 8, 9, 17, 40, 64])
def test_more_than_eight_rounds_are_packed_wider(width):
    of = recording(30, width, lengths=True, seed=3)
    names = NAMES[1:2] if width == 1 else NAMES[:2]  # overlap exists from round 2 on
    made = explorer(space("dnf", names, patience=(1, 3)), of, baseline="fixed_k(1)")
    numbers = all_numbers(made)
    for rule, stopped in zip(made.rules(numbers), stops_of_all(made, numbers), strict=True):
        assert stopped.tolist() == plain_stops(rule, of), str(rule)


def test_more_than_64_rounds_are_refused():
    with pytest.raises(DataError, match="64 rounds"):
        pack_bits(np.zeros((2, 65), dtype=bool))


@given(rounds=st.lists(st.lists(st.booleans(), min_size=11, max_size=11), min_size=1, max_size=5), n=st.integers(1, 12))
def test_bits_are_what_loops_over_rounds_say(rounds, n):
    fires = np.array(rounds)
    packed = pack_bits(fires)
    expected = [next((t for t, one in enumerate(row) if one), 11) for row in rounds]
    assert first_bit(packed, 11).tolist() == expected
    patient = [[t + 1 >= n and all(row[t - n + 1 : t + 1]) for t in range(11)] for row in rounds]
    assert in_a_row(packed, n).tolist() == pack_bits(np.array(patient)).tolist()


def test_tables_of_joined_literals_may_be_split_without_changing_anything(monkeypatch):
    of = recording(30, seed=4)
    made = {}
    for most in (1, 5, 4096):
        monkeypatch.setattr("suffice.evaluation.search.bits._TABLE_ROWS", most)
        made[most] = [
            stops_of_all(e := explorer(space(form, NAMES, grid=2), of), all_numbers(e)).tolist() for form in FORMS
        ]
    assert made[1] == made[5] == made[4096]


# Merging ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pending", [1, 50, 10**6])
def test_rules_are_merged_if_and_only_if_they_stop_alike(monkeypatch, pending):
    monkeypatch.setattr("suffice.evaluation.search.explore._PENDING", pending)
    monkeypatch.setattr("suffice.evaluation.search.explore._RULE_BATCH", 300)
    of = recording(12, lengths=True, seed=5)
    made = explorer(space("dnf", NAMES, grid=2, patience=(1, 2), max_rounds=(3, 5)), of)
    found = distinct_of(made)
    everything = stops_of_all(made, all_numbers(made))
    groups = {}
    for number, stopped in enumerate(map(tuple, everything.tolist())):
        groups.setdefault(stopped, []).append(number)
    assert len(groups) < made.space.count
    assert len(found) == len(groups)
    for number, members in zip(found.number.tolist(), found.members.tolist(), strict=True):
        group = groups[tuple(everything[number].tolist())]
        assert members == len(group)
        texts = [len(str(rule)) for rule in made.rules(np.array(group))]
        assert len(str(made.rules(np.array([number]))[0])) <= min(texts) + 20  # parentheses aside, the shortest


def test_the_same_stops_with_another_prompt_are_not_merged(tmp_path):
    result = search(imported(tmp_path), "tasr-381", resampling=Resampling(n_resamples=0))
    made = result.explorer
    everything = stops_of_all(made, all_numbers(made))
    prompts, _ = made.settings(all_numbers(made))
    assert len(result.distinct) == len({(p, *row) for p, row in zip(prompts, everything.tolist(), strict=True)})
    assert int(result.distinct.members.sum()) == 381


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("comparison", [">", ">=", "<", "<="])
def test_the_interval_of_equivalent_thresholds_is_the_one_that_bisection_finds(form, comparison):
    of = recording(15, lengths=True, seed=6)
    block = Block(form=form, literals=literals(*NAMES[:3], grid=2, comparison=comparison))
    made = explorer(Space(name="t", blocks=(block,), patience=(1, 2), max_rounds=(3, 5)), of)
    numbers = np.sort(np.random.default_rng(1).choice(made.space.count, 12, replace=False))
    _, highest = made.settings(numbers)
    found = equivalent_intervals(made, numbers)
    for rule, most, intervals in zip(made.rules(numbers), highest, found, strict=True):
        side = made.questions.sides[""]
        from dataclasses import replace

        policy = replace(side.policy, rule=rule, max_rounds=most)
        raw = of.rounds(policy.raw_columns)
        for literal in thresholds(rule):
            expected = equivalent_thresholds(policy, raw, literal)
            got = intervals[f"{literal.name} {literal.comparison}"]
            assert got == pytest.approx(expected, abs=0), (str(rule), str(literal), most)


# Thresholds, selection, optimism ----------------------------------------------------------------------------------------


def test_a_threshold_is_the_best_of_forty_within_the_budget():
    tune, of = recording(80, seed=7), recording(80, seed=8, prefix="e")
    result = search(of, Space(name="s", blocks=(Block(form="or", literals=(Literal(signal="overlap"),)),)), tune=tune, resampling=Resampling(n_resamples=0), budget=2.5)  # fmt: skip
    values = tune.column("overlap")
    tried = np.linspace(np.nanmin(values), np.nanmax(values), 40)
    rows = []
    for value in tried:
        stopped = np.array(
            plain_stops(parse_rule(f"overlap > {value!r}".replace("np.float64(", "").replace(")", "")), tune)
        )
        rows.append((tune.column("f1")[np.arange(80), stopped].mean(), (stopped + 1).mean(), value))
    best = max((quality, -calls, -value) for quality, calls, value in rows if calls <= 2.5)
    (locked,) = result.locked
    assert locked.literal.thresholds == (-best[2],)
    assert (locked.quality, locked.calls) == pytest.approx((best[0], -best[1]))
    assert locked.within_budget


@pytest.mark.parametrize(("low", "start"), [(-1.0, -1.0), (0.5, None), (9.0, None), (None, None)])
def test_a_grid_starts_at_its_lowest_value_or_at_the_signals(low, start):
    tune, of = recording(20, seed=7), recording(20, seed=8, prefix="e")
    made = space("or", ()).with_literals([[Literal(signal="overlap", grid=5, low=low)]])
    result = search(of, made, tune=tune, resampling=Resampling(n_resamples=0))
    values = tune.column("overlap")[:, 1:]  # undefined in round 1
    (literal,) = result.explorer.space.blocks[0].literals
    expected = np.linspace(np.nanmin(values) if start is None else start, np.nanmax(values), 5)
    assert literal.thresholds == pytest.approx(expected.tolist())


@pytest.mark.parametrize("changes", [{"low": NAN}, {"low": 0.0, "thresholds": (0.5,)}])
def test_a_lowest_value_belongs_to_thresholds_that_are_found(changes):
    with pytest.raises(DataError, match="finite number"):
        Literal(signal="overlap", **changes)


def test_where_no_threshold_meets_the_budget_the_cheapest_is_taken_and_said():
    tune, of = recording(50, seed=9), recording(50, seed=10, prefix="e")
    result = search(
        of,
        space("or", ()).with_literals([[Literal(signal="overlap")]]),
        tune=tune,
        budget=0.5,
        resampling=Resampling(n_resamples=10),
    )
    assert not result.locked[0].within_budget
    text = render(result.tables(), "md")
    assert "no threshold of overlap meets the budget" in text
    assert result.chosen is None
    assert result.best is None
    assert "nothing was selected" in text


def test_the_choice_is_made_on_tune_and_reported_on_eval():
    tune, of = recording(60, seed=11), recording(60, seed=12, prefix="e")
    result = search(of, space("dnf", NAMES[:3], grid=3), tune=tune, resampling=Resampling(n_resamples=100))
    on_tune = explorer(result.explorer.space, tune)
    means = on_tune.means(all_numbers(on_tune))
    allowed = means["calls"] <= 3
    assert result.chosen.quality == pytest.approx(means["quality"][allowed].max())
    rule = result.chosen.policy.rule
    row = replay(of, [result.chosen.policy], metrics=("f1",), resampling=Resampling(n_resamples=100)).rows[0]
    assert row.rule == str(rule)
    assert result.chosen.point == pytest.approx((row.metrics["f1"], row.calls.mean))
    assert not row.selected_here
    assert result.chosen.policy.provenance["search"]["n_rules"] == result.n_rules
    assert (
        replay(tune, [result.chosen.policy], metrics=("f1",), resampling=Resampling(n_resamples=1)).rows[0].n_selected
        == 60
    )
    nested = result.optimism.estimate("nested")
    assert nested == result.chosen.estimate
    assert nested.delta.delta == pytest.approx(row.deltas["f1"].delta)


def test_the_naive_best_flatters_and_cross_fitting_does_not():
    """Rules without any merit: the naive lead is luck, which the other estimates and the corrected p-value show."""
    naive, crossed, corrected = [], [], []
    for seed in range(20):
        of = recording(60, seed=100 + seed, prefix="e")
        tune = recording(60, seed=200 + seed)
        table = of.table.set_column(
            of.table.column_names.index("f1"), "f1", pa.array(np.random.default_rng(seed).random(300))
        )
        options = {"metric": "f1", "resampling": Resampling(n_resamples=100), "baseline": "fixed_k(1)"}
        made = search(Recording(table), space("dnf", NAMES, grid=2), tune=tune, **options)
        naive.append(made.optimism.estimate("naive").quality)
        crossed.append(made.optimism.estimate("cross-fitted").quality)
        corrected.append(made.optimism.p_corrected)
        assert made.optimism.p_raw <= made.optimism.p_corrected
    assert np.mean(naive) > 0.54
    assert abs(np.mean(crossed) - 0.5) < 0.025
    assert np.mean(np.array(corrected) < 0.05) <= 0.25


def test_cross_fitted_values_come_from_the_rules_of_the_other_folds():
    tune, of = recording(40, seed=13), recording(41, seed=14, prefix="e")
    made = search(
        of, space("or", NAMES[:2], grid=2), tune=tune, resampling=Resampling(n_resamples=20), folds=4, budget=4.0
    )
    found = made.optimism.estimate("cross-fitted")
    ex = made.explorer
    _, _, outcome = next(ex.outcomes(made.distinct.number))
    values = {name: outcome(name) for name in ("quality", "calls")}
    fold = (keyed_numbers(keys_of(of.question_ids), 1, seed=1042)[:, 0] % np.uint64(4)).astype(int)
    fold = fold[np.argsort(of.question_ids)]  # a search goes through them by their names
    total = 0.0
    for k in range(4):
        other = fold != k
        quality, calls = values["quality"][:, other].mean(axis=1), values["calls"][:, other].mean(axis=1)
        best = max(np.flatnonzero(calls <= 4.0), key=lambda i: (round(quality[i], 12), -calls[i]))
        total += values["quality"][best, ~other].sum()
    assert found.quality == pytest.approx(total / 41)


def test_intervals_of_every_row_are_t_intervals_of_its_differences():
    tune, of = recording(30, seed=15), recording(50, seed=16, prefix="e")
    made = search(of, space("or", NAMES[:2]), tune=tune, resampling=Resampling(n_resamples=20), budget=5.0)
    replayed = replay(
        of,
        [row["rule"] for row in made.rows(range(len(made.distinct)))],
        metrics=("f1",),
        resampling=Resampling(n_resamples=2),
    )
    for part, deltas in made.explorer.deltas(made.distinct.number):
        for prefix, name in (("", "quality"), ("calls_", "calls")):
            expected = paired_t(deltas[name])
            for end in ("delta", "low", "high"):
                assert made.columns[f"{prefix}{end}"][part] == pytest.approx(getattr(expected, end), abs=1e-12)
    for row in made.rows(range(len(made.distinct))):
        expected = replayed.row(row["rule"]).deltas
        assert (row["delta"], row["calls_delta"]) == pytest.approx(
            (expected["f1"].delta, expected["calls"].delta), abs=1e-12
        )


def test_tune_questions_among_the_searched_are_refused():
    of = recording(30)
    with pytest.raises(ConfigMismatchError, match="30 of 30"):
        search(of, space(), tune=of)


def test_without_tune_questions_the_recording_is_split_by_id():
    def tune_ids(of, seed):
        return set(of.select(TuneShare(share=0.5, seed=seed).divided(of)).question_ids)

    of = recording(60)
    smaller = of.select(np.arange(60) % 2 == 0)
    assert 0 < len(tune_ids(of, 42)) < 60
    assert tune_ids(smaller, 42) == tune_ids(of, 42) & set(smaller.question_ids)
    assert tune_ids(of, 43) != tune_ids(of, 42)
    with pytest.raises(DataError, match="between"):
        TuneShare(share=1.0, seed=42)


def test_tasr_is_added_outside_the_count():
    tune, of = recording(60, seed=17), recording(60, seed=18, prefix="e")
    made = search(of, space("or", ("overlap",)), tune=tune, resampling=Resampling(n_resamples=50))
    assert made.n_rules == 1
    (named,) = made.named
    row = replay(of, ["tasr"], metrics=("f1",), resampling=Resampling(n_resamples=50)).row("tasr")
    assert (named.quality, named.calls) == pytest.approx((row.metrics["f1"], row.calls.mean))
    assert named.delta.delta == pytest.approx(row.deltas["f1"].delta)
    both = Block(form="and", literals=(Literal(signal="answer_stable", comparison=">=", thresholds=(1.0,)), Literal(signal="p_correct", thresholds=(0.25,))))  # fmt: skip
    assert (
        search(of, Space(name="t", blocks=(both,)), tune=tune, resampling=Resampling(n_resamples=0)).named[0].members
        == 1
    )


# Bad input --------------------------------------------------------------------------------------------------------------


def test_a_space_without_rules_is_refused():
    with pytest.raises(DataError, match="'empty'"):
        search(recording(20), Space(name="empty", blocks=()))
    with pytest.raises(DataError, match="0 rules"):
        search(recording(20), Space(name="empty", blocks=(Block(form="or", literals=()),)))


def test_a_space_of_a_billion_rules_is_refused_before_anything_is_built():
    wide = tuple(Literal(signal=name, grid=999) for name in ("overlap", "score_gap", "p_correct"))
    huge = Space(name="huge", blocks=(Block(form="and", literals=wide),))
    assert huge.count == 10**9 - 1
    with pytest.raises(DataError, match=f"{MOST_RULES:,}"):
        search(recording(20), huge)
    with pytest.raises(DataError, match="at most"):
        search(recording(20), space("dnf", tuple(f"s{i}" for i in range(40))))


def test_one_question_is_searched_and_cannot_be_split():
    of = recording(1, prefix="e")
    with pytest.raises(DataError, match="be split"):
        search(of, space())
    made = search(of, space("or"), tune=recording(20), resampling=Resampling(n_resamples=20), budget=5)
    assert made.n == 1
    assert made.optimism.estimate("cross-fitted") is None
    assert "1 questions" in render(made.tables(), "md")


def test_empty_columns_are_refused_and_not_listed_as_available():
    tune = recording(30, overlap=lambda _: NAN)
    of = recording(30, prefix="e", overlap=lambda _: NAN)
    made = Space(name="s", blocks=(Block(form="or", literals=(Literal(signal="overlap"),)),))
    with pytest.raises(UnknownSignalError, match="overlap"):
        search(of, made, tune=tune)
    found = search(of, "available", tune=tune, resampling=Resampling(n_resamples=0))
    names = [item.signal for item in found.explorer.space.blocks[0].literals]
    assert names == ["p_correct", "answer_stable", "score_gap", "top_score_z_pool"]
    assert found.n_rules == 51  # Bell(5) - 1
    assert available(names).count == 51


def test_nan_everywhere_on_eval_is_refused():
    tune = recording(30)
    of = recording(30, prefix="e", overlap=lambda _: NAN)
    with pytest.raises(UnknownSignalError, match="'overlap'"):
        search(of, space("or", ("overlap",)), tune=tune, resampling=Resampling(n_resamples=0))


def test_constant_signals_have_one_threshold_and_never_exceed_it():
    tune, of = recording(30, overlap=lambda _: 0.4), recording(30, prefix="e", overlap=lambda _: 0.4)
    made = search(
        of,
        space("or", ()).with_literals([[Literal(signal="overlap")]]),
        tune=tune,
        resampling=Resampling(n_resamples=0),
        budget=5,
    )
    assert made.locked[0].literal.thresholds == (0.4,)
    assert made.locked[0].n_tried == 1
    assert made.columns["calls"].tolist() == [5.0]
    grid = search(
        of,
        space("or", ()).with_literals([[Literal(signal="overlap", grid=7)]]),
        tune=tune,
        resampling=Resampling(n_resamples=0),
    )
    assert grid.n_rules == 1


@pytest.mark.parametrize("cut", ["tune", "searched"])
def test_a_recording_that_a_rule_cut_is_refused(cut):
    whole, short = recording(30), recording(40, lengths=True, end="rule", prefix="e", seed=20)
    tune, of = (short, whole) if cut == "tune" else (whole, short)
    with pytest.raises(CensoredError, match="a rule ended"):
        search(of, space("or", NAMES[:2]), tune=tune, resampling=Resampling(n_resamples=20))


def test_a_metric_that_was_not_measured_everywhere_is_refused():
    of = recording(20, prefix="e", f1=lambda rng: NAN if rng.random() < 0.2 else 0.5)
    with pytest.raises(DataError, match="'f1'"):
        search(of, space(), tune=recording(20), metric="f1")
    rows = rows_of(10, 3, prefix="e")
    for row in rows:
        if row["round"] < 3:
            row["f1"] = NAN
    with pytest.raises(CensoredError, match="last round"):
        search(Recording(build_table(rows)), space(), tune=recording(20), metric="f1")


def test_all_right_or_all_wrong_answers_are_no_trouble():
    for value in (0.0, 1.0):
        right = {"em": lambda _, value=value: value, "f1": lambda _, value=value: value}
        made = search(
            recording(30, prefix="e", **right),
            space(),
            tune=recording(30, **right),
            resampling=Resampling(n_resamples=30),
        )
        assert made.optimism.estimate("naive").delta.delta == 0
        json.dumps(made.to_dict(), allow_nan=False)


def test_rounds_beyond_the_recorded_are_refused():
    with pytest.raises(ConfigMismatchError, match="round 9"):
        search(recording(30), space(max_rounds=(9,)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"patience": ()}, "patience"), ({"patience": (0,)}, "patience"), ({"max_rounds": (2, 2)}, "max_rounds")],
)
def test_impossible_spaces_are_refused(changes, message):
    with pytest.raises(DataError, match=message):
        space(**changes)


def test_impossible_blocks_are_refused():
    with pytest.raises(DataError, match="'xor'"):
        Block(form="xor", literals=())
    with pytest.raises(DataError, match="appears twice"):
        Block(form="or", literals=literals("overlap", "overlap"))
    with pytest.raises(DataError, match="threshold twice"):
        Literal(signal="overlap", thresholds=(0.1, 0.1))
    with pytest.raises(DataError, match="tasr-381"):
        search(recording(20), "tasr")


# Files ------------------------------------------------------------------------------------------------------------------


def test_a_space_reads_from_toml(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'patience = [1, 2]\nmax_rounds = [3, 5]\n[[blocks]]\nform = "dnf"\n'
        '[[blocks.literals]]\nsignal = "answer_stable"\ncomparison = ">="\nthresholds = [1]\n'
        '[[blocks.literals]]\nsignal = "p_correct"\ngrid = 20\n[[blocks.literals]]\nsignal = "overlap"\n'
    )
    made = read_space(path)
    assert made.name == "mine"
    assert made.blocks[0].literals[0].thresholds == (1.0,)
    e1, e2, e3 = 22, 20 + 20 + 1, 20
    assert made.count == 4 * (e1 + 2 * e2 + 5 * e3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"name": "x"}, "'blocks'"),
        ({"name": "x", "blocks": [{"form": "or"}]}, "'literals'"),
        ({"name": "x", "blocks": [{"literals": []}]}, "'form'"),
        ({"name": "x", "blocks": [], "budget": 3}, "'budget'"),
        ({"name": "x", "blocks": [{"form": "or", "literals": [{"signal": "a", "grid": "3"}]}]}, "'grid'"),
        ({"name": "x", "blocks": [{"form": "or", "literals": [{"signal": "a", "low": "0"}]}]}, "'low'"),
        ({"name": "x", "blocks": [{"form": "or", "literals": [{"signal": 3}]}]}, "'signal'"),
        ({"name": "x", "blocks": [{"form": "or", "literals": [{"signal": "a", "thresholds": ["1"]}]}]}, "of numbers"),
        ({"name": "x", "blocks": [], "patience": [True]}, "whole numbers"),
        ({"name": "x", "blocks": 3}, "'blocks'"),
    ],
)
def test_a_space_of_the_wrong_kind_is_refused(data, message):
    with pytest.raises(SchemaError, match=message):
        space_from_dict(data)


def test_a_file_that_is_no_space_is_refused(tmp_path):
    (tmp_path / "bad.toml").write_text("= 3")
    with pytest.raises(SchemaError, match="TOML"):
        read_space(tmp_path / "bad.toml")
    with pytest.raises(DataError, match="be read"):
        read_space(tmp_path / "none.toml")


def test_the_parquet_file_has_one_row_for_each_set_of_stops(tmp_path, monkeypatch):
    monkeypatch.setattr("suffice.evaluation.search.result._WRITTEN_AT_ONCE", 7)
    made = search(
        recording(40, prefix="e"),
        space("dnf", NAMES[:3], patience=(1, 2)),
        tune=recording(40),
        resampling=Resampling(n_resamples=50),
    )
    write_rules(made, tmp_path / "rules.parquet")
    table = pq.read_table(tmp_path / "rules.parquet")
    rows = table.to_pylist()
    assert len(rows) == len(made.distinct)
    assert sum(row["members"] for row in rows) == made.n_rules
    assert len({row["stops"] for row in rows}) == len(rows)
    about = json.loads(table.schema.metadata[b"suffice.searches"])
    assert about["n_rules"] == made.n_rules
    for row in rows:
        assert str(parse_rule(row["rule"])) == row["rule"]
        assert row["low"] <= row["delta"] <= row["high"]
        for name, (low, high) in json.loads(row["thresholds"]).items():
            assert name.split()[0] in row["rule"]
            assert (-math.inf if low is None else low) <= 0.5 <= (math.inf if high is None else high)
    front = [row for row in rows if row["front"]]
    for row in front:
        assert not any(
            other["calls"] <= row["calls"]
            and other["quality"] >= row["quality"]
            and (other["calls"], other["quality"]) != (row["calls"], row["quality"])
            for other in rows
        )
    assert not list(tmp_path.glob(".*tmp"))


@given(
    points=st.lists(
        st.tuples(st.sampled_from([0.1, 0.2, 0.3, 0.4]), st.sampled_from([1.0, 2.0, 3.0])), min_size=1, max_size=8
    )
)
def test_the_front_is_what_the_definition_says(points):
    quality, calls = map(np.array, zip(*points, strict=True))
    expected = [
        not any(c <= calls[i] and q >= quality[i] and (c < calls[i] or q > quality[i]) for q, c in points)
        for i in range(len(points))
    ]
    assert pareto_front(quality, calls).tolist() == expected


def test_the_chart_shows_the_front_selected_rules_and_a_sample(monkeypatch):
    made = space("dnf", ("overlap", "score_gap"), grid=3)
    result = search(recording(60, end="max_rounds"), made, budget=3.0, resampling=Resampling(n_resamples=20))
    spec = result.plot().spec
    points = {}
    for point in spec["data"]["values"]:
        points.setdefault(point["kind"], []).append(point)
    on_front = [point for listed in points.values() for point in listed if point["front"]]
    assert sorted(point["calls"] for point in on_front) == sorted(result.columns["calls"][result.front].tolist())
    (best,) = points["best here (selected here)"]
    assert best["quality"] == pytest.approx(100 * result.columns["quality"][result.best])
    (tuned,) = points["selected on tune"]
    assert tuned["rule"] == str(result.chosen.policy.rule)
    assert {"baseline", "named"} <= set(points)
    assert sum(
        point["alike"] for listed in points.values() for point in listed if point["kind"] != "named" and point["alike"]
    ) == (result.n_rules)
    assert "var(" not in json.dumps(result.plot().to_dict())
    monkeypatch.setattr("suffice.evaluation.search.result._MOST_POINTS", 3)
    few = [point["kind"] for point in result.plot().spec["data"]["values"]]
    assert few.count("other rules") <= 3 < len(points["other rules"])
