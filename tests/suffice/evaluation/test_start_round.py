"""Rules that start with the closed-book round, whatever signal they read there, and calibrators of any column."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.errors import DataError, UnknownSignalError
from suffice.evaluation.replay import calibrate, policy_for, replay
from suffice.evaluation.statistics import Resampling
from suffice.policy.metrics import exact_match, f1
from suffice.policy.session import Policy, stops
from suffice.recordings import Recording, write_recording
from suffice.recordings.schema import build_table
from suffice.verdicts.certificates import Claim, listed, measure_losses
from tests.support.cli_tools import cli

N = 60


def rows(prefix: str = "q", seed: int = 0) -> list[dict]:
    """Questions whose closed-book answer is right in half of the cases; `sureness` and `own` tell which."""
    rng = np.random.default_rng(seed)
    found = []
    for q in range(N):
        knows = bool(rng.random() < 0.5)
        for r in range(3):
            right = knows or r == 2
            answer = "gold" if right else f"wrong {r}"
            found.append(
                {
                    "question_id": f"{prefix}{q}",
                    "question": f"Which is {prefix}{q}?",
                    "round": r,
                    "end": "max_rounds",
                    "answer": answer,
                    "em": exact_match(answer, ["gold"]),
                    "f1": f1(answer, ["gold"]),
                    "verbal_confidence": 5.0 if right else 1.0,
                    "own": 3.0 * right + rng.random(),
                    "cost.generator.calls": 1.0,
                }
            )
    return found


@pytest.fixture(scope="module")
def recording():
    return Recording(build_table(rows(), kinds={"own": "signal"}))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("start") / "r.parquet"
    write_recording(path, rows(), {}, kinds={"own": "signal"})
    return path


def test_replay_certify_and_report_start_at_round_0_on_request(path, tmp_path):
    rule = "verbal_confidence >= 5"
    base = ("--rule", rule, "--set=resamples=2", "--json")
    usual = cli("replay", path, *base).json["rows"][0]
    early = cli("replay", path, *base, "--set=start-round=0").json["rows"][0]
    assert "0" not in usual["stop_rounds"]
    assert early["stop_rounds"]["0"] > 0.3
    reported = cli("report", path, *base, "--set=start-round=0", "-o", tmp_path / "r.html").json
    assert reported["cells"][0]["replay"]["rows"][0]["stop_rounds"]["0"] == early["stop_rounds"]["0"]
    (tmp_path / "rules.txt").write_text(f"{rule}\n")
    options = ("--rules", tmp_path / "rules.txt", "--max-loss", "0.5", "--set=loss=harm", "--json")
    certified = cli("certify", path, *options, "--set=start-round=0", "-o", tmp_path / "p.json", code=0)
    assert Policy.load(tmp_path / "p.json").start_round == 0
    assert certified.json["sequence"][0]["calls"] == pytest.approx(early["calls"]["mean"])


def test_a_listed_rule_starts_where_the_list_says(recording):
    for base in (recording, policy_for(recording, "full")):
        family = listed(["verbal_confidence >= 5"], base, start_round=0)
        assert family.policies[0].start_round == 0
        assert measure_losses(recording, family.policies, Claim(epsilon=0.5)).costs["calls"].min() == 1


def test_a_policy_file_says_itself_where_it_starts(path, tmp_path):
    calibrated = ("calibrate", path, "--rule", "verbal_confidence >= 5", "-o", tmp_path / "p.json")
    assert cli(*calibrated, "--set=start-round=0").code == 0
    assert Policy.load(tmp_path / "p.json").start_round == 0
    for command in (("replay", path), ("report", path), ("certify", path, "--max-loss", "0.5")):
        told = cli(*command, "--policy", tmp_path / "p.json", "--set=start-round=0").error
        assert "a policy file says where it starts" in " ".join(told.split())


def test_p_correct_is_fitted_to_any_numeric_column_and_gates_with_it(recording, path, tmp_path):
    policy, summary = calibrate(recording, rule="p_correct > 0.5", source="own", start_round=0)
    [fit] = summary.fits
    assert (fit.signal, fit.output, sorted(fit.rounds_fitted)) == ("own", "p_correct", [0, 1, 2])
    fresh = Recording(build_table(rows("e", seed=1), kinds={"own": "signal"}))
    result = replay(fresh, [policy], baseline="fixed_k(2)", resampling=Resampling(n_resamples=2)).row("p_correct > 0.5")
    assert result.metrics["em"] == 1.0
    assert result.stop_rounds[0] > 0.3
    done = cli("calibrate", path, "--rule", "p_correct > 0.5", "--signal", "own", "-o", tmp_path / "p.json", "--json")
    assert done.json["fits"][0]["signal"] == "own"
    loaded = Policy.load(tmp_path / "p.json")
    assert stops(loaded, fresh.rounds(loaded.raw_columns)).rounds.min() == 1


def test_a_source_that_is_missing_or_unread_is_refused(recording):
    with pytest.raises(UnknownSignalError, match="'onw'"):
        calibrate(recording, rule="p_correct > 0.5", source="onw")
    with pytest.raises(DataError, match="'p_correct'"):
        calibrate(recording, rule="verbal_confidence >= 5", source="own")
    with pytest.raises(DataError, match="not numbers"):
        calibrate(recording, rule="p_correct > 0.5", source="answer")
