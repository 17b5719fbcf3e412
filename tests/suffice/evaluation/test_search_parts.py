"""One search whatever holds the questions: in memory, in one file or in parts, in any order of their rows."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from suffice.errors import CensoredError, ConfigMismatchError, DataError, SchemaError, UnknownSignalError
from suffice.evaluation.replay import replay
from suffice.evaluation.search import Block, Literal, Space, search, write_rules
from suffice.evaluation.search.estimates import difference_columns_of
from suffice.evaluation.search.facts import TuneShare
from suffice.evaluation.search.sums import RuleSums, UnitSums
from suffice.evaluation.statistics import Resampling, keys_of, paired_t, poisson_weights
from suffice.evaluation.statistics.units import Units, standard_errors
from suffice.policy.seen import id_hash
from suffice.recordings import Recording, bundled_recording, read_recording, write_recording
from suffice.recordings.opened import write_tables
from suffice.recordings.schema import build_table
from tests.suffice.evaluation.test_search import (
    all_numbers,
    distinct_of,
    explorer,
    gated,
    gated_space,
    literals,
    rows_of,
    space,
)
from tests.support.cli_tools import cli
from tests.support.replayed import replay_in_blocks

FEW = Resampling(n_resamples=40)


def write_parts(folder, rows, of, metadata=None):
    """Write questions into parts: `of` is the part of each question, in the order of their first rows."""
    names = list(dict.fromkeys(row["question_id"] for row in rows))
    folder.mkdir(parents=True)
    for part in sorted(set(of)):
        mine = {name for name, number in zip(names, of, strict=True) if number == part}
        write_recording(
            folder / f"part-{part:04}.parquet", [row for row in rows if row["question_id"] in mine], metadata
        )
    return folder


def with_texts(rows, same=()):
    """Questions with texts, some of which are the same."""
    for row in rows:
        group = next((names[0] for names in same if row["question_id"] in names), row["question_id"])
        row["question"] = f"What is {group}?"
    return rows


def assert_equal(ours, theirs, where=""):
    """Compare JSON values: numbers to 1e-12, everything else exactly."""
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys(), where
        for name in ours:
            assert_equal(ours[name], theirs[name], f"{where}.{name}")
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), where
        for i, pair in enumerate(zip(ours, theirs, strict=True)):
            assert_equal(*pair, f"{where}[{i}]")
    elif isinstance(ours, float) and isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=1e-12, abs=1e-12), where
    else:
        assert ours == theirs, where


def assert_same(ours, theirs):
    """Compare all that two searches say."""
    for name in ("number", "members", "hash"):
        assert np.array_equal(getattr(ours.distinct, name), getattr(theirs.distinct, name)), name
    assert ours.columns.keys() == theirs.columns.keys()
    for name, values in theirs.columns.items():
        assert np.allclose(ours.columns[name], values, rtol=0, atol=1e-12, equal_nan=True), name
    assert np.array_equal(ours.front, theirs.front)
    assert_equal(ours.to_dict(), theirs.to_dict())
    assert ours.baselines.keys() == theirs.baselines.keys()
    for prompt, point in ours.baselines.items():
        assert point == pytest.approx(theirs.baselines[prompt], abs=1e-12)
    assert (ours.chosen is None) == (theirs.chosen is None)
    if ours.chosen is not None:
        assert ours.chosen.policy == theirs.chosen.policy


@pytest.fixture(scope="module")
def rows():
    return with_texts(rows_of(70, 4, seed=11, lengths=True), same=(("q1", "q5", "q40"), ("q2", "q3")))


@pytest.fixture(scope="module")
def whole(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run.parquet"
    write_recording(path, rows)
    return path


@pytest.fixture(scope="module")
def parts(rows, tmp_path_factory):
    of = np.random.default_rng(0).integers(0, 4, 70).tolist()
    return write_parts(tmp_path_factory.mktemp("parts") / "run", rows, of)


@pytest.fixture(scope="module")
def searched(parts):
    return search(parts, resampling=FEW)


@pytest.fixture(scope="module")
def memory(whole):
    return search(read_recording(whole), resampling=FEW)


# Figures ----------------------------------------------------------------------------------------------------------------


def test_the_sums_of_rules_are_those_of_each_rule_by_itself():
    for made in (
        explorer(space("k_of_n", grid=2, patience=(1, 3), max_rounds=(2, 4)), Recording(build_table(rows_of(60, 4)))),
        explorer(gated_space("dnf", patience=(1, 2)), gated(50)),
        explorer(space("dnf", grid=2), Recording(build_table(clustered(rows_of(60, 4, lengths=True))))),
    ):
        numbers, n = all_numbers(made), len(made.questions)
        sums = RuleSums.zero(made.space.count, 3, tokens=True, errors=True)
        fold = (made.questions.units % np.uint64(3)).astype(np.int64)
        sums.add_questions(made.space, made.questions, fold)
        assert sums.n == n
        for name, values in made.means(numbers).items():
            assert np.allclose(sums.means(numbers)[name], values, rtol=0, atol=1e-12, equal_nan=True), name
        for part, side, outcome in made.outcomes(numbers):
            for name in ("quality", "calls"):
                values = outcome(name)
                for k in range(3):
                    assert np.allclose(sums.folds[name][k][part], values[:, fold == k].sum(axis=1), atol=1e-10)
                delta, errors = sums.differences(made, name, numbers[part])
                deltas = values - side.baseline[name]
                units = Units.of(n, made.questions.clusters.tolist())
                assert np.allclose(delta, deltas.mean(axis=1), rtol=0, atol=1e-12)
                assert np.allclose(errors, standard_errors(deltas, units), rtol=0, atol=1e-9)


def test_differences_of_units_are_drawn_and_measured_as_their_clusters():
    rng = np.random.default_rng(3)
    deltas, names = rng.normal(size=(3, 40)), [f"c{i}" for i in rng.integers(0, 12, 40)]
    keys = keys_of(names)
    parts = [np.flatnonzero(keys % np.uint64(2) == k) for k in (0, 1)]
    whole, *halves = (
        UnitSums.of(deltas[:, rows], keys[rows], lambda units: poisson_weights(units, 300, seed=1))
        for rows in (np.arange(40), *parts)
    )
    expected = paired_t(deltas, clusters=names)
    weights = poisson_weights(keys, 300, seed=1)
    means = deltas @ weights.T / weights.sum(axis=1)
    for sums in (whole, halves[0] + halves[1]):
        assert sums.means == pytest.approx(expected.delta)
        assert sums.errors == pytest.approx(standard_errors(deltas, Units.of(40, names)))
        for i, result in enumerate(sums.paired(Resampling(interval="percentile"))):
            assert (result.n, result.n_clusters) == (40, len(set(names)))
            assert (result.low, result.high) == pytest.approx(tuple(np.quantile(means[i], [0.025, 0.975])))


def test_a_file_gives_equal_figures_in_memory_by_path_and_in_parts(whole, searched, memory, rows):
    assert memory.chosen is not None
    assert memory.optimism.estimate("naive").delta.n > memory.optimism.estimate("naive").delta.n_clusters
    mixed = Recording(build_table([rows[i] for i in np.random.default_rng(5).permutation(len(rows))]))
    table = read_recording(whole).table
    place = table.column_names.index("end")
    coded = Recording(table.set_column(place, "end", table.column("end").dictionary_encode()))
    assert_same(searched, memory)
    for other in (whole, mixed, coded):
        assert_same(search(other, resampling=FEW), memory)


def clustered(rows, seed=0):
    """Questions of which some are in the cluster of others."""
    rng = np.random.default_rng(seed)
    names = list(dict.fromkeys(row["question_id"] for row in rows))
    cluster = {name: f"c{rng.integers(len(names))}" if rng.random() < 0.6 else None for name in names}
    return [{**row, "cluster": cluster[row["question_id"]]} for row in rows]


def prompted(rows):
    """Each question with two prompts, with other answers, but for a few with one of them."""
    both = []
    for prompt, shift in (("a", 0), ("b", 1)):
        for row in rows:
            number = int(row["question_id"][1:])
            if number % 7 != 3 or number % 2 == shift:
                signals = {name: (row[name] + 0.3 * shift) % 1 for name in ("overlap", "score_gap")}
                named = {"question_id": f"{row['question_id']}@{prompt}", "cluster": row["question_id"]}
                both.append(
                    {**row, **signals, **named, "prompt_id": f"{prompt}@1", "f1": (row["f1"] + shift) % 1.5 / 1.5}
                )
    return both


@pytest.mark.parametrize(
    ("kind", "seed"), [("questions", 1), ("texts", 2), ("clusters", 3), ("prompts", 4), ("gates", 5)]
)
def test_any_division_and_order_gives_the_same_search(tmp_path_factory, kind, seed):
    rng = np.random.default_rng(seed)
    rows = rows_of(30, 3, seed=seed, lengths=True)
    made = space(grid=2, patience=(1, 2))
    if kind == "texts":
        rows = with_texts(rows, same=(("q1", "q5"), ("q2", "q9", "q11")))
    elif kind == "clusters":
        rows = clustered(rows, seed)
    elif kind == "gates":
        rows = clustered(gated(30, seed=seed).table.to_pylist(), seed)
        made = gated_space("dnf", ("p_known", "overlap", "verbal_confidence"))
    elif kind == "prompts":
        rows = prompted(rows)
        blocks = tuple(
            Block(form="or", literals=literals("overlap", "score_gap", grid=3), prompt=prompt) for prompt in "ab"
        )
        made = Space(name="two", blocks=blocks)
    names = list(dict.fromkeys(row["question_id"] for row in rows))
    folder = tmp_path_factory.mktemp("law")
    order = {name: place for place, name in enumerate(rng.permutation(names).tolist())}
    mixed = sorted(rows, key=lambda row: order[row["question_id"]])
    memory = search(Recording(build_table(rows)), made, resampling=FEW, budget=2.5)
    divided = write_parts(folder / "mixed", mixed, rng.integers(0, 4, len(names)).tolist())
    assert_same(search(divided, made, resampling=FEW, budget=2.5), memory)
    assert_same(search(Recording(build_table(mixed[::-1])), made, resampling=FEW, budget=2.5), memory)


def test_independent_samples_in_parts_are_those_in_memory(tmp_path):
    dates = bundled_recording("samples_date")
    dates = dates.select(np.arange(dates.shape[0]) % 4 == 0)
    folder = tmp_path / "dates"
    folder.mkdir()
    half = np.arange(dates.shape[0]) % 3 == 0
    for name, keep in (("part-0", half), ("part-1", ~half)):
        part = dates.select(keep)
        write_recording(folder / f"{name}.parquet", part.table, part.metadata)
    arguments = {"budget": 5.0, "baseline": "full", "orders": 3, "resampling": FEW}
    memory = search(dates, **arguments)
    assert memory.n + memory.n_tune == dates.shape[0]
    assert memory.optimism.estimate("naive").delta.n == 3 * memory.n
    assert memory.optimism.estimate("naive").delta.n_clusters == memory.n
    assert_same(search(folder, **arguments), memory)


def test_the_questions_for_tuning_are_those_of_their_share(parts):
    result = search(parts, resampling=Resampling(n_resamples=0))
    whole = read_recording(parts)
    tune = whole.select(TuneShare(share=0.5, seed=42).divided(whole))
    assert len(tune.question_ids) == result.n_tune
    assert len(whole.question_ids) == result.n_tune + result.n
    assert result.chosen.policy.provenance["tune_ids"] == sorted(
        {id_hash(str(name)) for name in (*tune.question_ids, *tune.clusters.tolist())}
    )


def test_row_groups_are_searched_even_where_they_split_a_question(rows, tmp_path, monkeypatch):
    table = build_table(rows)
    pieces = [table.slice(start, 50) for start in range(0, len(table), 50)]
    write_tables(tmp_path / "groups.parquet", table.schema, pieces)
    write_recording(tmp_path / "one.parquet", rows)
    one = search(tmp_path / "one.parquet", resampling=FEW)
    monkeypatch.setattr("suffice.evaluation.search.reading.PIECE_ROWS", 100)
    counts = []
    many = search(tmp_path / "groups.parquet", resampling=FEW, progress=lambda _, total: counts.append(total))
    assert min(counts) > 1
    assert_same(many, one)


def test_calibrators_and_scores_are_fitted_on_the_tune_questions_of_all_parts(tmp_path):
    rng = np.random.default_rng(4)
    rows = rows_of(60, 3, seed=8, answer_margin=lambda rng: float(np.round(rng.exponential(), 2)))
    scores = {row["question_id"]: float(rng.normal(9, 2)) for row in rows}
    for row in rows:
        del row["p_correct"]
        row["top_score"] = scores[row["question_id"]]
    write_recording(tmp_path / "run.parquet", rows)
    folder = write_parts(tmp_path / "run", rows, [i % 4 for i in range(60)])
    ours = search(folder, resampling=FEW)
    assert_same(ours, search(read_recording(tmp_path / "run.parquet"), resampling=FEW))
    signals = {item.literal.signal for item in ours.locked}
    assert {"p_correct", "top_score_z"} <= signals


def test_tune_questions_may_be_in_parts_of_their_own(tmp_path):
    for name, seed in (("tune", 1), ("eval", 2)):
        rows = with_texts(rows_of(40, seed=seed, prefix=name))
        write_recording(tmp_path / f"{name}.parquet", rows)
        write_parts(tmp_path / name, rows, [i % 3 for i in range(40)])
    tune = read_recording(tmp_path / "tune.parquet")
    memory = search(read_recording(tmp_path / "eval.parquet"), tune=tune, resampling=FEW)
    assert_same(search(tmp_path / "eval", tune=tmp_path / "tune", resampling=FEW), memory)
    assert_same(search(tmp_path / "eval", tune=tune, resampling=FEW), memory)
    with pytest.raises(ConfigMismatchError, match="40 of 40"):
        search(tmp_path / "eval", tune=tmp_path / "eval.parquet", resampling=FEW)


def test_tune_questions_and_the_others_may_have_different_columns(tmp_path):
    sides = {"tune": rows_of(40, 3, seed=1, prefix="t"), "eval": rows_of(40, 3, seed=2)}
    rng = np.random.default_rng(0)
    for name, rows in sides.items():
        for row in rows:
            row["cost.generator.calls"] = float(rng.integers(1, 4))
        write_recording(tmp_path / f"{name}.parquet", rows)
        lacking = [{k: v for k, v in row.items() if not k.startswith(("cost.", "f1", "em"))} for row in rows]
        for row in lacking:
            row["golds"] = [f"answer {int(row['question_id'][1:]) % 3}"]
        write_recording(tmp_path / f"{name}-lacking.parquet", lacking)
    for searched, tune in (("eval-lacking", "tune"), ("eval", "tune-lacking")):
        paths = [tmp_path / f"{name}.parquet" for name in (searched, tune)]
        memory = search(read_recording(paths[0]), tune=read_recording(paths[1]), metric="f1", resampling=FEW)
        assert_same(search(paths[0], tune=paths[1], metric="f1", resampling=FEW), memory)


def test_rules_run_to_one_round_where_tune_questions_end_at_another(tmp_path):
    sides = {"short": rows_of(40, 3, seed=1, prefix="t"), "long": rows_of(40, 5, seed=2)}
    sides["ended"] = [{**row, "end": "exhausted"} for row in sides["short"]]
    for name, rows in sides.items():
        write_recording(tmp_path / f"{name}.parquet", rows)

    def searches(searched, tune, **arguments):
        paths = [tmp_path / f"{name}.parquet" for name in (searched, tune)]
        yield lambda: search(paths[0], tune=paths[1], resampling=FEW, **arguments)
        recordings = [*map(read_recording, paths)]
        yield lambda: search(recordings[0], tune=recordings[1], resampling=FEW, **arguments)

    for searched, tune in (("short", "long"), ("long", "short")):
        for run in searches(searched, tune):
            with pytest.raises(ConfigMismatchError, match="use max_rounds"):
                run()
    for searched, tune, arguments, highest in (
        ("short", "long", {"max_rounds": [3]}, 3),
        ("long", "short", {"max_rounds": [3]}, 3),
        ("ended", "long", {}, 5),
        ("long", "ended", {}, 5),
    ):
        parts, memory = (run() for run in searches(searched, tune, **arguments))
        assert_same(parts, memory)
        assert parts.chosen.policy.max_rounds == highest


def test_a_few_questions_of_which_nothing_is_within_the_budget_have_figures(tmp_path):
    rows = [{k: v for k, v in row.items() if k != "p_correct"} for row in rows_of(8, 3, seed=3)]  # hence no tasr
    write_recording(tmp_path / "run.parquet", rows)
    memory = search(read_recording(tmp_path / "run.parquet"), budget=0.5, resampling=FEW)
    result = search(tmp_path / "run.parquet", budget=0.5, resampling=FEW)
    assert_same(result, memory)
    assert result.best is None
    assert result.optimism is None
    assert result.named == ()


def test_without_draws_there_are_no_intervals(parts, whole):
    result = search(parts, resampling=Resampling(n_resamples=0))
    assert_same(result, search(read_recording(whole), resampling=Resampling(n_resamples=0)))
    assert set(result.columns) == {"quality", "calls", "tokens"}
    assert result.optimism is None
    assert result.named[0].delta is None


def test_the_policy_and_all_rules_can_be_written(searched, memory, whole, tmp_path):
    write_rules(searched, tmp_path / "rules.parquet")
    write_rules(memory, tmp_path / "memory.parquet")
    ours, theirs = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("rules", "memory"))
    for name in ("rule", "members", "max_rounds", "thresholds", "front"):
        assert ours.column(name).to_pylist() == theirs.column(name).to_pylist(), name
    searched.plot().save(tmp_path / "rules.html")
    row = replay(read_recording(whole), [searched.chosen.policy], resampling=FEW).rows[0]
    assert row.selected_here


def test_the_corrected_p_value_of_too_many_rules_is_missing(parts, monkeypatch):
    monkeypatch.setattr("suffice.evaluation.search.estimates._MOST_SUMS_DRAWN", 100)
    result = search(parts, resampling=FEW)
    assert np.isnan(result.optimism.p_corrected)
    assert any("too many rules to correct" in note for table in result.tables() for note in table.notes)


def test_differences_without_variance_have_no_width():
    made = explorer(space("or"), Recording(build_table(rows_of(20, 3))), baseline="round >= 1")
    sums = RuleSums.zero(made.space.count, errors=True)
    sums.add_questions(made.space, made.questions)
    sums.folds["calls"][:] = sums.baseline[""]["calls"] + 2 * 20
    sums.more["calls_squares"][:] = 4 * 20

    class Everything:
        explorer = made
        distinct = distinct_of(made)

    columns = difference_columns_of(sums, Everything, 0.95)
    assert set(columns["calls_low"]) == set(columns["calls_high"]) == {2.0}


# Parts that differ ------------------------------------------------------------------------------------------------------


def test_a_part_without_a_signal_never_fires_and_notes_count_it(tmp_path):
    rows = rows_of(40, 3, seed=2, missing=0)
    lacking = [
        {k: v for k, v in row.items() if k != "overlap"} if int(row["question_id"][1:]) % 2 else row for row in rows
    ]
    folder = write_parts(tmp_path / "run", lacking, [i % 2 for i in range(40)])
    assert "overlap" not in pq.read_schema(folder / "part-0001.parquet").names
    made = space("or", ("overlap", "score_gap"))
    ours, memory = search(folder, made, resampling=FEW), search(read_recording(folder), made, resampling=FEW)
    assert np.allclose(np.sort(ours.columns["quality"]), np.sort(memory.columns["quality"]), atol=1e-12)
    assert [note for note in ours.notes if note.startswith("overlap is undefined in")]
    assert {note for note in memory.notes if "undefined" in note} <= set(ours.notes)


def test_a_part_without_rows_changes_nothing(rows, memory, tmp_path):
    folder = write_parts(tmp_path / "run", rows, [i % 3 for i in range(70)])
    write_recording(folder / "part-0009.parquet", read_recording(folder / "part-0000.parquet").table.slice(0, 0))
    assert_same(search(folder, resampling=FEW), memory)
    assert replay_in_blocks(folder, "fixed_k(2)").n == read_recording(folder).shape[0] == 70


def test_a_part_without_the_metric_is_named(rows, tmp_path):
    lacking = [
        {k: v for k, v in row.items() if k != "f1"} if int(row["question_id"][1:]) % 3 == 1 else row for row in rows
    ]
    folder = write_parts(tmp_path / "run", lacking, [i % 3 for i in range(70)])
    with pytest.raises(DataError, match=r"part-0001\.parquet"):
        search(folder, resampling=FEW)


def test_a_part_whose_rows_are_not_sorted_says_what_to_do(rows, tmp_path):
    mixed = [*rows[::2], *rows[1::2]]
    folder = write_parts(tmp_path / "run", mixed, [0] * 70)
    with pytest.raises(DataError, match="question_id"):
        search(folder, resampling=FEW)


def test_a_signal_that_no_part_has_is_named(parts):
    with pytest.raises(UnknownSignalError, match="rerank_score"):
        search(parts, Space(name="s", blocks=(Block(form="or", literals=literals("rerank_score")),)), resampling=FEW)


def test_a_damaged_part_is_named(rows, tmp_path):
    folder = write_parts(tmp_path / "run", rows, [i % 3 for i in range(70)])
    path = folder / "part-0001.parquet"
    data = bytearray(path.read_bytes())
    for place in range(4, len(data) // 2, 7):
        data[place] ^= 0x55
    path.write_bytes(bytes(data))
    with pytest.raises(SchemaError, match=r"part-0001\.parquet"):
        search(folder, resampling=FEW)


def test_what_cannot_be_searched_is_refused_with_a_way_out(whole, tmp_path):
    cut = rows_of(20, 3, lengths=True, end="rule")
    with pytest.raises(CensoredError, match="part-0000"):
        search(write_parts(tmp_path / "cut", cut, [0] * 20), resampling=FEW)
    for of in (whole, read_recording(whole)):
        with pytest.raises(DataError, match="bca"):
            search(of, resampling=Resampling(interval="bca"))
        with pytest.raises(DataError, match="tune share"):
            search(of, tune_share=2.0)
        with pytest.raises(DataError, match="folds"):
            search(of, folds=0)
        with pytest.raises(DataError, match="orders"):
            search(of, orders=2)
    with pytest.raises(DataError, match="path"):
        search(read_recording(whole), jobs=2)
    one = write_parts(tmp_path / "one", rows_of(1, 3), [0])
    for of in (one, read_recording(one)):
        with pytest.raises(DataError, match="be split"):
            search(of, resampling=FEW)
    rows = rows_of(40, 3, prefix="t")
    other = [{**row, "question_id": f"other {row['question_id']}", "cluster": row["question_id"]} for row in rows]
    with pytest.raises(ConfigMismatchError, match="40 of 40"):
        search(Recording(build_table(other)), tune=Recording(build_table(rows)), resampling=FEW)


def test_prompts_that_share_no_question_are_refused_over_parts(tmp_path):
    rows = [{**row, "prompt_id": f"{'ab'[int(row['question_id'][1:]) % 2]}@1"} for row in rows_of(20, 3)]
    folder = write_parts(tmp_path / "prompts", rows, [int(i % 2) for i in range(20)])
    blocks = tuple(Block(form="or", literals=(Literal(signal="overlap", thresholds=(0.5,)),), prompt=p) for p in "ab")
    for of in (folder, read_recording(folder)):
        with pytest.raises(DataError, match="share no"):
            search(of, Space(name="two", blocks=blocks), resampling=FEW)
        with pytest.raises(DataError, match="2 values of"):
            search(of, resampling=FEW)


def test_questions_of_one_text_are_on_one_side_and_one_unit(tmp_path):
    pairs = [(f"q{i}", f"q{i + 20}") for i in range(20)]
    twice = write_parts(tmp_path / "run", with_texts(rows_of(40, 3), same=pairs), [i % 3 for i in range(40)])
    result = search(twice, resampling=FEW)
    tune = set(result.chosen.policy.provenance["tune_ids"])
    sides = [[id_hash(name) in tune for name in pair] for pair in pairs]
    assert all(one == other for one, other in sides)
    assert {one for one, _ in sides} == {True, False}
    naive = result.optimism.estimate("naive").delta
    assert (naive.n, naive.n_clusters) == (result.n, result.n // 2)


def test_texts_without_a_word_are_no_sign_of_the_same_question(tmp_path):
    for name, seed in (("tune", 1), ("eval", 2)):
        rows = [{**row, "question": "?!"} for row in rows_of(20, 3, seed=seed, prefix=name)]
        write_parts(tmp_path / name, rows, [i % 2 for i in range(20)])
    result = search(tmp_path / "eval", tune=tmp_path / "tune", resampling=FEW)
    assert (result.n, result.n_tune) == (20, 20)
    assert result.optimism.estimate("naive").delta.n_clusters == 20
    assert result.chosen.policy.provenance["tune_texts"] == []


def test_failed_questions_are_left_out_and_counted(tmp_path):
    rows = rows_of(40, 3, seed=9)
    for row in rows:
        if row["question_id"] in ("q3", "q17", "q22"):
            row["end"] = "failed"
    folder = write_parts(tmp_path / "run", rows, [i % 3 for i in range(40)])
    result = search(folder, resampling=FEW)
    assert result.n + result.n_tune == 37
    assert "3 questions failed while recording and are left out" in result.notes


def test_a_failed_question_links_those_of_its_text_as_in_memory(tmp_path):
    rows = with_texts(rows_of(40, 3, seed=3), same=[(f"q{i}", f"q{i + 10}") for i in range(10, 20)])
    for row in rows:
        if 10 <= int(row["question_id"][1:]) < 20:
            row["end"] = "failed"
    folder = write_parts(tmp_path / "run", rows, [i % 3 for i in range(40)])
    result = search(folder, resampling=FEW)
    assert_same(result, search(read_recording(folder), resampling=FEW))
    assert result.n + result.n_tune == 30
    assert "10 questions failed while recording and are left out" in result.notes
    naive = result.optimism.estimate("naive").delta
    assert naive.n == naive.n_clusters  # of those that are left no two share a text


def test_agreement_counts_searched_questions_without_an_answer(tmp_path):
    rows = rows_of(30, 3, seed=4)
    for row in rows:
        if row["question_id"] in ("q1", "q2", "q3", "q4"):
            row["answer"] = None
    folder = write_parts(tmp_path / "run", rows, [i % 3 for i in range(30)])
    results = [search(of, metric="agreement", resampling=FEW) for of in (folder, read_recording(folder))]
    ours, memory = ([note for note in result.notes if note.startswith("agreement")] for result in results)
    assert ours == memory
    assert f"of {results[0].n} questions no round has an answer" in ours[0]


# Processes --------------------------------------------------------------------------------------------------------------


@pytest.mark.whole
def test_the_command_searches_parts_in_processes(parts, searched, tmp_path):
    arguments = ["search", parts, "--set=resamples=40", "--json"]
    alone = cli(*arguments, "--jobs", 1)
    assert (alone.code, alone.err) == (0, "")
    several = cli(*arguments, "--jobs", 2, "--policy", tmp_path / "policy.json")
    assert several.json == alone.json
    assert alone.json == json.loads(json.dumps(searched.to_dict()))
    plain = cli("search", parts, "--set=resamples=40", "--jobs", 1, "--details")
    for words in ("nested, selected on", "the intervals of rules are t intervals", "cross-fitted"):
        assert words in plain.out


def test_progress_counts_parts_and_what_is_kept_in_memory(parts):
    calls = []
    search(parts, resampling=FEW, progress=lambda done, total: calls.append((done, total)))
    assert calls[:4] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert calls[-5:] == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
