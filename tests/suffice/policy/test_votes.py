"""Votes: signals, rules and selectors of independent samples against plain loops, integrals and live sessions."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import integrate

from suffice import Policy, Round, Session, parse_rule, parse_selector, register_selector, replay
from suffice.errors import DataError, NotFittedError, NotFoundError, RuleSyntaxError, SchemaError, UnknownSignalError
from suffice.evaluation.replay.orders import drawn_orders, n_orders
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.policy.calibration import Calibrator
from suffice.policy.comparisons import guess_normalizer
from suffice.policy.normalizers import NORMALIZERS, match, normalizer_of, register_normalizer
from suffice.policy.rounds import Rounds
from suffice.policy.rules import MajorityOfSamples, Selector, error_of_lead
from suffice.policy.session import stops
from suffice.policy.signals import answer_ids, member_component, vote_signal
from suffice.policy.signals.votes import VOTES, RunningVotes, _VoteTally
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from tests.support.strategies import NAN

WIDTH = 12


def sampled(answers: list[list[str | None]], metric=None, *, exchangeable: bool = True, **columns) -> Recording:
    """Return a recording of samples; by default an answer is right if it is `a`."""
    rows = []
    for q, texts in enumerate(answers):
        for r, text in enumerate(texts, 1):
            value = float(text == "a") if metric is None else metric[q][r - 1]
            extra = {name: values[q][r - 1] for name, values in columns.items()}
            rows.append({"question_id": f"q{q}", "round": r, "answer": text, "right": value, **extra})
    return Recording(build_table(rows, {"right": "metric"}), {"exchangeable": exchangeable})


def policy(rule: str, width: int = WIDTH, **others) -> Policy:
    return Policy(**{"rule": rule, "selector": "majority_of_samples", "max_rounds": width, "name": rule, **others})


# What the papers say, read as plainly as can be.


@cache
def beats(first: int, second: int) -> float:
    """P(p > 1/2) for p of a Beta(first + 1, second + 1), by counting heads of fair coins."""
    n = first + second + 1
    return sum(math.comb(n, heads) for heads in range(first + 1)) / 2**n


@cache
def density_at_half(first: int, second: int) -> float:
    """The density at 1/2 of a Beta(first + 1, second + 1); that of the uniform prior is 1."""
    n = first + second
    return (n + 1) * math.comb(n, first) / 2**n


def plainly(answers: list[str | None], width: int) -> dict[str, int]:
    """Return after how many of `width` samples each rule of the papers stops."""
    counts: dict[str, int] = {}
    stops: dict[str, int] = {}
    for n, answer in enumerate(answers, 1):
        if answer is not None:
            counts[answer] = counts.get(answer, 0) + 1
        if not counts:
            continue
        first, second = ([*sorted(counts.values(), reverse=True), 0])[:2]
        window = answers[n - 4 : n] if n % 4 == 0 else []
        holds = {
            "ppr(5)": first > second and 1 / density_at_half(first, second) >= 4 / 0.05,
            "adaptive_consistency": beats(first, second) >= 0.95,
            "esc(4)": len(window) == 4 and None not in window and len(set(window)) == 1,
            "lead(3)": first - second >= 3,
            f"settled({width})": first - second > width - n,
            "vote_share >= 0.6": first / sum(counts.values()) >= 0.6,
        }
        for name in NAMED:
            if holds[name]:
                stops.setdefault(name, n)
    return {name: stops.get(name, width) for name in NAMED}


NAMED = ("adaptive_consistency", "esc(4)", "lead(3)", f"settled({WIDTH})", "vote_share >= 0.6", "ppr(5)")
N_SEQUENCES = 4_000


@pytest.fixture(scope="module")
def sequences():
    """Votes on questions of all kinds, one answer likely by any degree and up to six others, and where plain loops stop."""
    rng = np.random.default_rng(0)
    likely, others = rng.random(N_SEQUENCES), rng.integers(1, 7, N_SEQUENCES)
    size = (N_SEQUENCES, WIDTH)
    drawn = np.where(rng.random(size) < likely[:, None], 0, rng.integers(1, others[:, None] + 1, size))
    drawn[rng.random(size) < 0.1] = -1
    texts = np.array([None, *"abcdefgh"], dtype=object)[drawn + 1]
    plain: dict[tuple[str | None, ...], dict[str, int]] = {}
    rows = [tuple(row) for row in texts.tolist()]
    for row in rows:
        if row not in plain:
            plain[row] = plainly(list(row), WIDTH)
    shared = policy(NAMED[0])  # the numbers of answers, once for all rules, as a replay computes them
    ids = answer_ids(texts, NORMALIZERS[shared.normalizer])
    view = Rounds({shared.answer_column: ids}, np.arange(1, WIDTH + 1), np.ones(size, dtype=bool), texts)
    return view, {name: [plain[row][name] for row in rows] for name in NAMED}


@pytest.mark.parametrize("name", NAMED)
def test_a_named_rule_stops_where_a_plain_reading_of_its_paper_does(name, sequences):
    view, plain = sequences
    stopped = stops(policy(name), view).rounds
    np.testing.assert_array_equal(stopped, plain[name])
    assert len(set(stopped.tolist())) > 2


@pytest.mark.parametrize(("first", "second"), [(1, 0), (1, 1), (3, 0), (4, 1), (7, 5), (20, 12), (40, 2)])
def test_the_beta_posterior_is_the_integral(first, second):
    def density(p: float) -> float:
        return p**first * (1 - p) ** second

    exact = integrate.quad(density, 0.5, 1)[0] / integrate.quad(density, 0, 1)[0]
    ids = np.array([[0.0] * first + [1.0] * second])
    assert vote_signal("posterior_majority", ids)[0, -1] == pytest.approx(exact, abs=1e-9)
    assert vote_signal("posterior_majority", ids)[0, -1] == pytest.approx(beats(first, second), abs=1e-12)


def test_the_beta_posterior_is_the_integral_for_all_counts():
    for first, second in itertools.product(range(1, 16), range(16)):
        if second <= first:
            area = [integrate.quad(lambda p, a=first, b=second: p**a * (1 - p) ** b, low, 1)[0] for low in (0.5, 0)]
            value = vote_signal("posterior_majority", np.array([[0.0] * first + [1.0] * second]))[0, -1]
            assert value == pytest.approx(area[0] / area[1], abs=1e-8)


# What a lead and a prior-posterior ratio promise.


@pytest.mark.parametrize("p", [0.5, 0.6, 0.9])
def test_a_leads_error_is_that_of_a_walk_between_walls(p):
    for lead in (1, 2, 5):
        chances = {0: 1.0}
        wrong = 0.0
        for _ in range(3000):
            after: dict[int, float] = {}
            for ahead, chance in chances.items():
                for step, likely in ((1, p), (-1, 1 - p)):
                    after[ahead + step] = after.get(ahead + step, 0.0) + chance * likely
            wrong += after.pop(-lead, 0.0)
            after.pop(lead, None)
            chances = after
        assert error_of_lead(lead, p) == pytest.approx(wrong, abs=1e-9)
    # Odds beyond the largest number of a float.
    assert (error_of_lead(100, 0.9999), error_of_lead(2000, 0.6)) == pytest.approx((0.0, 0.0), abs=1e-300)
    assert error_of_lead(2000, 0.4) == 1.0
    for votes, chance in ((0, 0.7), (1.5, 0.7), (2, 0.0), (2, 1.0), (NAN, 0.7)):
        with pytest.raises(DataError, match="lead"):
            error_of_lead(votes, chance)


def test_a_prior_posterior_ratio_separates_equally_likely_answers_rarely_enough():
    for delta in (0.05, 0.2):
        chances, stopped = {(0, 0): 1.0}, 0.0
        for _ in range(300):
            after: dict[tuple[int, int], float] = {}
            for (a, b), chance in chances.items():
                for counts in ((a + 1, b), (a, b + 1)):
                    if density_at_half(*counts) <= delta:
                        stopped += chance / 2
                    else:
                        after[counts] = after.get(counts, 0.0) + chance / 2
            chances = after
        # The bound holds for stopping at all: with two equally likely answers that is the error twice.
        assert delta / 4 < stopped <= delta


@pytest.mark.parametrize(
    ("shares", "answers"), [((0.51, 0.49), 2), ((0.4, 0.3, 0.1, 0.1, 0.1), 5), ((0.5, 0.3, *[0.02] * 10), 151)]
)
def test_a_prior_posterior_ratio_misses_the_likeliest_answer_rarely_enough(shares, answers):
    rng, n, delta = np.random.default_rng(11), 1000, 0.2
    drawn = rng.choice(len(shares), size=(n, 150), p=shares)
    votes = np.cumsum(drawn[..., None] == np.arange(len(shares)), axis=1)
    ids = drawn.astype(np.float64)
    fires = vote_signal("vote_evidence", ids) >= math.log((answers - 1) / delta)
    assert str(parse_rule(f"ppr({answers}, {delta})")) == f"vote_evidence >= {math.log((answers - 1) / delta)!r}"
    at = np.argmax(fires, axis=1)
    leader = votes[np.arange(n), at].argmax(axis=1)
    wrong = fires.any(axis=1) & (leader != 0)
    assert wrong.mean() <= delta
    assert fires.any(axis=1).mean() > 0.05


@pytest.mark.parametrize("text", ["ppr(1)", "ppr(2.5)", "ppr(3, 0)", "ppr(3, 1)"])
def test_a_prior_posterior_ratio_needs_answers_and_an_error(text):
    with pytest.raises(RuleSyntaxError, match="possible"):
        parse_rule(text)


@pytest.mark.parametrize("counts", [(1, 1, 1), (3, 1, 1), (5, 4, 2), (9, 0, 0)])
def test_the_dirichlet_posterior_is_the_integral_over_the_simplex(counts):
    a, b, c = counts

    def density(q: float, p: float) -> float:
        return p**a * q**b * (1 - p - q) ** c

    whole = integrate.dblquad(density, 0, 1, 0, lambda p: 1 - p)[0]
    # p is the largest: q < p and 1 - p - q < p.
    part = integrate.dblquad(density, 1 / 3, 1, lambda p: max(0.0, 1 - 2 * p), lambda p: min(p, 1 - p))[0]
    ids = np.repeat([0.0, 1.0, 2.0], counts)[None]
    value = vote_signal("posterior_plurality", ids)[0, -1]
    if not b:  # an answer that was never given has no share of its own
        assert value == pytest.approx(beats(a, 0), abs=1e-9)
    else:
        assert value == pytest.approx(part / whole, abs=1e-6)


def test_the_dirichlet_posterior_of_two_answers_is_the_beta_posterior():
    for first, second in itertools.product(range(1, 12), range(1, 12)):
        if second <= first:
            ids = np.repeat([0.0, 1.0], (first, second))[None]
            both = [vote_signal(f"posterior_{name}", ids)[0, -1] for name in ("majority", "plurality")]
            assert both[0] == pytest.approx(both[1], abs=1e-9)


def test_a_posterior_counts_at_most_the_five_most_frequent_answers():
    ids = np.array([[0.0, 0, 0, *range(1, 9)]])
    five = np.array([[0.0, 0, 0, *range(1, 5)]])
    assert vote_signal("posterior_plurality", ids)[0, -1] == vote_signal("posterior_plurality", five)[0, -1]


def test_signals_of_a_vote_by_hand():
    ids = np.array([[NAN, 0.0, 1.0, 1.0, NAN, 1.0]])
    np.testing.assert_array_equal(vote_signal("vote_lead", ids), [[NAN, 1, 0, 1, 1, 2]])
    np.testing.assert_allclose(vote_signal("vote_share", ids), [[NAN, 1, 1 / 2, 2 / 3, 2 / 3, 3 / 4]])
    np.testing.assert_array_equal(vote_signal("window_agreement_2", ids), [[0, 0, 0, 1, 0, 0]])
    np.testing.assert_array_equal(
        vote_signal("window_agreement_3", np.array([[0.0, 0, 0, 1, 0, 0]])), [[0, 0, 1, 0, 0, 0]]
    )
    entropy = [0, math.log(2), -(2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3)]
    np.testing.assert_allclose(vote_signal("vote_entropy", ids)[0, 1:4], entropy)
    weights = np.array([[0.5, 0.5, 0.25, NAN, 0.5, 0.25]])
    np.testing.assert_allclose(vote_signal("weighted_vote_lead", ids, weights), [[NAN, 0.5, 0.25, 0.25, 0.25, 0]])
    np.testing.assert_allclose(vote_signal("weighted_vote_share", ids, weights)[0, -1], 0.5)
    nobody = np.array([[0.0, 1.0]])
    assert np.isnan(vote_signal("weighted_vote_share", nobody, np.zeros((1, 2)))).all()


def test_all_answers_unreadable_is_no_vote_at_all():
    ids = np.full((2, 3), NAN)
    for name in ("vote_lead", "vote_share", "vote_entropy", "posterior_majority", "posterior_plurality"):
        assert np.isnan(vote_signal(name, ids)).all()


answers = st.lists(st.sampled_from(["18", "-18", "$18.00", "20", "no idea", "", None]), min_size=1, max_size=6)


@settings(max_examples=50)
@given(
    answers,
    st.sampled_from([*NAMED, "posterior_plurality >= 0.7", "vote_entropy <= 0.2", "answer_stable >= 1", "never()"]),
    st.sampled_from(["majority_of_samples", "majority_of_samples(7)", "esc(2)", "esc(3, 7)", "majority", "last"]),
    st.sampled_from(["qa", "number", "exact"]),
)
def test_a_live_session_decides_as_the_replay(texts, rule, selector, normalizer):
    decides = policy(rule, selector=selector, normalizer=normalizer, max_rounds=6)
    table = build_table(
        [{"question_id": "q", "round": r, "answer": text, "answer_stable": NAN} for r, text in enumerate(texts, 1)]
    )
    if normalizer == "qa":
        session = Session(policy("never()", max_rounds=6))
        rounds = [Round(index=r, answer=text) for r, text in enumerate(texts, 1)]
        from suffice.policy.signals import compute_signals  # what a recorder stores

        stable = [
            compute_signals(rounds[: r + 1], ["answer_stable"], state={})["answer_stable"] for r in range(len(rounds))
        ]
        table = build_table(
            [
                {"question_id": "q", "round": r, "answer": text, "answer_stable": value}
                for r, (text, value) in enumerate(zip(texts, stable, strict=True), 1)
            ]
        )
        del session
    stopped = PreparedRecording.of(Recording(table)).stops(decides)
    live = Session(decides, missing="ignore")
    decision = live.observe_all(Round(index=r, answer=text) for r, text in enumerate(texts, 1))
    if not decision.stop:
        decision = live.end("exhausted")
    assert decision.stop_round == stopped.rounds[0]
    assert (decision.answer_round or -1) == stopped.answer_rounds[0]
    restored = Session.from_state(json.loads(json.dumps(live.to_state())))
    assert repr(restored.decision) == repr(decision)


def test_the_normalizer_decides_what_is_the_same_answer():
    texts = ["-5", "5", "5.0", "3.5", "35"]
    by = {
        name: answer_ids(np.array(texts, dtype=object), NORMALIZERS[name]).tolist()
        for name in ("qa", "number", "exact")
    }
    assert by["qa"] == [0, 0, 1, 2, 2]  # made for names: signs and points are lost
    assert by["number"] == [0, 1, 1, 2, 3]
    assert by["exact"] == [0, 1, 2, 3, 4]


def test_stability_and_the_majority_follow_the_normalizer():
    for name, stable in (("qa", 2), ("number", 3)):
        decides = policy("answer_stable >= 1", normalizer=name, selector="majority")
        rounds = [Round(index=r, answer=text) for r, text in enumerate(["-5", "5", "5.0"], 1)]
        assert decides.decide(rounds).stop_round == stable
    rounds = [Round(index=r, answer=text) for r, text in enumerate(["5", "5.0", "-5", "-5.00", "5"], 1)]
    assert policy("never()", normalizer="number", selector="majority", max_rounds=5).decide(rounds).answer == "5"


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("number", "$1,234.50", "2469/2"),
        ("number", "7 - 5 = 2", "2"),
        ("number", "\u22125", "-5"),
        ("number", "1/2", "1/2"),
        ("number", "0.50", "1/2"),
        ("number", "1/0", None),
        ("number", "3 to 5", None),
        ("number", "1,23", None),
        ("number", "x2", None),
        ("number", "nothing", None),
        ("number", "9" * 2000, None),
        ("number", "18 dollars, so 18", "18"),
        ("letter", "(b)", "B"),
        ("letter", "B) Paris", "B"),
        ("letter", "b: Paris", "B"),
        ("letter", "Both", None),
        ("letter", "A cat", None),
        ("date", "05/01/2021", "2021-05-01"),
        ("date", "May 1, 2021.", "2021-05-01"),
        ("date", "31/12/2021", None),
        ("literal", "[1,  2]", "[1, 2]"),
        ("literal", "'abc'", "'abc'"),
        ("literal", "abc", "'abc'"),
        ("literal", "true", "True"),
        ("literal", "[" * 500, repr("[" * 500)),
        ("literal", "(" * 2000, repr("(" * 2000)),
        ("literal", " ", None),
        ("exact", "  A  ", "A"),
        ("exact", " ", None),
        ("qa", "The Tempest!", "tempest"),
        ("qa", " ", None),
    ],
)
def test_normalizers(name, text, key):
    assert NORMALIZERS[name](text) == key


def test_an_answer_matches_a_gold_answer_by_the_normalizer():
    assert match("18.0", ["17", "18"], "number") == 1
    assert match("18.0", ["18"], "exact") == match("?", ["?"], "number") == match(None, ["18"], "number") == 0
    assert np.isnan(match("18", [], "number"))


def test_the_golds_say_which_normalizer_fits():
    assert guess_normalizer(["18", "$3.50"]) == "number"
    assert guess_normalizer(["A", "c"]) == "letter"
    assert guess_normalizer([], ["18", "-3.5"]) == "number"
    assert guess_normalizer([], ["about 18 of them", "Oslo"]) == "qa"
    assert guess_normalizer(["01/02/2003"]) == "date"
    assert guess_normalizer(["None", "{'a': 1}"]) == "literal"
    assert guess_normalizer(["18", "eighteen"]) == guess_normalizer([]) == "qa"


def test_a_normalizer_of_ones_own():
    @register_normalizer("first_letter")
    def first_letter(answer: str) -> str | None:
        return answer[:1] or None

    decides = policy("lead(2)", normalizer="first_letter")
    assert decides.decide([Round(index=1, answer="Rome"), Round(index=2, answer="Riga")]).stop
    for name in ("first_letter", "two words"):
        with pytest.raises(DataError, match="normalizer"):
            register_normalizer(name)
    with pytest.raises(NotFoundError, match="'number'"):
        policy("lead(2)", normalizer="numbre")


def test_a_policy_keeps_its_normalizer_and_old_files_imply_one(tmp_path):
    path = tmp_path / "policy.json"
    decides = policy("lead(2)", normalizer="number")
    decides.save(path)
    assert Policy.load(path) == decides
    assert decides.digest != policy("lead(2)").digest
    assert "normalizer" not in policy("lead(2)").to_dict()
    assert "number" in repr(decides.tables()[0].rows)
    with pytest.raises(SchemaError, match="normalizer"):
        Policy.from_dict({**decides.to_dict(), "normalizer": 3})


def test_votes_need_answers():
    with pytest.raises(DataError, match="carry"):
        policy("lead(2)").view(Rounds({}, np.array([1]), np.ones((1, 1), dtype=bool)))


def test_a_calibrator_may_read_a_vote():
    texts = [list("aaa"), list("aab"), list("bca"), list("bbb")]
    recording = sampled(texts)
    ids = answer_ids(recording.answers, NORMALIZERS["qa"])
    shares = vote_signal("vote_share", ids)
    fitted = Calibrator(signal="vote_share", per_round=False).fit(
        shares, recording.column("right"), index=recording.index
    )
    decides = policy("p_correct > 0.5", width=3, calibrators=(fitted,))
    replayed = PreparedRecording.of(recording, samples=True).stops(decides)
    for q, row in enumerate(texts):
        live = decides.decide([Round(index=r, answer=text) for r, text in enumerate(row, 1)])
        assert live.stop_round == replayed.rounds[q]


# Ties.


def test_tied_answers_are_drawn_evenly_and_replayed_in_expectation():
    texts = np.array([["a", "b", "c", "a", "b", "c"]], dtype=object)
    view = Rounds(
        {"answer_id": answer_ids(texts, NORMALIZERS["qa"])}, np.arange(1, 7), np.ones((1, 6), dtype=bool), texts
    )
    drawn = Counter(int(MajorityOfSamples(seed=seed).select(view, np.array([5]))[0]) for seed in range(3000))
    assert set(drawn) == {3, 4, 5}
    assert all(900 < n < 1100 for n in drawn.values())
    np.testing.assert_allclose(MajorityOfSamples().shares(view, np.array([5])), [[0, 0, 0, 1 / 3, 1 / 3, 1 / 3]])
    replayed = replay(sampled(texts.tolist()), policy("never()", 6), metrics=["right"], orders=1)
    assert replayed.rows[0].metrics["right"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "text", ["majority_of_samples(x)", "rasc(0.3, 1e999)", "esc(2, -1)", "majority_of_samples(1.5)", f"esc(3, {2**64})"]
)
def test_a_seed_that_is_no_whole_number_is_refused(text):
    with pytest.raises(RuleSyntaxError, match="seed"):
        parse_selector(text)


def test_the_same_votes_and_seed_draw_the_same_answer_whatever_follows():
    texts = np.array([["a", "b", "c", "c"]], dtype=object)
    ids = answer_ids(texts, NORMALIZERS["qa"])
    for seed in range(20):
        chosen = []
        for width in (2, 3, 4):
            view = Rounds(
                {"answer_id": ids[:, :width]},
                np.arange(1, width + 1),
                np.ones((1, width), dtype=bool),
                texts[:, :width],
            )
            chosen.append(int(MajorityOfSamples(seed=seed).select(view, np.array([1]))[0]))
        assert len(set(chosen)) == 1


def test_a_weighted_vote_returns_the_answer_with_the_largest_sum():
    rounds = [
        Round(index=r, answer=text, signals={"p_correct": p})
        for r, (text, p) in enumerate([("a", 0.3), ("a", 0.3), ("b", 0.9), ("c", NAN)], 1)
    ]
    decides = policy("never()", width=4, selector="weighted_majority_of_samples")
    assert decides.decide(rounds).answer == "b"
    assert policy("never()", width=4).decide(rounds).answer == "a"


def test_a_verifier_or_judge_chooses_samples_alone_or_by_answer():
    scored = [("a", 0.4), ("b", 0.7), ("a", 0.5), ("c", 0.7), ("a", NAN)]
    for name in ("verifier_score", "judge_score"):
        rounds = [Round(index=r, answer=text, signals={name: score}) for r, (text, score) in enumerate(scored, 1)]

        def answer(selector, rounds=rounds):
            return policy("never()", width=len(rounds), selector=selector).decide(rounds).answer

        assert answer(f"max_{name}") == "c"  # among ties the latest
        assert answer(f"weighted_majority_of_samples({name})") == "a"  # 0.9 against 0.7 and 0.7
        assert answer("majority_of_samples") == "a"
        tied = [round_ for round_ in rounds if round_.answer != "a"]
        tied = [Round(index=r, answer=item.answer, signals=item.signals) for r, item in enumerate(tied, 1)]
        drawn = {answer(f"weighted_majority_of_samples({name}, {seed})", tied) for seed in range(20)}
        assert drawn == {"b", "c"}
        table = sampled([["b", "c"]], metric=[[1.0, 0.0]], **{name: [[0.7, 0.7]]})
        best = policy(f"{name} >= 0.9", width=2, selector="best")
        assert str(best.selector) == f"max_{name}"
        means = replay(table, best, metrics=["right"], orders=400).rows[0].metrics["right"]
        assert means == pytest.approx(0.5, abs=0.1)  # over random orders each of the tied ones is as likely


@pytest.mark.parametrize(
    "text",
    [
        "weighted_majority_of_samples(verifier_score)",
        "weighted_majority_of_samples(score, 3)",
        "weighted_majority_of_samples(3)",
    ],
)
def test_the_text_of_a_weighted_majority_reads_back(text):
    selector = parse_selector(text)
    assert str(selector) == text
    assert parse_selector(str(selector)) == selector
    assert str(MajorityOfSamples("p_correct")) == "weighted_majority_of_samples"


def test_a_weighted_vote_without_a_calibrator_is_refused_before_the_first_call():
    for decides in (policy("weighted_vote_lead >= 1"), policy("lead(2)", selector="weighted_majority_of_samples")):
        with pytest.raises(NotFittedError, match="calibrator"):
            decides.check()


def test_where_no_answer_can_be_read_the_last_one_is_returned():
    decides = policy("never()", width=2, normalizer="number")
    decision = decides.decide([Round(index=1, answer="who knows"), Round(index=2, answer="not me")])
    assert decision.answer == "not me"
    one = sampled([["x", "y"], ["3", "3"]], metric=[[0.0, 1.0], [0.0, 0.0]])
    result = replay(one, policy("never()", 2, normalizer="number"), metrics=["right"], orders=1)
    assert result.rows[0].metrics["right"] == 0.5
    assert any("answer_id is undefined in 50 % of rounds (2 of 4): no vote" in note for note in result.rows[0].notes)
    with pytest.raises(UnknownSignalError, match="'number'"):
        replay(sampled([["x", "y"]]), policy("never()", 2, normalizer="number"), metrics=["right"])


# Orders.


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=5), min_size=1, max_size=4),
    st.integers(0, 99),
)
def test_an_order_moves_the_rounds_of_each_question_and_nothing_else(texts, seed):
    recording = sampled(texts)
    (places,) = drawn_orders(recording, 1, seed)
    moved = recording.reordered(places)
    np.testing.assert_array_equal(moved.seen, recording.seen)
    assert moved.question_ids == recording.question_ids
    for before, after in zip(recording.answers.tolist(), moved.answers.tolist(), strict=True):
        assert Counter(before) == Counter(after)
    again = Recording(moved.table, moved.metadata)  # the table says the same
    assert again.answers.tolist() == moved.answers.tolist()
    np.testing.assert_array_equal(again.column("right"), moved.column("right"))
    back = moved.reordered(np.argsort(places, axis=1))
    assert back.answers.tolist() == recording.answers.tolist()


def test_all_orders_are_equally_likely_and_more_extend_fewer():
    recording = sampled([["a", "b", "c"]] * 2000)
    (places,) = drawn_orders(recording, 1, 5)
    counts = Counter(map(tuple, places.tolist()))
    assert len(counts) == 6
    assert all(260 < n < 410 for n in counts.values())
    few, many = list(drawn_orders(recording, 2, 5)), list(drawn_orders(recording, 4, 5))
    np.testing.assert_array_equal(few, many[:2])


def test_orders_do_not_depend_on_the_order_of_the_rows():
    recording = sampled([["a", "b", "c", "d"]] * 50)
    shuffled = Recording(
        recording.table.take(np.random.default_rng(1).permutation(recording.table.num_rows)), recording.metadata
    )
    assert shuffled.question_ids != recording.question_ids
    (here,), (there,) = drawn_orders(recording, 1, 5), drawn_orders(shuffled, 1, 5)
    by_name = dict(zip(shuffled.question_ids, there.tolist(), strict=True))
    assert [by_name[name] for name in recording.question_ids] == here.tolist()


def test_a_mean_over_orders_is_the_mean_over_all_permutations():
    texts = [["a", "a", "b", "c"], ["b", "a", "b", "a"], ["a", "b", "b", None]]
    decides = policy("lead(1)", 4)
    exact = {"right": [], "calls": []}
    for row in texts:
        scores, calls = [], []
        for order in itertools.permutations(row):
            n = next((n for n in range(1, 5) if len({*order[:n]} - {None}) == 1), 4)
            votes = Counter(text for text in order[:n] if text is not None)
            best = [text for text, count in votes.items() if count == max(votes.values())]
            scores.append(best.count("a") / len(best))
            calls.append(n)
        exact["right"].append(np.mean(scores))
        exact["calls"].append(np.mean(calls))
    result = replay(sampled(texts), decides, metrics=["right"], orders=3000)
    assert result.rows[0].metrics["right"] == pytest.approx(np.mean(exact["right"]), abs=0.02)
    assert result.rows[0].calls.mean == pytest.approx(np.mean(exact["calls"]), abs=0.03)
    assert result.rows[0].stop_rounds == pytest.approx({1: 11 / 12, 2: 1 / 12}, abs=0.02)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=5, max_size=5), min_size=1, max_size=4).filter(
        lambda texts: any(map(any, texts))
    )  # where nobody votes, a replay is refused
)
def test_a_settled_vote_is_the_full_vote_in_every_order(texts):
    result = replay(sampled(texts), policy("settled(5)", 5), metrics=["right"], baseline="full", orders=4)
    settled, full = result.rows[0], result.row("fixed_k(5), majority_of_samples")
    assert settled.metrics["right"] == pytest.approx(full.metrics["right"])
    assert settled.calls.mean <= full.calls.mean == 5


def test_the_stored_order_of_a_sorted_file_is_not_the_figure():
    texts = [["a"] * 4 + ["b"] * 6] * 30  # sorted by answer: the first four agree, and the vote is for b
    stored = replay(sampled(texts), policy("lead(3)", 10), metrics=["right"], orders=1)
    drawn = replay(sampled(texts), policy("lead(3)", 10), metrics=["right"])
    assert stored.rows[0].metrics["right"] == 1.0
    assert drawn.rows[0].metrics["right"] < 0.4
    assert "100 random orders" in drawn.notes[0]
    assert not any("orders" in note for note in stored.notes)


def test_orders_are_refused_where_there_are_none():
    follow = sampled([["a", "b"]], exchangeable=False)
    with pytest.raises(DataError, match="follow"):
        replay(follow, policy("lead(2)", 2), metrics=["right"], orders=10)
    assert n_orders(follow, None, []) == n_orders(follow, 1, []) == 1
    recording = sampled([["a", "b"]], answer_stable=[[NAN, 0.0]])
    with pytest.raises(DataError, match="answer_stable"):
        replay(recording, policy("answer_stable >= 1", 2), metrics=["right"])
    assert replay(recording, policy("answer_stable >= 1", 2), metrics=["right"], orders=1).rows
    for wrong in (0, True, 2.5):
        with pytest.raises(DataError, match="whole number"):
            replay(recording, policy("lead(2)", 2), metrics=["right"], orders=wrong)
    rows = [
        {"question_id": q, "round": r, "answer": "a", "right": 1.0, "end": "rule" if q == "p" else "max_rounds"}
        for q, n in (("p", 1), ("q", 2))
        for r in range(1, n + 1)
    ]
    cut = Recording(build_table(rows, {"right": "metric"}), {"exchangeable": True})
    with pytest.raises(DataError, match="a rule ended"):
        replay(cut, policy("lead(2)", 2), metrics=["right"])


def test_a_closed_book_answer_stays_first():
    rows = [{"question_id": "q", "round": r, "answer": text, "right": 0.0} for r, text in enumerate("zabc")]
    recording = Recording(build_table(rows, {"right": "metric"}), {"exchangeable": True})
    for places in drawn_orders(recording, 20, 1):
        assert recording.reordered(places).answers[0, 0] == "z"


# The texts of rules and selectors.


def test_the_text_of_votes_parses_back():
    for text in ("esc(5)", "lead(3)", "settled(40)", "adaptive_consistency(0.9)", "adaptive_consistency"):
        rule = parse_rule(text)
        assert parse_rule(str(rule)) == rule
    for text in (
        "majority_of_samples",
        "majority_of_samples(7)",
        "weighted_majority_of_samples",
        "esc(5)",
        "esc(2, 7)",
    ):
        assert str(parse_selector(text)) == text
    for text in ("esc(1)", "esc(11)", "esc(2.5)", "esc()"):
        for parse in (parse_rule, parse_selector):
            with pytest.raises(RuleSyntaxError):
                parse(text)


def plain_esc(texts, size):
    """The authors' program: windows of samples until one agrees, whose answer is returned, else the most frequent answers."""
    for end in range(size, len(texts) + 1, size):
        window = texts[end - size : end]
        if len(set(window)) == 1:
            return end, {window[0]}
    most = max(map(texts.count, texts))
    return len(texts), {text for text in texts if texts.count(text) == most}


