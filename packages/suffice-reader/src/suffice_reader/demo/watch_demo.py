"""`suffice demo watch`: a deployed rule breaks half-way, and the log shows it; a control run stays silent."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from suffice._version import __version__
from suffice.cli import options
from suffice.cli.certify import certify_path
from suffice.cli.console import print_json, say, status
from suffice.cli.output import Output, Screen, check_markdown
from suffice.cli.parameters import Setting
from suffice.common.display.svg import check_charts_extra
from suffice.common.files import quoted, write_file
from suffice.common.results import jsonable
from suffice.common.tables import Column, Table, figure, render
from suffice.errors import DataError
from suffice.evaluation.replay import calibrate, outcome
from suffice.loops.rows import decision_columns
from suffice.policy.rounds import Cost, Floats, Round
from suffice.policy.session import Audit, Policy, Session
from suffice.recordings import Recording, read_recording, write_recording
from suffice.recordings.schema import AUDIT_UNIT
from suffice.verdicts.certificates import Claim
from suffice.verdicts.watches import WatchResult, full_width, watch
from suffice_reader.demo.bundled import record_bundled

_DATASET = "hotpotqa"
_WATCHED_RULE = "margin"
_CERTIFIED = Claim(epsilon=0.08, metric="agreement", loss="harm")
_TRAFFIC_SEED = 7
_FIRST_REQUEST = 1_767_225_600.0  # 2026-01-01; the simulated clock advances by a minute with each request
_BROKEN = "answer_margin"
_LOGGED = ("answer_stable", "answer_length", "top_score", "score_gap")
"""Signals that the log also contains; the fault does not touch them."""

_HOW_CHOSEN = (
    "Rule, bound, audit rate and number of requests were chosen while this was built, with these figures in view: it shows how a "
    "fault is noticed, and is no estimate of how fast, nor of how often an alarm is false: it is one run. Operating characteristics are "
    "simulated apart."
)


def demo_watch(
    output: Output,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of recordings, policy and logs.")] = Path(
        "suffice-demo"
    ),
    requests: Annotated[
        int, Setting("papers", "requests", min=100, help="Requests before the fault; as many follow after it.")
    ] = 5000,
    audit_rate: Annotated[
        float,
        Setting("papers", "audit-rate", min=0.001, max=1.0, help="Share of requests that run on after the answer."),
    ] = 0.1,
    markdown: options.Markdown = None,
) -> None:
    """Watch a deployed policy while its signal breaks.

    Requests are drawn with replacement from bundled questions, whose rounds the embedded reader answered; half-way each reply gets the
    margin of another request.

    Example: suffice demo watch
    """
    check_markdown(markdown)
    if markdown is not None:
        check_charts_extra()
    began = time.monotonic()
    for split in ("tune", "eval"):
        record_bundled(_DATASET, split, out, quiet=output.as_json)
    recordings = {split: read_recording(out / f"{_DATASET}_{split}.parquet") for split in ("tune", "eval")}
    policy_path = out / "watched.policy.json"
    with status(f"deciding {3 * requests:,} requests live", quiet=output.as_json):
        policy = certified_policy(recordings)
        policy.save(policy_path)
        runs = watched_runs(recordings["eval"], policy, out, requests=requests, audit_rate=audit_rate)
    safe = out / "full-width.policy.json"
    full_width(policy).save(safe)
    seconds = time.monotonic() - began
    tables = [_runs_table(runs), runs[0].result.table()]
    notes = [
        (
            f"{recordings['eval'].shape[0]} questions of {_DATASET}_eval, on which the policy is certified; {requests:,} requests before the fault and "
            f"as many after it, drawn with replacement, audit rate {audit_rate:g}, seed {_TRAFFIC_SEED}, data hash {recordings['eval'].data_hash}"
        ),
        _HOW_CHOSEN,
    ]
    sentences = [f"{run.name}: {run.truth}. {run.result.sentence}" for run in runs]
    if markdown is not None:
        picture = markdown.with_suffix(".svg")
        runs[0].result.plot().save(picture)
        head = _head_of_page(sentences, picture, requests, audit_rate)
        write_file(markdown, "\n\n".join([*head, render(tables, "md"), *notes]) + "\n")
    if output.as_json:
        data = {run.name: run.to_dict() for run in runs}
        print_json(jsonable({"policy": str(policy_path), "runs": data, "seconds": seconds}))
        return
    for run in runs:
        say(f"{run.name}:", bold=True)
        say(f"  {run.truth}")
        say(f"  {run.result.sentence}")
    Screen(
        sentences=[f"the whole demo took {seconds:.0f} s"],
        tables=tables,
        notes=notes,
        files={"logs": out, "policy to fall back to": safe, "page": markdown},
        then=f"suffice watch {quoted(runs[0].path)} --policy {quoted(policy_path)} --suspend",
    ).print(details=output.details, lines=24)


def certified_policy(recordings: Mapping[str, Recording]) -> Policy:
    """Return the policy to deploy, calibrated on tune questions and certified on eval questions.

    Raises:
        DataError: No policy is certified.
    """
    locked, _ = calibrate(recordings["tune"], rule=_WATCHED_RULE)
    policy = certify_path(recordings["eval"], recordings["tune"], locked, "p_correct", _CERTIFIED).policy
    if policy is None:
        raise DataError("no policy is certified on these questions, so there is none to deploy")
    return policy


def watched_runs(
    recording: Recording, policy: Policy, out: Path, *, requests: int, audit_rate: float
) -> list[WatchedRun]:
    """Decide the same requests twice, with and without a fault in the second half; watch the log of each run.

    Args:
        recording: The rounds of every question, at full width.
        policy: The deployed policy.
        out: Folder of the logs.
        requests: Number of requests in each half.
        audit_rate: Share of requests that continue after their answer.
    """
    traffic = _Traffic.of(recording, policy, requests=requests, audit_rate=audit_rate)
    before, healthy, broken = traffic.decide(0), traffic.decide(1), traffic.decide(1, broken=True)
    runs = []
    for title, name, after in (
        ("margins permuted half-way", "broken", broken),
        ("control, nothing permuted", "healthy", healthy),
    ):
        path = out / f"log-{name}.parquet"
        write_recording(path, [*before.rows, *after.rows], kinds=traffic.kinds)
        result = watch(read_recording(path), policy, tune=recording, window=max(1, requests // 5))
        runs.append(WatchedRun(name=title, path=path, result=result, before=before, after=after))
    return runs


@dataclass(frozen=True, kw_only=True, eq=False)
class _Stretch:
    """The decided requests of the first or the second half.

    Attributes:
        rows: Rows of the log.
        losses: Loss of each answer against the full run, by metric.  The loss of every request is known, because every
            round is recorded.
        stops: The mean stop round.
    """

    rows: Sequence[dict[str, Any]]
    losses: Mapping[str, Floats]
    stops: float


@dataclass(frozen=True, kw_only=True, eq=False)
class _Traffic:
    """The simulated requests; under the fault, each reply gets the margin of another request.

    Attributes:
        asked: Index of each request's question in the recording, shape ``(n_requests,)``.
        ids: Ids of the requests; a question that is asked again gets a number.
        lent: Under the fault, each reply gets the margin of another request; this is the index of that other request, shape
            ``(n_requests, n_rounds)``.  In each round, the indices are a permutation of the requests of the second half.
        metrics: Metrics of every round, by name.
    """

    recording: Recording
    policy: Policy
    audit: Audit
    asked: npt.NDArray[np.int64]
    ids: Sequence[str]
    lent: npt.NDArray[np.int64]
    metrics: Mapping[str, Floats]

    @classmethod
    def of(cls, recording: Recording, policy: Policy, *, requests: int, audit_rate: float) -> _Traffic:
        rng = np.random.default_rng(_TRAFFIC_SEED)
        asked = rng.integers(recording.shape[0], size=2 * requests)
        counts: Counter[str] = Counter()
        ids = []
        for place in asked.tolist():
            name = recording.question_ids[place]
            counts[name] += 1
            ids.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
        lent = np.stack([requests + rng.permutation(requests) for _ in recording.index], axis=1)
        return cls(
            recording=recording,
            policy=policy,
            audit=Audit(rate=audit_rate, seed=_TRAFFIC_SEED),
            asked=asked,
            ids=ids,
            lent=np.concatenate([lent, lent]),
            metrics={name: outcome(recording, name) for name in (_CERTIFIED.metric, "f1")},
        )

    @property
    def kinds(self) -> dict[str, str]:
        return dict.fromkeys((_BROKEN, *_LOGGED), "signal")

    def decide(self, half: int, *, broken: bool = False) -> _Stretch:
        """Let a session decide each request of the first or second half, round by round, and run the audits."""
        n = len(self.asked) // 2
        rows: list[dict[str, Any]] = []
        stops, answered = [], []
        columns = {name: self.recording.column(name) for name in (_BROKEN, *_LOGGED)}
        names = self.recording.names("cost")
        costs = {
            name: np.nan_to_num(self.recording.column(name)) for name in names if name.startswith("cost.generator.")
        }
        for number in range(half * n, (half + 1) * n):
            place = int(self.asked[number])
            session = Session(self.policy, audit=self.audit, question_id=self.ids[number])
            sources = self.asked[self.lent[number]] if broken else np.full(len(self.recording.index), place)
            while session.decision is None or session.auditing:
                at = session.next_round - int(self.recording.index[0])
                signals = {name: float(column[place, at]) for name, column in columns.items()}
                signals[_BROKEN] = float(columns[_BROKEN][sources[at], at])
                answer = self.recording.answers[place, at]
                spent = {name.rpartition(".")[2]: float(cost[place, at]) for name, cost in costs.items()}
                session.observe(
                    Round(
                        index=session.next_round,
                        answer=answer,
                        text=answer or "",
                        signals=signals,
                        costs={"generator": Cost(**spent)},
                    )
                )
            rows += _rows_of(session, self.ids[number], self.recording.question_ids[place], number)
            assert session.decision.stop_round is not None
            stops.append(session.decision.stop_round)
            answered.append(session.decision.answer_round or session.decision.stop_round)
        asked = self.asked[half * n : (half + 1) * n]
        positions = np.array(answered) - int(self.recording.index[0])
        losses = {name: metric[asked, -1] - metric[asked, positions] for name, metric in self.metrics.items()}
        return _Stretch(rows=rows, losses=losses, stops=float(np.mean(stops)))


def _rows_of(session: Session, name: str, question: str, number: int) -> list[dict[str, Any]]:
    """Return the rows of the log for one request."""
    ran_on = len(session.rounds) == session.policy.max_rounds - session.policy.start_round + 1
    shared = {
        "question_id": name,
        "cluster": question,
        "end": "max_rounds" if ran_on else "rule",
        **decision_columns(session),
        AUDIT_UNIT: "request",
        "recorded_at": _FIRST_REQUEST + 60.0 * number,
    }
    return [
        {
            **shared,
            "round": observed.index,
            "answer": observed.answer,
            "text": observed.text,
            **observed.signals,
            **{f"cost.generator.{kind}": value for kind, value in observed.costs["generator"].to_dict().items()},
        }
        for observed in session.rounds
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class WatchedRun:
    """One log and the result of watching it."""

    name: str
    path: Path
    result: WatchResult
    before: _Stretch
    after: _Stretch

    @property
    def truth(self) -> str:
        """The true losses of both halves, in words; a real deployment cannot know them."""
        losses, f1 = (
            [figure(float(half.losses[metric].mean()), ".1f", 100) for half in (self.before, self.after)]
            for metric in (_CERTIFIED.metric, "f1")
        )
        return (
            f"true loss: {losses[0]} points before half-way and {losses[1]} after it (answers that differ from the full run's; F1: {f1[0]} "
            f"and {f1[1]}); accepted: {100 * _CERTIFIED.epsilon:g}"
        )

    @property
    def delay(self) -> int | None:
        """The number of requests from half-way to the alarm; None if the alarm is silent."""
        alarm = self.result.alarm
        return None if alarm is None or alarm.rang is None else alarm.rang + 1 - self.result.n // 2

    def row(self) -> tuple[Any, ...]:
        """Return the row of the table."""
        result = self.result
        assert result.alarm is not None
        return (
            self.name,
            float(self.before.losses[_CERTIFIED.metric].mean()),
            float(self.after.losses[_CERTIFIED.metric].mean()),
            result.whole.interval,
            self.delay,
            result.status,
            result.n_audited,
            result.alarm.highest,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        halves = {"before": self.before, "after": self.after}
        truth = {
            name: {metric: float(values.mean()) for metric, values in half.losses.items()} | {"stop_round": half.stops}
            for name, half in halves.items()
        }
        return {"log": str(self.path), "true_loss": truth, "delay": self.delay, "watch": self.result.to_dict()}


def _runs_table(runs: Sequence[WatchedRun]) -> Table:
    return Table(
        title=f"Answers that differ from the full run's, points; certified: at most {100 * _CERTIFIED.epsilon:g}",
        columns=(
            Column("run"),
            Column("true, before", ".1f", scale=100),
            Column("true, after", ".1f", scale=100),
            Column("as audited", ".1f", scale=100, interval=True),
            Column("alarm after", ",.0f"),
            Column("status"),
            Column("audits", ",.0f"),
            Column("evidence", ",.3g"),
        ),
        rows=tuple(run.row() for run in runs),
        notes=("alarm after: requests from half-way to the alarm; a dash where it stayed silent",),
    )


def _head_of_page(sentences: Sequence[str], picture: Path, requests: int, audit_rate: float) -> list[str]:
    """Return the paragraphs of the page above its tables."""
    command = f"suffice demo watch --set requests={requests} --set audit-rate={audit_rate:g} --set markdown=docs/results/watch-demo.md"
    return [
        "# A deployed rule that breaks",
        f"Written by `{command}` (suffice {__version__}).",
        *(f"- {sentence}" for sentence in sentences),
        f"![The loss request by request: the alarm rings after half-way]({picture.name})",
    ]
