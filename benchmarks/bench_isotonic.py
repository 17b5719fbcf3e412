"""Does fitting an isotonic calibrator on a million rows cost more than a sort and scipy's isotonic regression?

One round with 10^6 rows, in two populations: all margins different, and margins rounded to 0.001, many of them tied.
Ours is `fit_isotonic` from raw rows to the map that a policy stores; beside it the bare `numpy.argsort` with
`scipy.optimize.isotonic_regression` on the sorted targets, calls interleaved.  Asserted first: where no margins tie,
the fitted levels are scipy's; where some do, scikit-learn's.
"""

from __future__ import annotations

import json
import platform
import time
from importlib.metadata import version
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression
from sklearn.isotonic import IsotonicRegression

from suffice.policy.calibration.calibrator import fit_isotonic
from suffice.policy.rounds import Floats

ROWS, REPEATS, SEED = 1_000_000, 5, 42
TARGET = 1.5


def populations() -> dict[str, tuple[Floats, Floats]]:
    """Return margins and outcomes by population."""
    rng = np.random.default_rng(SEED)
    margins = rng.exponential(2.0, ROWS)
    right = (rng.random(ROWS) < 1 / (1 + np.exp(1.0 - margins))).astype(float)
    return {"all different": (margins, right), "rounded": (margins.round(3), right)}


def bare(values: Floats, target: Floats) -> Floats:
    """Return the isotonic levels of the rows in the order of their values, ties not pooled."""
    levels: Floats = isotonic_regression(target[np.argsort(values)]).x
    return levels


def check(name: str, values: Floats, target: Floats) -> None:
    """Assert that ours is the isotonic fit."""
    found = fit_isotonic(values, target, np.ones(len(values))).predict(np.sort(values))
    if name == "all different":
        expected = bare(values, target)
    else:
        model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(values, target)
        expected = model.predict(np.sort(values))
    assert np.allclose(found, expected, rtol=0, atol=1e-9)


def run() -> dict[str, Any]:
    """Measure, print a table and return the figures."""
    figures = {}
    for name, (values, target) in populations().items():
        check(name, values, target)
        weights = np.ones(len(values))
        mine, peer = [], []
        for _ in range(REPEATS):
            began = time.perf_counter()
            fit_isotonic(values, target, weights)
            middle = time.perf_counter()
            bare(values, target)
            mine.append(middle - began)
            peer.append(time.perf_counter() - middle)
        figures[name] = {"ours": min(mine), "peer": min(peer), "ratio": min(mine) / min(peer)}
        print(
            f"{name:>14}: ours {min(mine):.3f} s, argsort + scipy {min(peer):.3f} s, "
            f"ratio {figures[name]['ratio']:.2f} (target {TARGET})"
        )
    worst = max(figures.values(), key=lambda figure: figure["ratio"])
    return {
        "name": "isotonic",
        **worst,
        "populations": figures,
        "target": {"ratio": TARGET},
        "met": worst["ratio"] <= TARGET,
        "sizes": {"rows": ROWS},
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": version("scipy"),
            "scikit-learn": version("scikit-learn"),
        },
    }


if __name__ == "__main__":
    print(json.dumps(run()))
