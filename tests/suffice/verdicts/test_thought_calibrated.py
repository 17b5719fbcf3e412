"""Thought calibration by name: the calibrator and the certificate that exist, against a plain loop over the bundled chains."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom
from sklearn.isotonic import IsotonicRegression

from suffice.errors import RuleSyntaxError
from suffice.evaluation.replay import calibrate
from suffice.policy.rules import parse_rule
from suffice.recordings import bundled_recording
from suffice.recordings.recording import Recording
from suffice.verdicts.certificates import Claim, certify
from suffice.verdicts.certificates.family import threshold_path
from suffice.verdicts.decisions import decide

THRESHOLDS = (0.5, 0.7, 0.85, 0.9, 0.95, 0.99)
EPSILON, DELTA, SIGNAL = 0.05, 0.05, "answer_logprob_mean"


def stopped_at(probabilities: np.ndarray, threshold: float) -> int:
    """Return the checkpoint at which the paper's loop stops, or the model's own end."""
    for r, probability in enumerate(probabilities):
        if probability >= threshold:
            return r
    return len(probabilities) - 1


def certified_by_hand(tune: Recording, test: Recording) -> list[tuple[float, float]]:
    """Fit, stop and test as the paper does: thresholds and harms, from the highest threshold to the first that fails."""
    known = np.isfinite(tune.column(SIGNAL)) & np.isfinite(tune.column("em"))
    fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    fitted.fit(tune.column(SIGNAL)[known], tune.column("em")[known])
    raw, right, seen = test.column(SIGNAL), test.column("em"), test.seen
    passed = []
    for threshold in sorted(THRESHOLDS, reverse=True):
        harmed = 0
        for place in range(len(raw)):
            values = raw[place][seen[place]]
            at = stopped_at(np.where(np.isnan(values), -1.0, fitted.predict(np.nan_to_num(values))), threshold)
            harmed += right[place][seen[place]][-1] > right[place][at]
        if binom.cdf(harmed, len(raw), EPSILON) > DELTA:
            break
        passed.append((threshold, harmed / len(raw)))
    return passed


def test_thought_calibrated_certifies_what_a_plain_loop_does():
    tune, test = bundled_recording("thoughts_tune"), bundled_recording("thoughts_test")
    policy, _ = calibrate(tune, rule="thought_calibrated(0.9)", source=SIGNAL, per_round=False, compare=False)
    claim = Claim(epsilon=EPSILON, metric="em", loss="harm", confidence=1 - DELTA)
    result = certify(test, threshold_path(policy, "p_correct", THRESHOLDS), claim, cheapest="tokens")
    texts = [str(member.rule) for member in result.family.policies]
    harms = result.measured.losses.mean(axis=-1)
    ours = [(text, harm) for text, harm, ok in zip(texts, harms, result.certified, strict=True) if ok]
    by_hand = certified_by_hand(tune, test)
    assert 0 < len(by_hand) < len(THRESHOLDS)
    assert [text for text, _ in ours] == [f"p_correct >= {threshold:g}" for threshold, _ in by_hand]
    assert [harm for _, harm in ours] == pytest.approx([harm for _, harm in by_hand])
    assert str(result.policy.rule) in dict(ours)


@pytest.mark.parametrize("probability", ["0", "1.5"])
def test_a_calibrated_probability_out_of_range_is_refused(probability):
    with pytest.raises(RuleSyntaxError, match="certify chooses"):
        parse_rule(f"thought_calibrated({probability})")


def test_decide_tries_a_probe_on_the_states_of_chains():
    tune = bundled_recording("thoughts_tune")
    kind = pa.field("p_settled", pa.float64(), metadata={"kind": "signal"})
    settled = pa.array(
        [None if right is None else 0.97 * right for right in tune.table["em"].to_pylist()], pa.float64()
    )
    advice = decide(Recording(tune.table.append_column(kind, settled), tune.metadata), cost="calls")
    assert advice.policy is not None
    assert str(advice.policy.rule) == "p_settled > 0.9"
    assert "lynx" not in json.dumps(decide(tune, cost="calls").to_dict())
