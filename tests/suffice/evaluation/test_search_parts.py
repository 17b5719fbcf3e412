"""Search over parts: the figures of a search in memory, whatever the division into parts, and what parts may lack."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from suffice.errors import CensoredError, ConfigMismatchError, DataError, SchemaError, UnknownSignalError
from suffice.evaluation.replay import replay, replay_stream
from suffice.evaluation.search import Block, Space, search, write_rules
from suffice.evaluation.search.estimates import difference_columns_of
from suffice.evaluation.search.sums import RuleSums
from suffice.evaluation.statistics import Resampling, keys_of
from suffice.policy.rules.rethreshold import thresholds
from suffice.policy.seen import id_hash
from suffice.recordings import Recording, read_recording, write_recording
from suffice.recordings.opened import write_tables
from suffice.recordings.schema import build_table
from tests.suffice.evaluation.test_search import all_numbers, explorer, gated, gated_space, literals, rows_of, space
from tests.support.cli_tools import cli

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


def assert_same(ours, theirs, *, apart=False):
    """Compare all that does not depend on how questions are drawn; with `apart` the draws, too."""
    assert (ours.n, ours.n_tune, ours.n_rules) == (theirs.n, theirs.n_tune, theirs.n_rules)
    for name in ("number", "members"):
        assert np.array_equal(getattr(ours.distinct, name), getattr(theirs.distinct, name)), name
    same = ["quality", "calls", "tokens", "delta", "calls_delta", *(["low", "high", "calls_low"] if apart else [])]
    for name in same:
        assert np.allclose(ours.columns[name], theirs.columns[name], rtol=0, atol=1e-12, equal_nan=True), name
    assert np.array_equal(ours.columns["calls"], theirs.columns["calls"])  # whole numbers
    assert np.array_equal(ours.front, theirs.front)
    assert ours.best == theirs.best
    for mine, other in zip(ours.locked, theirs.locked, strict=True):
        assert (mine.literal.signal, mine.n_tried) == (other.literal.signal, other.n_tried)
        assert mine.literal.thresholds == pytest.approx(other.literal.thresholds, rel=1e-12)
    assert ours.baselines.keys() == theirs.baselines.keys()
    assert next(iter(ours.baselines.values())) == pytest.approx(next(iter(theirs.baselines.values())), abs=1e-12)
    for mine, other in zip(ours.rows(ours.shown), theirs.rows(theirs.shown), strict=True):
        for literal, ends in mine["thresholds"].items():
            for end, expected in zip(ends, other["thresholds"][literal], strict=True):
                assert end == (None if expected is None else pytest.approx(expected, rel=1e-12))
    assert [(item.name, item.members) for item in ours.named] == [(item.name, item.members) for item in theirs.named]
    assert (ours.chosen is None) == (theirs.chosen is None)
    if ours.chosen is not None:
        mine, other = ours.chosen.policy, theirs.chosen.policy
        assert (mine.start_round, mine.max_rounds) == (other.start_round, other.max_rounds)
        assert apart or [item.value for item in thresholds(mine.rule)] == pytest.approx(
            [item.value for item in thresholds(other.rule)], rel=1e-12
        )
        assert not apart or mine.rule == other.rule
        assert mine.calibrators == other.calibrators
        assert {name: mine.provenance[name] for name in ("tune_ids", "tune_texts", "search")} == {
            name: other.provenance[name] for name in ("tune_ids", "tune_texts", "search")
        }
        assert ours.chosen.point == pytest.approx(theirs.chosen.point, abs=1e-12)


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


# Figures ----------------------------------------------------------------------------------------------------------------


def test_the_sums_of_rules_are_those_of_the_search_in_memory():
    for made in (
        explorer(space("k_of_n", grid=2, patience=(1, 3), max_rounds=(2, 4)), Recording(build_table(rows_of(60, 4)))),
        explorer(gated_space("dnf", patience=(1, 2)), gated(50)),
    ):
        numbers, keys = all_numbers(made), keys_of(f"q{i}" for i in range(len(made.questions)))
        sums = RuleSums.zero(made.space.count, 3, more=True)
        fold = np.arange(len(keys)) % 3
        sums.add_questions(made.space, made.questions, keys, fold)
        for name, values in made.means(numbers).items():
            assert np.allclose(sums.means(numbers)[name], values, rtol=0, atol=1e-12, equal_nan=True), name
        distinct, by_hash = made.distinct(), made.distinct_by(sums.hashes)
        assert np.array_equal(distinct.number, by_hash.number)
        assert np.array_equal(distinct.members, by_hash.members)
        for part, side, outcome in made.outcomes(numbers):
            for name in ("quality", "calls"):
                values = outcome(name)
                for k in range(3):
                    assert np.allclose(sums.folds[name][k][part], values[:, fold == k].sum(axis=1), atol=1e-10)
                squares = ((values - side.baseline[name]) ** 2).sum(axis=1)
                assert np.allclose(sums.more[f"{name}_squares"][part], squares, atol=1e-10)


def test_a_search_over_parts_gives_the_figures_of_one_in_memory(whole, parts):
    memory = search(read_recording(whole), resampling=FEW)
    assert memory.chosen is not None
    for path in (whole, parts):
        result = search(path, resampling=FEW)
        assert_same(result, memory)
        assert result.chosen.headline.startswith(f"{result.chosen.policy.rule}: f1 ")
        nested, theirs = result.optimism.estimate("nested"), memory.optimism.estimate("nested")
        assert nested.delta.delta == pytest.approx(theirs.delta.delta, abs=1e-12)
        assert (nested.delta.n_nonzero, nested.delta.p_exact) == pytest.approx(
            (theirs.delta.n_nonzero, theirs.delta.p_exact), nan_ok=True
        )
        assert result.optimism.n_within == memory.optimism.n_within
        assert result.optimism.p_corrected == pytest.approx(memory.optimism.p_corrected, abs=0.25)


def test_intervals_of_many_questions_agree_with_the_bootstrap_in_memory(tmp_path):
    rows = rows_of(600, 3, seed=5)
    write_recording(tmp_path / "run.parquet", rows)
    resampling = Resampling(n_resamples=2000)
    made = space(grid=2)
    ours = search(tmp_path / "run.parquet", made, resampling=resampling)
    memory = search(read_recording(tmp_path / "run.parquet"), made, resampling=resampling)
    width = memory.columns["high"] - memory.columns["low"]
    for name in ("low", "high"):
        apart = abs(ours.columns[name] - memory.columns[name])[width > width.max() / 2]
        assert apart.max() < 0.05 * width.max()  # of rare differences a t interval does not see the skew
    for how in ("naive", "nested"):
        mine, theirs = ours.optimism.estimate(how).delta, memory.optimism.estimate(how).delta
        assert mine.triple == pytest.approx(theirs.triple, abs=0.08 * (theirs.high - theirs.low))
    assert ours.optimism.p_raw == pytest.approx(memory.optimism.p_raw, abs=0.03)
    assert ours.optimism.p_corrected == pytest.approx(memory.optimism.p_corrected, abs=0.06)


@given(of=st.lists(st.integers(0, 5), min_size=30, max_size=30), seed=st.integers(0, 100))
@settings(max_examples=5, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_any_division_into_parts_gives_the_same_search(tmp_path_factory, of, seed):
    rows = with_texts(rows_of(30, 3, seed=seed, lengths=True), same=(("q1", "q5"),))
    folder = tmp_path_factory.mktemp("law")
    made = space(grid=2, patience=(1, 2))
    results = [
        search(write_parts(folder / name, rows, parts), made, resampling=FEW)
        for name, parts in (("one", [0] * 30), ("many", of))
    ]
    one, many = results
    assert_same(many, one, apart=True)
    assert np.array_equal(many.distinct.hash, one.distinct.hash)
    assert many.data_hash == one.data_hash
    assert (many.optimism is None) == (one.optimism is None)
    if one.optimism is not None:
        for mine, other in zip(many.optimism.estimates, one.optimism.estimates, strict=True):
            assert (mine.how, mine.rules) == (other.how, other.rules)
            assert mine.delta.triple == pytest.approx(other.delta.triple, abs=1e-12, nan_ok=True)
        for name in ("p_raw", "p_corrected"):
            assert getattr(many.optimism, name) == pytest.approx(getattr(one.optimism, name), abs=1e-12, nan_ok=True)
    assert sorted(many.notes) == sorted(one.notes)


def test_one_file_is_searched_by_row_groups_and_a_question_may_be_in_two(rows, tmp_path, monkeypatch):
    table = build_table(rows)
    pieces = [table.slice(start, 50) for start in range(0, len(table), 50)]
    write_tables(tmp_path / "groups.parquet", table.schema, pieces)
    write_recording(tmp_path / "one.parquet", rows)
    one = search(tmp_path / "one.parquet", resampling=FEW)
    monkeypatch.setattr("suffice.evaluation.search.passes.PIECE_ROWS", 100)
    counts = []
    many = search(tmp_path / "groups.parquet", resampling=FEW, progress=lambda _, total: counts.append(total))
    assert min(counts) > 1
    assert_same(many, one, apart=True)
    assert many.data_hash == one.data_hash


def test_gates_are_searched_over_parts_as_in_memory(tmp_path):
    recorded = gated(60)
    write_recording(tmp_path / "run.parquet", recorded.table)
    rows = recorded.table.to_pylist()
    folder = write_parts(tmp_path / "run", rows, [i % 3 for i in range(60)])
    made = gated_space("dnf", ("p_known", "overlap", "verbal_confidence"))
    assert_same(
        search(folder, made, resampling=FEW), search(read_recording(tmp_path / "run.parquet"), made, resampling=FEW)
    )


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
    memory = search(
        read_recording(tmp_path / "eval.parquet"), tune=read_recording(tmp_path / "tune.parquet"), resampling=FEW
    )
    assert_same(search(tmp_path / "eval", tune=tmp_path / "tune", resampling=FEW), memory)
    with pytest.raises(ConfigMismatchError, match="40 of 40 questions are among the tune questions"):
        search(tmp_path / "eval", tune=tmp_path / "eval.parquet", resampling=FEW)


def test_tune_questions_may_have_columns_that_the_others_lack_and_the_other_way_round(tmp_path):
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
            with pytest.raises(
                ConfigMismatchError, match="runs to round 5, and the recording ends at round 3: use max_rounds"
            ):
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
        nested = memory.optimism.estimate("nested")
        assert memory.chosen.point == pytest.approx((nested.quality, nested.calls), abs=1e-12)


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
    assert set(result.columns) == set(search(read_recording(whole), resampling=Resampling(n_resamples=0)).columns)
    assert result.optimism is None
    assert result.named[0].delta is None


def test_the_policy_and_all_rules_can_be_written(parts, whole, tmp_path):
    result = search(parts, resampling=FEW)
    write_rules(result, tmp_path / "rules.parquet")
    write_rules(search(read_recording(whole), resampling=FEW), tmp_path / "memory.parquet")
    ours, memory = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("rules", "memory"))
    for name in ("rule", "members", "max_rounds", "thresholds", "front"):
        assert ours.column(name).to_pylist() == memory.column(name).to_pylist(), name
    result.plot().save(tmp_path / "rules.html")
    row = replay(read_recording(whole), [result.chosen.policy], resampling=FEW).rows[0]
    assert row.selected_here
    with pytest.raises(DataError, match="over parts the chosen rule is not replayed"):
        _ = result.chosen.row


def test_the_corrected_p_value_of_too_many_rules_is_said_to_be_missing(parts, monkeypatch):
    monkeypatch.setattr("suffice.evaluation.search.estimates._MOST_SUMS_DRAWN", 100)
    result = search(parts, resampling=FEW)
    assert np.isnan(result.optimism.p_corrected)
    assert any("too many rules to correct" in note for table in result.tables() for note in table.notes)


def test_differences_without_variance_have_no_width():
    made = explorer(space("or"), Recording(build_table(rows_of(20, 3))), baseline="round >= 1")
    keys = keys_of(f"q{i}" for i in range(20))
    sums = RuleSums.zero(made.space.count, more=True)
    sums.add_questions(made.space, made.questions, keys)
    sums.folds["calls"][:] = sums.baseline["calls"] + 2 * 20
    sums.more["calls_squares"][:] = 4 * 20

    class Everything:
        distinct = made.distinct()

    columns = difference_columns_of(sums, Everything, 0.95)
    assert set(columns["calls_low"]) == set(columns["calls_high"]) == {2.0}


# Parts that differ ------------------------------------------------------------------------------------------------------


def test_a_part_without_a_signal_never_fires_there_and_the_notes_say_how_often(tmp_path):
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


def test_a_part_without_rows_changes_nothing(rows, tmp_path):
    folder = write_parts(tmp_path / "run", rows, [i % 3 for i in range(70)])
    expected = search(folder, resampling=FEW)
    write_recording(folder / "part-0009.parquet", read_recording(folder / "part-0000.parquet").table.slice(0, 0))
    assert_same(search(folder, resampling=FEW), expected, apart=True)
    assert replay_stream(folder, "fixed_k(2)").n == read_recording(folder).shape[0] == 70


def test_a_part_without_the_metric_is_named(rows, tmp_path):
    lacking = [
        {k: v for k, v in row.items() if k != "f1"} if int(row["question_id"][1:]) % 3 == 1 else row for row in rows
    ]
    folder = write_parts(tmp_path / "run", lacking, [i % 3 for i in range(70)])
    with pytest.raises(DataError, match=r"part-0001\.parquet: 'f1' was not measured.* Drop those questions"):
        search(folder, resampling=FEW)


def test_a_part_whose_rows_are_not_sorted_says_what_to_do(rows, tmp_path):
    mixed = [*rows[::2], *rows[1::2]]
    folder = write_parts(tmp_path / "run", mixed, [0] * 70)
    with pytest.raises(DataError, match="sort the recording by question_id and round"):
        search(folder, resampling=FEW)


def test_a_signal_that_no_part_has_is_named(parts):
    with pytest.raises(UnknownSignalError, match="needs the columns rerank_score, and the recording lacks them"):
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


def test_what_needs_all_parts_in_memory_is_refused_with_a_way_out(whole, tmp_path):
    rows = rows_of(20, 3)
    for row in rows:
        row["cluster"] = f"c{int(row['question_id'][1:]) // 2}"
    folder = write_parts(tmp_path / "clusters", rows, [i % 2 for i in range(20)])
    with pytest.raises(DataError, match="repeat questions"):
        search(folder, resampling=FEW)
    samples = write_parts(tmp_path / "samples", rows_of(20, 3), [i % 2 for i in range(20)], {"exchangeable": True})
    with pytest.raises(DataError, match="independent answers that vote.*without jobs"):
        search(samples, resampling=FEW)
    prompts = [{**row, "prompt_id": f"{'ab'[int(row['question_id'][1:]) % 2]}@1"} for row in rows_of(20, 3)]
    folder = write_parts(tmp_path / "prompts", prompts, [i % 2 for i in range(20)])
    with pytest.raises(ConfigMismatchError, match=r"several \(a, b\).*without jobs"):
        search(folder, resampling=FEW)
    cut = rows_of(20, 3, lengths=True, end="rule")
    with pytest.raises(CensoredError, match="part-0000"):
        search(write_parts(tmp_path / "cut", cut, [0] * 20), resampling=FEW)
    with pytest.raises(DataError, match="'bca' needs the differences of all questions at once"):
        search(whole, resampling=Resampling(interval="bca"))
    with pytest.raises(DataError, match="give tune questions as a path, too"):
        search(whole, tune=read_recording(whole))
    with pytest.raises(DataError, match="give its path to search its parts in several"):
        search(read_recording(whole), jobs=2)
    one = write_parts(tmp_path / "one", rows_of(1, 3), [0])
    with pytest.raises(DataError, match="cannot be split into tune and eval"):
        search(one, resampling=FEW)
    with pytest.raises(DataError, match="the tune share lies strictly between 0 and 1"):
        search(whole, tune_share=2.0)


def test_questions_of_one_text_are_on_one_side_and_the_note_says_how_they_count(parts, tmp_path):
    pairs = [(f"q{i}", f"q{i + 20}") for i in range(20)]
    twice = write_parts(tmp_path / "run", with_texts(rows_of(40, 3), same=pairs), [i % 3 for i in range(40)])
    tune = set(search(twice, resampling=FEW).chosen.policy.provenance["tune_ids"])
    sides = [[id_hash(name) in tune for name in pair] for pair in pairs]
    assert all(one == other for one, other in sides)
    assert {one for one, _ in sides} == {True, False}
    result = search(parts, resampling=FEW)
    assert any(note.startswith("5 questions share their text with others") for note in result.notes)


def test_texts_without_a_word_are_no_sign_of_the_same_question(tmp_path):
    for name, seed in (("tune", 1), ("eval", 2)):
        rows = [{**row, "question": "?!"} for row in rows_of(20, 3, seed=seed, prefix=name)]
        write_parts(tmp_path / name, rows, [i % 2 for i in range(20)])
    result = search(tmp_path / "eval", tune=tmp_path / "tune", resampling=FEW)
    assert (result.n, result.n_tune) == (20, 20)
    assert not any("share their text" in note for note in result.notes)
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
    assert not any("share their text" in note for note in result.notes)  # of those that are left


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
def test_the_command_searches_parts_in_processes(parts, tmp_path):
    arguments = ["search", parts, "--resamples", 40, "--json"]
    alone = cli(*arguments, "--jobs", 1)
    assert (alone.code, alone.err) == (0, "")
    several = cli(*arguments, "--jobs", 2, "--policy", tmp_path / "policy.json")
    assert several.json == alone.json
    assert alone.json == json.loads(json.dumps(search(parts, resampling=FEW).to_dict()))
    plain = cli("search", parts, "--resamples", 40, "--jobs", 1, "--details")
    for words in ("nested, selected on", "over parts the intervals of rules are t intervals", "cross-fitted"):
        assert words in plain.out


def test_progress_counts_parts(parts):
    calls = []
    search(parts, resampling=FEW, progress=lambda done, total: calls.append((done, total)))
    assert {total for _, total in calls} == {4}
    assert calls[:4] == [(1, 4), (2, 4), (3, 4), (4, 4)]
