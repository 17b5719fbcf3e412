"""The two conventions of charging, on planted drafts whose costs are added up by hand."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.errors import DataError
from suffice.evaluation.replay import LEDGERS, CostTable, replay
from suffice.evaluation.replay.charging import PUBLISHED
from suffice.evaluation.statistics import Resampling
from suffice.policy.rules import parse_rule, parse_selector
from suffice.policy.session import Policy, stops
from suffice.recordings import write_recording
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from tests.support.cli_tools import cli

WRITER, CRITIC, JUDGE, EMBEDDER = 100.0, 50.0, 1000.0, 7.0
LOOP = WRITER + CRITIC
FULL = "first_of((critic_approved >= 1), (patience((semantic_distance < 0.06), 2)), (information_gain <= 0))"
NAN = None

# question a converges at round 4, where the judge's score falls, too; question b is approved at round 2
SCORES = {"a": [0.5, 0.6, 0.7, 0.65, 0.8, 0.8], "b": [0.4, 0.5, 0.3, 0.3, 0.3, 0.3]}
DISTANCES = {"a": [NAN, 0.2, 0.05, 0.05, 0.05, 0.05], "b": [NAN, 0.2, 0.2, 0.2, 0.2, 0.2]}
APPROVED = {"a": [0.0] * 6, "b": [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]}


def rows() -> list[dict]:
    made = []
    for name, scores in SCORES.items():
        for t, score in enumerate(scores):
            spent = {"writer": WRITER, "critic": CRITIC, "judge:information_score": JUDGE, "embedder": EMBEDDER}
            made.append(
                {
                    "question_id": name,
                    "round": t + 1,
                    "end": "max_rounds",
                    "answer": f"draft {t}",
                    "critic_approved": APPROVED[name][t],
                    "semantic_distance": DISTANCES[name][t],
                    "information_score": score,
                    "information_gain": score - scores[t - 1] if t else None,
                    **{f"cost.{component}.uncached_tokens": tokens for component, tokens in spent.items()},
                    **{
                        f"cost.{c}.{kind}": 0.0 for c in spent for kind in ("cached_tokens", "output_tokens", "seconds")
                    },
                    **{f"cost.{component}.calls": 1.0 for component in spent},
                }
            )
    return made


def recording(metadata: dict | None = None) -> Recording:
    return Recording(build_table(rows()), metadata)


def tokens(rule: str, ledger: str, **changes) -> float:
    """The mean of the two questions."""
    policy = Policy(rule=parse_rule(rule), max_rounds=6, name="it", **changes)
    found = replay(
        recording(), [policy], metrics=("information_score",), resampling=Resampling(n_resamples=10), ledger=ledger
    )
    return found.row("it").costs["tokens"]


def of(name: str, ledger: str) -> float:
    found = replay(
        recording(), [FULL], metrics=("information_score",), resampling=Resampling(n_resamples=10), ledger=ledger
    )
    return found.row(name).costs["tokens"]


@pytest.mark.parametrize(
    ("rule", "live", "published"),
    [
        # a stops at 4 (converged): live asks the judge at 1, 2 and 3; b stops at 2 (approved): live asks it never
        (
            FULL,
            (4 * LOOP + 3 * JUDGE + 4 * EMBEDDER, 2 * LOOP + 2 * EMBEDDER),
            (4 * (LOOP + JUDGE), 2 * (LOOP + JUDGE)),
        ),
        # without the critic b goes on to 3, where the score falls
        (
            "first_of((patience((semantic_distance < 0.06), 2)), (information_gain <= 0))",
            (4 * LOOP + 3 * JUDGE + 4 * EMBEDDER - CRITIC, 3 * (LOOP + JUDGE + EMBEDDER) - CRITIC),
            (4 * (LOOP + JUDGE), 3 * (LOOP + JUDGE)),
        ),
        # the gain alone reads every round and the one before it; nobody reads the last critique
        (
            "information_gain <= 0",
            (4 * (LOOP + JUDGE) - CRITIC, 3 * (LOOP + JUDGE) - CRITIC),
            (4 * (LOOP + JUDGE), 3 * (LOOP + JUDGE)),
        ),
        # nobody asks a judge; published embeddings are free
        ("semantic(0.06)", (4 * (LOOP + EMBEDDER) - CRITIC, 6 * (LOOP + EMBEDDER) - CRITIC), (4 * LOOP, 6 * LOOP)),
        ("critic_only", (6 * LOOP, 2 * LOOP), (6 * LOOP, 2 * LOOP)),
        ("fixed_k(3)", (3 * LOOP - CRITIC, 3 * LOOP - CRITIC), (3 * LOOP, 3 * LOOP)),
        ("first_of((round >= 3), (critic_approved >= 1))", (3 * LOOP - CRITIC, 2 * LOOP), (3 * LOOP, 2 * LOOP)),
        ("first_of((critic_approved >= 1), (round >= 3))", (3 * LOOP, 2 * LOOP), (3 * LOOP, 2 * LOOP)),
        ("calls >= 5", (3 * LOOP, 3 * LOOP), (3 * LOOP, 3 * LOOP)),
        # read only from round 3 on: published counts the rounds before as well
        (
            "(round >= 3) & (information_score >= 0.7)",
            (3 * LOOP + JUDGE - CRITIC, 6 * LOOP + 4 * JUDGE - CRITIC),
            (3 * (LOOP + JUDGE), 6 * (LOOP + JUDGE)),
        ),
    ],
)
def test_tokens_of_a_policy_are_those_added_up_by_hand(rule, live, published):
    assert tokens(rule, "live") == pytest.approx(sum(live) / 2)
    assert tokens(rule, "published") == pytest.approx(sum(published) / 2)


def test_an_oracle_pays_its_judge_up_to_its_choice_only_as_published():
    # the best score comes at 5 for a (the first of two) and at 2 for b
    assert of("oracle_best", "live") == pytest.approx((5 + 2) * LOOP / 2 - CRITIC)
    assert of("oracle_best", "published") == pytest.approx((5 + 2) * (LOOP + JUDGE) / 2)


def test_fixed_budgets_and_chance_pay_no_judge_as_published():
    for k in (1, 3, 6):
        assert of(f"fixed_k({k})", "published") == k * LOOP
        assert of(f"fixed_k({k})", "live") == k * LOOP - CRITIC
    assert of(f"random({FULL})", "published") == pytest.approx(3 * LOOP)  # the stops 4 and 2, dealt at random


def test_a_selector_that_reads_the_judge_pays_it_in_every_visited_round():
    chosen = parse_selector("max_information_score")
    assert tokens("fixed_k(3)", "published", selector=chosen) == 3 * (LOOP + JUDGE)
    assert tokens("fixed_k(3)", "live", selector=chosen) == 3 * (LOOP + JUDGE) - CRITIC


def test_a_users_metric_finds_its_judge_in_the_recording():
    made = recording({"signal_components": {"information_score": "judge:mine"}})
    table = made.table.rename_columns(
        [n.replace("judge:information_score", "judge:mine") for n in made.table.column_names]
    )
    named = Recording(table, made.metadata)
    found = replay(
        named, ["fixed_k(1)"], metrics=("information_score",), resampling=Resampling(n_resamples=10), ledger="published"
    )
    assert found.row("oracle_best").components["judge:mine"]["calls"] == 3.5


def test_masks_have_one_row_per_question_for_later_starts_too():
    policy = Policy(rule=parse_rule("information_score > 2"), max_rounds=5)
    made = recording()
    stopped = stops(policy, made.rounds(policy.raw_columns))
    masks = PUBLISHED.policy_masks(CostTable(made), policy, stopped)
    assert {mask.shape for mask in masks.values()} == {(2, 6)}
    assert masks["judge:information_score"].sum(axis=1).tolist() == [5, 5]


def test_the_convention_is_named_in_the_result_and_the_default_says_nothing():
    usual = replay(recording(), ["fixed_k(2)"], metrics=("information_score",), resampling=Resampling(n_resamples=10))
    other = replay(
        recording(),
        ["fixed_k(2)"],
        metrics=("information_score",),
        resampling=Resampling(n_resamples=10),
        ledger="published",
    )
    assert (usual.ledger, other.ledger) == ("live", "published")
    assert [note for note in usual.notes if "charged as" in note] == []
    assert [note for note in other.notes if "charged as" in note] == [LEDGERS["published"].note]
    with pytest.raises(DataError, match="'lazy'"):
        replay(recording(), ["fixed_k(2)"], metrics=("information_score",), ledger="lazy")


def test_the_command_takes_the_convention(tmp_path):
    write_recording(tmp_path / "drafts.parquet", build_table(rows()))
    arguments = (
        "replay",
        tmp_path / "drafts.parquet",
        "--rule",
        FULL,
        "--metric",
        "information_score",
        "--set=resamples=10",
    )
    told = cli(*arguments, "--set=ledger=published", "--json").json
    by_label = {row["label"]: row["costs"]["tokens"] for row in told["rows"]}
    assert (told["ledger"], by_label[FULL], by_label["oracle_best"]) == ("published", 3450.0, 4025.0)
    shown = cli(*arguments, "--set=ledger=published").out
    assert "note: charged as Semantic Early-Stopping published it" in shown
    heading = next(line.split() for line in shown.splitlines() if line.startswith("policy  "))
    assert heading == ["policy", "INFORMATION_SCORE", "vs", "fixed_k(3)", "calls"]  # a long rule leaves them their room
    assert "charged as" not in cli(*arguments).out
    assert "ledger: published" in cli(*arguments, "--set=ledger=published", "--details").out
    assert "allowed: live, published" in cli(*arguments, "--set=ledger=other").error


def test_a_charge_of_shares_is_the_mean_of_its_charges():
    table = CostTable(recording())
    table.columns["writer"]["seconds"][0, 5] = np.nan
    rng = np.random.default_rng(0)
    masks = [{name: rng.random((2, 6)) < 0.5 for name in table.components} for _ in range(3)]
    for mask in masks:
        mask["writer"][0, 5] = False
    mean = {name: np.mean([mask[name] for mask in masks], axis=0) for name in table.components}
    parts = [table.charge(mask) for mask in masks]
    whole = table.charge(mean)
    assert whole.calls == pytest.approx(np.mean([part.calls for part in parts], axis=0))
    for kind in ("tokens", "seconds"):
        assert whole.total(kind) == pytest.approx(np.mean([part.total(kind) for part in parts], axis=0))
    masks[0]["writer"][0, 5] = True
    assert np.isnan(table.charge(masks[0]).total("seconds")).tolist() == [True, False]


@pytest.mark.parametrize(("end", "critiques"), [("exhausted", 6), ("max_rounds", 5)])
def test_a_log_that_ended_by_itself_had_its_last_critique_read(end, critiques):
    made = [{**row, "end": end} for row in rows()]
    policy = Policy(rule=parse_rule("never()"), max_rounds=7 if end == "exhausted" else 6, name="it")
    found = replay(
        Recording(build_table(made)), [policy], metrics=("information_score",), resampling=Resampling(n_resamples=10)
    )
    assert found.row("it").components["critic"]["calls"] == critiques