@settings(max_examples=30)
@given(st.lists(st.sampled_from("aabc"), min_size=1, max_size=12), st.integers(2, 5))
def test_esc_returns_the_answer_of_the_window_that_agrees(texts, size):
    end, answers = plain_esc(texts, size)
    decides = policy(f"esc({size})", selector=f"esc({size})", width=len(texts))
    decision = Session(decides).observe_all(Round(index=r, answer=text) for r, text in enumerate(texts, 1))
    assert (decision.stop_round, decision.answer in answers) == (end, True)
    run = replay(sampled([texts]), decides, metrics=["right"], orders=1).rows[0]
    assert run.metrics["right"] == pytest.approx(("a" in answers) / len(answers))


def test_shares_of_esc_are_certain_where_a_window_agrees():
    selector, texts = parse_selector("esc(2)"), np.array([list("acacacbb"), list("acbbcaca")], dtype=object)
    ids = answer_ids(texts, normalizer_of("exact"))
    columns = {"answer_id": ids, "window_agreement_2": vote_signal("window_agreement_2", ids)}
    rounds = Rounds.from_columns(columns, answers=texts)
    certain = selector.shares(rounds, np.array([7, 3]))
    assert [row.argmax() for row in certain] == [7, 3]
    assert certain.max(axis=1).tolist() == [1, 1]
    drawn = selector.shares(rounds, np.array([5, 1]))
    assert drawn[0].tolist() == [0, 0, 0, 0, 0.5, 0.5, 0, 0]
    assert drawn[1].tolist() == [0.5, 0.5, 0, 0, 0, 0, 0, 0]


