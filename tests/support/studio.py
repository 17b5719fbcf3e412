"""A folder for the studio, and the studio of a folder in a server of its own."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from itertools import groupby

from suffice.evaluation.replay import policy_for
from suffice.policy.rounds import Round
from suffice.policy.session import Policy, Session
from suffice.recordings import read_recording, write_recording
from suffice.verdicts.certificates import Claim, certify
from tests.support.report_tools import hostile, questions, recording, rows
from tests.support.serving import running

TOKEN = "a-token-of-the-tests"


def log(path, policy, n=120, *, seed=11):
    """Write what a deployed policy decided, as its recorder logs it: every fifth request was drawn, one of them got lost."""
    logged = []
    for q, listed in enumerate(by_question(rows(n, seed=seed))):
        session = Session(policy)
        session.observe_all(Round(index=row["round"], answer=row["answer"], signals=signals_of(row)) for row in listed)
        decision = session.decision or session.end("exhausted")
        drawn, lost = q % 5 == 0, q == 5
        ran_on = drawn and not lost
        logged += [
            {
                **row,
                "question_id": f"r{q}",
                "recorded_at": 1.7e9 + 60 * q + row["round"],
                "policy_digest": policy.digest,
                "stop_round": float(decision.stop_round),
                "answer_round": float(decision.answer_round),
                "stop_reason": decision.reason,
                "audit_rate": 0.2,
                "audited": float(drawn),
                "end": row["end"] if ran_on or decision.reason != "rule" else "rule",
            }
            for row in listed
            if ran_on or row["round"] <= decision.stop_round
        ]
    write_recording(path, logged)


def by_question(listed):
    """Return the rows of each question."""
    return [list(part) for _, part in groupby(listed, key=lambda row: row["question_id"])]


def signals_of(row):
    """Return the signals of a row that are known."""
    return {name: row[name] for name in ("answer_stable", "abstained", "p_correct", "overlap") if row[name] is not None}


def filled(path):
    """Write a folder with one thing of most kinds, one of them damaged."""
    recording(path / "eval.parquet", n=150, seed=3)
    (path / "judged").mkdir()
    recording(path / "judged" / "june.parquet", n=70, seed=4, judged=True)
    questions(path / "questions.jsonl", n=150)
    known = read_recording(path / "eval.parquet")
    policy = policy_for(known, "tasr", name="tasr")
    policy.save(path / "tasr.json")
    certified = certify(known, ["answer_stable"], Claim(epsilon=0.5)).policy
    certified.save(path / "certified.json")
    replace(certified, max_rounds=4).save(path / "changed.json")
    policy_for(known, "answer_stable", name="stable").save(path / "stable.json")
    log(path / "log.parquet", Policy.load(path / "stable.json"))
    whole = (path / "eval.parquet").read_bytes()
    (path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    (path / "rounds.csv").write_text("question,round,answer\nWhere?,1,Oslo\nWhere?,2,Oslo\n")
    return path


@contextlib.contextmanager
def opened_studio(path):
    """Yield the address that opens the studio of a folder."""
    from suffice_server.studio import studio_app
    from suffice_server.studio.door import OPEN

    with running(studio_app(path, token=TOKEN)) as url:
        yield f"{url}{OPEN}?token={TOKEN}"


LONG = "a very long answer " * 60_000
BIDI = "safe\u202etxt.exe\u2066 \u200fdone"
NUL = "before\x00after\x1b[2J"


def strange(path):
    """Write a recording whose texts try to leave their place, to turn others around, or to fill the page."""
    hostile(path)
    recorded = read_recording(path)
    listed = recorded.table.to_pylist()
    for row, text in zip(
        (row for row in listed if row["question_id"].startswith("q0")), (LONG, BIDI, NUL), strict=False
    ):
        row |= {"answer": text, "feedback": text, "text": text}
    write_recording(path, listed, recorded.metadata)


__all__ = ["BIDI", "LONG", "NUL", "TOKEN", "filled", "log", "opened_studio", "strange"]
