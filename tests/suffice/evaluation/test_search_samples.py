"""Searches on independent samples: rules of votes, in many orders of each question, which stays the unit."""

from __future__ import annotations

import numpy as np
import pytest

from suffice import Resampling, replay, search
from suffice.errors import DataError
from suffice.evaluation.replay import seen_from, seen_in
from suffice.evaluation.replay.orders import drawn_orders
from suffice.evaluation.search import Block, Literal, Space
from suffice.evaluation.search.reading import in_orders
from suffice.policy.seen import Seen
from suffice.recordings import Recording, bundled_recording

ORDERS, FEW = 4, Resampling(n_resamples=50)


@pytest.fixture(scope="module")
def dates() -> Recording:
    return bundled_recording("samples_date")


@pytest.fixture(scope="module")
def result(dates):
    return search(dates, budget=5.0, baseline="full", orders=ORDERS, resampling=FEW)


def test_a_question_in_many_orders_is_one_cluster(dates):
    recording = in_orders(dates, 3, 7)
    assert recording.shape == (3 * 369, 10)
    assert set(recording.clusters.tolist()) == set(dates.question_ids)
    assert recording.independent
    assert not recording.exchangeable
    for number, places in enumerate(drawn_orders(dates, 3, 7)):
        part = slice(number * 369, (number + 1) * 369)
        assert recording.answers[part].tolist() == dates.reordered(places).answers.tolist()
    assert seen_from(recording).ids == seen_from(dates).ids


def test_the_order_of_a_question_follows_from_its_name(dates):
    orders = [*drawn_orders(dates, 20, 7)]
    assert (np.sort(orders[0], axis=1) == np.arange(10)).all()
    first = np.array([places[0] for places in orders])
    assert len(np.unique(first, axis=0)) == 20
    some = np.arange(369) % 5 == 2
    for places, other in zip(orders, drawn_orders(dates.select(some), 20, 7), strict=True):
        assert np.array_equal(places[some], other)
    shares = np.array(orders).reshape(-1, 10)
    assert abs(np.corrcoef(shares[:, 0], shares[:, 1])[0, 1] + 1 / 9) < 0.05
    assert abs(shares.mean(axis=0) - 4.5).max() < 0.15


def test_the_rules_are_votes_and_the_figures_those_of_a_replay(dates, result):
    assert (result.n_rules, result.n + result.n_tune) == (143, 369)
    assert any("means over 4 random orders" in note for note in result.notes)
    chosen = result.chosen.policy
    assert chosen.rule.signals <= {"vote_lead", "vote_share", "posterior_majority", "window_agreement_3"}
    assert (str(chosen.selector), chosen.normalizer) == ("majority_of_samples", "date")
    tune = seen_in(dates, Seen.from_dict(chosen.provenance))
    assert int(tune.sum()) == result.n_tune
    ordered = in_orders(dates, ORDERS, FEW.seed)
    again = replay(ordered.select(np.tile(~tune, ORDERS)), chosen, metrics=["match"], baseline="full", resampling=FEW)
    mine = next(row for row in again.rows if row.kind == "rule")
    assert f"{100 * mine.metrics['match']:.1f}" in result.chosen.headline
    assert f"{mine.calls.mean:.2f} calls" in result.chosen.headline
    other = replay(dates.select(~tune), chosen, metrics=["match"], baseline="full", orders=40)
    assert next(row for row in other.rows if row.kind == "rule").metrics["match"] == pytest.approx(
        mine.metrics["match"], abs=0.01
    )


def test_signals_that_look_back_are_refused(dates):
    stable = Literal(signal="answer_stable", comparison=">=", thresholds=(1.0,))
    table = dates.table.append_column("answer_stable", [np.zeros(len(dates.table))])
    looking = Recording(table, {"exchangeable": True})
    with pytest.raises(DataError, match="no order"):
        search(looking, Space(name="stable", blocks=(Block(form="or", literals=(stable,)),)), orders=2, resampling=FEW)
    follow = Recording(dates.table, {})
    with pytest.raises(DataError, match="follow"):
        search(follow, orders=2)