def test_the_answer_of_a_window_can_differ_from_the_votes():
    rounds = [Round(index=r, answer=text) for r, text in enumerate("acacacbb", 1)]
    decided = {
        name: Session(policy("esc(2)", selector=name, width=8)).observe_all(rounds)
        for name in ("esc(2)", "majority_of_samples")
    }
    assert {one.stop_round for one in decided.values()} == {8}
    assert decided["esc(2)"].answer == "b"
    assert decided["majority_of_samples"].answer in {"a", "c"}


def test_a_selector_of_ones_own_is_certain_by_default():
    class Second(Selector):
        """Stands for any selector that draws nothing."""

        def among(self, rounds, candidates):
            return np.where(candidates[..., 1], 1, -1)

    assert register_selector("second_for_votes", Second) is Second
    rounds = Rounds.from_columns({"a": [0.0, 0.0]})
    for name in ("last", "second_for_votes"):
        assert parse_selector(name).shares(rounds, np.array(1)) is None


def test_each_model_of_a_panel_has_a_component_of_its_own():
    assert member_component("gpt-4o-mini") == "generator:gpt-4o-mini"


_ANSWERS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "The", None, "d e"]), st.sampled_from([0.0, 0.1, 0.3, 0.7, 1.0, NAN])),
    max_size=40,
)


