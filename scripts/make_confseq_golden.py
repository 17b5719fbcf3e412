"""Write tests/golden/confseq.json with the package of the paper's authors: ``python scripts/make_confseq_golden.py``.

It needs ``pip install confseq==0.0.11 numpy``, in an environment of its own: wheels exist up to Python 3.10, for later ones
it is built from source with the headers of Boost.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from confseq import boundaries

SQUARES = (0.01, 1.0, 17.5, 400.0, 1e5, 1e8)
CASES = ((0.05, 50.0, 2.0), (0.025, 50.0, 1.25), (0.005, 2e4, 120.0), (0.1, 12.5, 0.25), (0.4, 1e-3, 1.0))
LOW, HIGH, ALPHA, V_OPT = -2.0, 4.0, 0.1, 30.0


def sequence() -> dict[str, list[float]]:
    """Return observations whose mean drifts, and the ends of theorem 4 with the gamma-exponential mixture."""
    rng = np.random.default_rng(7)
    values = np.clip(rng.normal(np.linspace(0, 1.5, 400), 0.7), LOW, HIGH).round(6)
    total, squares, lows, highs = 0.0, 0.0, [], []
    for n, value in enumerate(values, 1):
        squares += (value - ((LOW + HIGH) / 2 + total) / n) ** 2
        total += value
        radius = boundaries.gamma_exponential_mixture_bound(squares, ALPHA / 2, V_OPT, HIGH - LOW, alpha_opt=ALPHA / 2)
        lows.append(max(LOW, float(total - radius) / n))
        highs.append(min(HIGH, float(total + radius) / n))
    return {"values": values.tolist(), "low_ends": lows, "high_ends": highs}


def main() -> None:
    """Write the file."""
    squares = np.array(SQUARES)
    bounds = [
        boundaries.gamma_exponential_mixture_bound(squares, alpha, v_opt, c, alpha_opt=alpha).tolist()
        for alpha, v_opt, c in CASES
    ]
    data = {
        "command": "python scripts/make_confseq_golden.py",
        "version": "confseq 0.0.11",
        "squares": SQUARES,
        "cases": CASES,
        "bounds": bounds,
        "sequence": {"low": LOW, "high": HIGH, "alpha": ALPHA, "v_opt": V_OPT, **sequence()},
    }
    Path(__file__).parent.parent.joinpath("tests", "golden", "confseq.json").write_text(
        json.dumps(data) + "\n", "utf-8"
    )


if __name__ == "__main__":
    main()
