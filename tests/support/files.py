"""Files in the formats that others read: every one that the repository holds, some of each kind, and mutations of them."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from suffice import Audit, Cost, Decision, Passage, Policy, Round, Session
from suffice.policy.calibration import Calibrator
from suffice.policy.rounds import Token
from suffice.policy.signals import Allocation, AnswerPosition, Idf, RationaleScore, ZScore

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"suffice.policy": "policy", "suffice.session": "session"}
_DECISION = {item.name for item in fields(Decision)}


def values_in(data: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each value in one of the formats within a JSON value, with its kind."""
    if isinstance(data, dict):
        kind = KINDS.get(data["format"]) if isinstance(data.get("format"), str) else None
        if data.keys() == _DECISION:
            kind = "decision"
        if kind is not None:
            yield kind, data
        for value in data.values():
            yield from values_in(value)
    elif isinstance(data, list):
        for value in data:
            yield from values_in(value)


def held() -> list[tuple[str, dict[str, Any]]]:
    """Return every policy, decision and state in the JSON files of the tests and of the documentation."""
    paths = [path for folder in ("tests", "docs", "src") for path in sorted((ROOT / folder).rglob("*.json"))]
    return [found for path in paths for found in values_in(json.loads(path.read_text("utf-8")))]


def a_policy() -> Policy:
    """Return a policy with every kind of fitted state."""
    maps = [([0.1, 0.5, 2.0, 3.0], [0, 1, 0, 1]), ([0.1, 0.1, 0.1, 0.1], [0, 1, 0, 1])]
    calibrators = [
        Calibrator(output=output, method=method, per_round=method == "platt").fit([x] * 2, [y] * 2, index=[1, 2, 3, 4])
        for (x, y), method, output in zip([*maps, maps[0]], ["isotonic", "isotonic", "platt"], "abc", strict=True)
    ]
    state = {
        "overlap": Idf.fit(["the tempest", "the sea"]),
        "top_score_z": ZScore.fit([1.0, 3.0]),
        "allocated": Allocation((0.5, 1.0), (4, 4, 8), 0.5),
        "rationale_score": RationaleScore({"vote_joins": 1.0}, -1.0),
    }
    return Policy(
        rule="answer_stable | (spend > 3)",
        selector="majority",
        calibrators=tuple(calibrators),
        state=state,
        answer_position=AnswerPosition("json"),
        abstain_patterns=("unknown",),
        normalizer="number",
        depends={"model": "m"},
        certificate={"policy_digest": "0"},
        name="all",
    )


def a_session() -> Session:
    """Return a session with everything that a round may have, in an audit with a shadow."""
    session = Session(
        a_policy(), missing="ignore", audit=Audit(rate=1.0, seed=1), question_id="q", shadow=["fixed_k(3)"]
    )
    passage = Passage(passage_id="p", title="A title", text="A text")
    token = Token("7", -0.1, (("7", -0.1), ("8", float("-inf"))), b"7")
    for index in (1, 2, 3):
        session.observe(
            Round(
                index=index,
                answer="7",
                text="It is 7.",
                answer_tokens=(token,),
                passages=(passage,) * index,
                pool_scores=(2.0, 1.0),
                signals={"spend": 0.5, "mine": float("nan"), "far": float("inf")},
                costs={"generator": Cost(calls=1, seconds=float("nan"))},
                finish_reason="stop",
                feedback="Go on.",
                thinking="Perhaps.",
                embedding=[0.5, 1.0],
            )
        )
    return session


def made() -> list[tuple[str, dict[str, Any]]]:
    """Return values of each kind that this library writes."""
    session, plain = a_session(), Session("answer_stable")
    first = plain.observe(Round(index=1, answer="Oslo"))
    states = [session.to_state(), plain.to_state()]
    stopped = session.decision
    assert stopped is not None
    decisions = [first.to_dict(), stopped.to_dict(), Session("fixed_k(1)").end("failed").to_dict()]
    values = [
        ("policy", a_policy().to_dict()),
        *(("session", state) for state in states),
        *(("decision", item) for item in decisions),
    ]
    return json.loads(json.dumps(values))


_OTHERS = ({}, [], None, True, "text", -1, 0.5, {"a": 1}, ["a"], 10**6)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from _places(inner, (*path, key))


def mutated(value: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return a copy with one part left out, replaced, or added."""
    copied = copy.deepcopy(value)
    *path, key = rng.choice([*_places(copied)])
    inside: Any = copied
    for step in path:
        inside = inside[step]
    kind = rng.randrange(3)
    if kind == 0:
        del inside[key]
    elif kind == 1 or isinstance(inside, list):
        old = inside[key]
        inside[key] = rng.choice([other for other in _OTHERS if type(other) is not type(old)])
    else:
        inside[f"{key}s"] = inside[key]
    return copied