@given(_ANSWERS, st.integers(0, 40))
@settings(max_examples=50, deadline=None)
def test_votes_that_are_counted_once_are_those_of_all_answers(pairs, n_before):
    answers, weights = [answer for answer, _ in pairs], np.array([weight for _, weight in pairs])
    normalizer = normalizer_of("qa")
    votes = RunningVotes({f"{name}.qa": name for name in VOTES}, normalizer)
    votes.columns(["something", "else"][: n_before % 3], np.ones(2))  # a question that began otherwise
    votes.columns(answers[:n_before], weights[:n_before])
    for n in (min(n_before, len(answers)), len(answers)):
        running = votes.columns(answers[:n], weights[:n])
        ids = answer_ids(np.array(answers[:n], dtype=object), normalizer) if n else np.empty(0)
        for name in VOTES if n else ():
            whole = vote_signal(name, ids, weights[:n] if name.startswith("weighted_") else None)
            np.testing.assert_array_equal(running[f"{name}.qa"], whole, err_msg=name)


@given(_ANSWERS)
@settings(max_examples=50, deadline=None)
def test_weighted_votes_of_a_session_are_sums_in_order(pairs):
    rule = "(weighted_vote_share > 2) | (weighted_vote_lead > 99)"
    session = Session(policy(rule, 50, selector="last"), missing="ignore")
    totals: dict[str, float] = {}
    key = normalizer_of("qa")
    for r, (answer, weight) in enumerate(pairs, 1):
        read = session.observe(Round(index=r, answer=answer, signals={"p_correct": weight})).signals
        if answer is not None and key(answer) is not None and not math.isnan(weight):
            totals[key(answer)] = totals.get(key(answer), 0.0) + weight
        first, second = sorted([*totals.values(), 0.0, 0.0], reverse=True)[:2]
        share = first / sum(totals.values()) if first else NAN
        assert read["weighted_vote_lead"] == pytest.approx(first - second if totals else NAN, abs=0, nan_ok=True)
        assert read["weighted_vote_share"] == pytest.approx(share, abs=1e-15, nan_ok=True)  # the sum has another order


def test_each_weighted_vote_of_a_session_is_counted_once(monkeypatch):
    counted = []
    add = _VoteTally.add
    monkeypatch.setattr(_VoteTally, "add", lambda tally, *vote: (counted.append(vote), add(tally, *vote)))
    session = Session(policy("weighted_vote_share > 2", 50, selector="last"))
    for r in range(1, 51):
        session.observe(Round(index=r, answer=f"answer {r}", signals={"p_correct": 0.5}))
    assert len(counted) == 100  # with its weight, and without


def test_each_answer_of_a_session_is_compared_once():
    compared = []

    @register_normalizer("counted")
    def key(text):
        compared.append(text)
        return text

    session = Session(policy("vote_share > 2", 50, selector="last", normalizer="counted"))
    for r in range(1, 51):
        session.observe(Round(index=r, answer=f"answer {r}"))
    assert len(compared) == 50
