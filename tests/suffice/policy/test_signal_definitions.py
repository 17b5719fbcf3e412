"""The registry, and what holds for every signal."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice.errors import DataError, UnknownSignalError
from suffice.policy.rounds import Cost, Passage, Round, Token
from suffice.policy.signals import (
    EVERY_ROUND,
    SIGNALS,
    Idf,
    Signal,
    ZScore,
    add_signal,
    clean_column,
    compute_signals,
    definitions,
)

STATE = {"overlap": Idf.fit(["a b", "b c"]), "top_score_z": ZScore(1.0, 2.0)}

ANY_FLOAT = st.floats() | st.sampled_from([9999.0, -9999.0, -100.0])
TOKENS = st.builds(
    Token, st.text(max_size=3), ANY_FLOAT, st.lists(st.tuples(st.text(max_size=2), ANY_FLOAT), max_size=3).map(tuple)
)
PASSAGES = st.builds(Passage, passage_id=st.text(max_size=2), title=st.text(max_size=5), text=st.text(max_size=9))
MEASURED = st.dictionaries(
    st.sampled_from([*SIGNALS, "own"]), ANY_FLOAT | st.none() | st.text(max_size=3) | st.integers() | st.booleans()
)
ROUNDS = st.builds(
    Round,
    index=st.just(0),
    answer=st.none() | st.text(max_size=6) | st.sampled_from(["yes", "unknown", "a b", "The"]),
    text=st.text(max_size=20) | st.sampled_from(["Answer: a\nConfidence: 4"]),
    answer_tokens=st.none() | st.lists(TOKENS, max_size=3).map(tuple),
    passages=st.lists(PASSAGES, max_size=3).map(tuple),
    pool_scores=st.lists(ANY_FLOAT, max_size=4).map(tuple),
    signals=st.just({}) | MEASURED,
)


@st.composite
def loops(draw):
    start = draw(st.integers(0, 1))
    rounds = draw(st.lists(ROUNDS, min_size=1, max_size=4))
    fields = ("answer", "text", "answer_tokens", "passages", "pool_scores", "signals")
    return [Round(index=start + i, **{name: getattr(r, name) for name in fields}) for i, r in enumerate(rounds)]


@settings(max_examples=60, deadline=None)
@given(loops())
def test_no_data_raises_and_every_value_is_in_range_or_undefined(rounds):
    for name, value in compute_signals(rounds, state=STATE).items():
        assert type(value) is float
        low, high = SIGNALS[name].range if name in SIGNALS else (-math.inf, math.inf)
        assert math.isnan(value) or (math.isfinite(value) and low <= value <= high)
        if name in SIGNALS and not SIGNALS[name].may_exist(rounds[-1].index):
            assert math.isnan(value)


@settings(max_examples=50, deadline=None)
@given(loops())
def test_appending_rounds_never_changes_an_earlier_value(rounds):
    growing, live = [], []
    for observed in rounds:  # one list that grows, as a session holds it
        growing.append(observed)
        live.append(compute_signals(growing, state=STATE))
    np.testing.assert_equal([compute_signals(rounds[: i + 1], state=STATE) for i in range(len(rounds))], live)


@settings(max_examples=50, deadline=None)
@given(loops())
def test_a_signal_reads_no_more_rounds_than_it_declares(rounds):
    for name, signal in SIGNALS.items():
        if signal.compute is not None:
            whole = compute_signals(rounds, [name], state={})
            np.testing.assert_equal(compute_signals(rounds[-1 - signal.lookback :], [name], state={}), whole)


class Watched:
    """A round that notes which of its fields are read."""

    def __init__(self, observed, read):
        self._observed, self._read = observed, read

    def __getattr__(self, name):
        self._read.add(name)
        return getattr(self._observed, name)


def test_a_signal_of_complete_rounds_reads_the_fields_that_it_declares():
    rounds = [
        Round(
            index=index,
            answer=f"answer {index}",
            text="Confidence: 4",
            thinking="Wait, that is not right.",
            answer_tokens=(Token("a", -0.5, (("a", -0.5), ("b", -1.5))),),
            passages=(Passage(passage_id="1", title="answer", text="answer"),),
            pool_scores=(3.0, 2.0, 1.5),
            costs={"writer": Cost(calls=1, output_tokens=index)},
            feedback="Good, but unclear.",
            signals={"check_error": 8.0 - index, "check_passed": 1.0},
            embedding=np.array([1.0, index], dtype=np.float32),
        )
        for index in range(1, 8)
    ]
    for signal in SIGNALS.values():
        if signal.compute is not None and signal.reads:
            read = set()
            value = signal.compute([Watched(item, read) for item in rounds])
            assert read - {"index"} == {name.partition(".")[0] for name in signal.reads}, signal.name
            assert signal.name.startswith("information_") or not math.isnan(value), signal.name


@settings(max_examples=50, deadline=None)
@given(loops())
def test_a_signal_reads_no_other_fields_than_it_declares(rounds):
    for signal in SIGNALS.values():
        if signal.compute is not None and signal.reads:
            names = {name.removeprefix("signals.") for name in signal.reads if name.startswith("signals.")}
            bare = [
                Round(
                    index=item.index,
                    signals={name: value for name, value in item.signals.items() if name in names},
                    **{name: getattr(item, name) for name in signal.reads if not name.startswith("signals.")},
                )
                for item in rounds
            ]
            if signal.name not in rounds[-1].signals:  # a measured value is never computed
                np.testing.assert_equal(signal.compute(bare), signal.compute(rounds))


def test_every_built_in_signal_that_is_computed_declares_what_it_reads():
    computed = [signal for signal in SIGNALS.values() if signal.compute is not None and not signal.fitted]
    own = [signal.name for signal in computed if getattr(signal.compute, "__module__", "").startswith("suffice.")]
    assert "answer_stable" in own
    assert [name for name in own if not SIGNALS[name].reads] == ["thinking_novelty"]  # it reads rounds of any number


def test_a_signal_cannot_read_a_field_that_no_round_has():
    with pytest.raises(DataError, match="anwser"):
        Signal(name="typo", doc="-", unit="score", range=(0, 1), reads={"anwser"})


@settings(max_examples=50, deadline=None)
@given(loops())
def test_asking_for_one_signal_equals_asking_for_all(rounds):
    everything = compute_signals(rounds, state=STATE)
    for name, value in everything.items():
        np.testing.assert_equal(compute_signals(rounds, [name], state=STATE), {name: value})


@pytest.mark.parametrize("name", [*SIGNALS, "own"])
def test_infinite_values_of_a_column_are_undefined_but_margins_are_clipped(name):
    cleaned = clean_column(name, np.array([[math.inf], [-math.inf]]))
    np.testing.assert_equal(cleaned, [[30.0], [0.0]] if name == "answer_margin" else [[math.nan], [math.nan]])


@settings(deadline=None)
@given(st.lists(ANY_FLOAT, max_size=6), st.sampled_from([*SIGNALS, "own"]))
def test_a_recorded_column_is_cleaned_as_a_live_value_is(values, name):
    ends = name in SIGNALS and SIGNALS[name].last_round == 0
    at = 0 if ends else 6  # the last ones begin at round 6
    live = [compute_signals([Round(index=at, signals={name: value})], [name], state={})[name] for value in values]
    cleaned = clean_column(name, np.array(values, dtype=np.float64))
    np.testing.assert_equal((cleaned + 0.0).tolist(), (np.array(live) + 0.0).tolist())  # the sign of a zero is no value


@settings(deadline=None)
@given(st.lists(ANY_FLOAT, min_size=3, max_size=3), st.sampled_from([*SIGNALS, "own"]))
def test_a_column_is_undefined_outside_its_rounds_as_live(values, name):
    live = [
        compute_signals([Round(index=i, signals={name: value})], [name], state={})[name]
        for i, value in enumerate(values)
    ]
    cleaned = clean_column(name, np.array([values]), index=np.arange(3))
    np.testing.assert_equal((cleaned + 0.0).tolist(), [(np.array(live) + 0.0).tolist()])


@pytest.mark.parametrize("name", [*SIGNALS, "own"])
def test_cleaning_a_column_does_not_depend_on_the_order_of_rounds(name):
    values, index = np.array([0.5, 0.25, 1.0, 0.75]), np.array([2, 1, 0, 3])
    order = np.argsort(index)
    cleaned = clean_column(name, values, index=index)
    np.testing.assert_equal(cleaned[order], clean_column(name, values[order], index=index[order]))


def test_out_of_range_is_undefined_but_margins_are_clipped():
    rounds = [
        Round(
            index=2,
            signals={"p_correct": 1.1, "answer_margin": math.inf, "answer_margin_min": 31.0, "answer_stable": -1.0},
        )
    ]
    values = compute_signals(rounds, rounds[0].signals, state={})
    np.testing.assert_equal(
        values, {"p_correct": math.nan, "answer_margin": 30.0, "answer_margin_min": math.nan, "answer_stable": math.nan}
    )
    assert SIGNALS["answer_margin"].clean(-math.inf) == 0


@pytest.mark.parametrize("value", [None, "0.5", b"1", [0.5], np.array([0.5]), object(), 10**400, 1j])
def test_what_is_no_number_is_undefined(value):
    assert math.isnan(SIGNALS["p_correct"].clean(value))


@pytest.mark.parametrize("value", [np.float32(0.5), np.float64(0.5), 0.5])
def test_numpy_s_numbers_are_numbers(value):
    assert SIGNALS["p_correct"].clean(value) == 0.5
    assert SIGNALS["answer_stable"].clean(np.bool_(True)) == SIGNALS["answer_stable"].clean(np.int64(1)) == 1


def test_a_measured_value_wins_over_a_computed_one():
    rounds = [Round(index=1, answer="a"), Round(index=2, answer="a", signals={"answer_stable": 0.0})]
    assert compute_signals(rounds, ["answer_stable"], state={}) == {"answer_stable": 0.0}


def test_an_undefined_measured_value_is_not_replaced_by_a_computed_one():
    rounds = [Round(index=1, answer="a"), Round(index=2, answer="a", signals={"answer_stable": math.nan})]
    assert math.isnan(compute_signals(rounds, ["answer_stable"], state={})["answer_stable"])


def test_a_signal_that_nobody_measured_is_undefined():
    values = compute_signals([Round(index=1)], ["rerank_score", "judge_entailment", "answer_probability"], state={})
    assert all(map(math.isnan, values.values()))


def test_a_host_s_own_signal_needs_no_registration_but_must_be_there():
    first, second = Round(index=1, signals={"mine": 2.0}), Round(index=2)
    assert compute_signals([first], ["mine"], state={}) == {"mine": 2.0}
    assert compute_signals([first], state={})["mine"] == 2.0
    assert math.isnan(compute_signals([first, second], ["mine"], state={})["mine"])
    assert math.isnan(compute_signals([Round(index=1, signals={"mine": math.inf})], ["mine"], state={})["mine"])
    with pytest.raises(UnknownSignalError, match="'mine'"):
        compute_signals([second], ["mine"], state={})


def test_signals_of_no_round_are_refused():
    with pytest.raises(DataError, match="rounds is empty"):
        compute_signals([], ["answer_stable"], state={})


def test_a_registered_signal_is_computed_like_any_other(monkeypatch):
    monkeypatch.setattr(definitions, "_REGISTRY", dict(definitions._REGISTRY))
    mine = Signal(
        name="shouting",
        compute=lambda rounds: float((rounds[-1].answer or "").isupper()),
        range=(0, 1),
        unit="bool",
        doc="Shouts.",
    )
    assert add_signal(mine) is mine
    assert compute_signals([Round(index=1, answer="PARIS")], ["shouting"], state={}) == {"shouting": 1.0}
    with pytest.raises(DataError, match="already"):
        add_signal(mine)


def test_a_decorated_function_is_a_signal_named_and_described_by_itself(monkeypatch):
    monkeypatch.setattr(definitions, "_REGISTRY", dict(definitions._REGISTRY))

    @definitions.register_signal("bool", (0, 1), "passages", first_round=1)
    def shouting(rounds):
        """Shouts.

        More about it.
        """
        return float((rounds[-1].answer or "").isupper())

    assert definitions._REGISTRY["shouting"] == Signal(
        name="shouting",
        compute=shouting,
        range=(0, 1),
        unit="bool",
        needs=frozenset({"passages"}),
        first_round=1,
        doc="Shouts.",
    )
    with pytest.raises(DataError, match="'shouting'"):
        definitions.register_signal("bool", (0, 1))(shouting)


def test_a_signal_s_name_can_be_spelled_in_a_rule():
    with pytest.raises(DataError, match="identifier"):
        Signal(name="p correct", compute=None, range=(0, 1), unit="bool", doc="")
    with pytest.raises(DataError, match="low to high"):
        Signal(name="x", compute=None, range=(1, 0), unit="bool", doc="")


def test_the_registry_cannot_be_written_around_register():
    with pytest.raises(TypeError):
        SIGNALS["x"] = None


def test_every_signal_of_the_methods_page_is_declared():
    assert set(SIGNALS) == {
        *("difficulty", "allocated", "window_end_4"),
        *("rationale_steps", "rationale_coherence", "rationale_doubt", "rationale_score"),
        *("question_relevance", "vote_repeats", "vote_joins"),
        *("answer_stable", "answer_f1_previous", "answer_similarity_previous", "abstained", "answer_in_evidence"),
        *("answer_length", "answer_margin", "answer_margin_min", "answer_margin_p10", "answer_margin_mean"),
        *("answer_margin_median", "answer_logprob_mean", "answer_probability", "p_correct"),
        *("answer_entropy_mean", "answer_entropy_max", "answer_logprob_sum"),
        *("verbal_confidence", "calibrated_confidence", "overlap", "top_score", "score_gap", "top_score_z_pool"),
        *("top_score_z", "top_score_z_robust", "rerank_score", "judge_entailment", "context_sufficient"),
        *("semantic_distance", "critic_approved", "information_score", "information_gain", "draft_tokens"),
        *(f"semantic_distance_{back}" for back in range(2, 6)),
        *("critic_praise", "lexical_support"),
        *("command_repeated", "tool_failed", "check_passed", "spend"),
        *("check_error", "error_gain"),
        *("since_change", "checks_green_since_change", "context_tokens"),
        *("thinking_tokens", "thinking_ended", "thinking_hesitation", "thinking_novelty", "trial_hesitates"),
        *("round", "calls", "tokens", "seconds"),
        *("semantic_novelty", "p_settled"),
        *("p_known", "p_retrieve", "p_enough", "sample_spread", "new_confidence", "critique_score"),
        *("answer_id", "vote_share", "vote_lead", "vote_entropy", "posterior_majority", "posterior_plurality"),
        *(f"window_agreement_{size}" for size in range(2, 11)),
        *("weighted_vote_share", "weighted_vote_lead", "verifier_score", "passed"),
        *("vote_evidence", "complexity", "chain_ended", "queries", "lowest_probability", "rind"),
    }


def test_every_declaration_is_complete():
    units = {"nats", "probability", "bool", "score", "count", "seconds", "dollars", "ratio", "z"}
    for name, signal in SIGNALS.items():
        assert signal.name == name
        assert signal.unit in units
        assert signal.doc.endswith(".")
        assert (signal.unit == "bool") <= (signal.range == (0.0, 1.0))
        assert (signal.unit == "probability") <= (signal.range == (0.0, 1.0))
        assert signal.lookback in (0, EVERY_ROUND) or signal.first_round > signal.lookback
        assert not (signal.fitted and signal.compute)
        assert signal.last_round is None or signal.last_round >= signal.first_round
    assert [name for name, signal in SIGNALS.items() if signal.clip] == ["answer_margin"]
    assert {name for name, signal in SIGNALS.items() if "logprobs" in signal.needs} >= {"answer_margin", "p_correct"}
    assert "not exactly replayable" in SIGNALS["seconds"].doc


@pytest.mark.whole
def test_signals_cost_an_import_of_numpy_only():
    code = "import sys, numpy; before = set(sys.modules); import suffice.policy.signals; print(*(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    foreign = {name.split(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"suffice", "numpy"}
    assert not foreign
