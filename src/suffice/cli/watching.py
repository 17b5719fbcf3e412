"""`suffice watch`: judge a deployed policy by its production log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer
from typer import Option

from suffice.cli import options
from suffice.cli.console import print_text, status
from suffice.cli.groups import RecordingPath
from suffice.cli.options import Where, chosen_loop, tune_of_loop, where_words
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting, is_from_file
from suffice.common.display.svg import check_charts_extra
from suffice.common.files import quoted, write_file
from suffice.common.tables import counted
from suffice.errors import DataError
from suffice.importers.files.records import records_of
from suffice.policy.session import Policy
from suffice.recordings import Recording, read_recording, write_recording
from suffice.verdicts.watches import (
    GOLD_DEADLINE,
    WatchResult,
    audited_recording,
    by_request,
    export_metrics,
    full_width,
    prometheus_text,
    read_log,
    seconds_of,
    watch,
)
from suffice.verdicts.watches.losses import USER_SIGNAL, decided_loss
from suffice.verdicts.watches.policies import policy_number

EXIT_CODES = {
    "keep": 0,
    "not enough audits": 0,
    "missing golds": 3,
    "lost audits": 3,
    "recalibrate": 3,
    "re-certify": 3,
    "fall back": 4,
}
"""The exit code of each status with `--exit-code`; 1 and 2 mean that the command itself failed."""

_DURATION_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[smhd]?)")


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """Options that choose the rounds to judge, and the judge."""

    panel: ClassVar[str] = "What is judged"

    metric: Annotated[
        str | None,
        Option(
            "--metric",
            help="A metric of the log, or 'agreement' with the full run; default: the certificate's or decision's, else gold answers, else agreement.",
        ),
    ] = None
    max_loss: Annotated[
        float | None,
        Option("--max-loss", help="The largest accepted mean loss; default: that of the certificate or decision."),
    ] = None
    signal: Annotated[
        Path | None,
        Option(
            "--signal",
            help="Judge by what users said: a file with question_id (the request's id), time and value (1 = complaint).",
        ),
    ] = None
    deadline: Annotated[
        str | None,
        Setting(
            "watch",
            "deadline",
            help="Deadline of signals and audits: 30m, 36h, 7d; younger requests wait. Default: 1h for audits; signals need one.",
        ),
    ] = None
    gold_deadline: Annotated[
        str | None,
        Setting(
            "watch",
            "gold-deadline",
            help="Deadline of gold answers and marks; audits wait for them. Default: 7d. The alarm counts later ones as no loss.",
        ),
    ] = None
    since: Annotated[
        str | None, Option("--since", help="Leave out requests before this time: 2026-05-01T12:00:00Z.")
    ] = None
    window: Annotated[int, Setting("watch", "window", min=1, help="Requests of a window.")] = 500
    risk: Annotated[
        float,
        Setting(
            "watch", "risk", help="The risk of ever raising a false alarm, over all policies that the loop ever has."
        ),
    ] = 0.05
    policy_number: Annotated[
        int | None,
        Setting(
            "watch",
            "policy-number",
            min=1,
            help="The number of this policy among those that the loop had. Default: counted from the log.",
        ),
    ] = None


def _plot_path(path: Path | None) -> Path | None:
    """Return the path of the plot; raise if the plot cannot be drawn. Call this before the log is read."""
    if path is not None and path.suffix == ".svg":
        check_charts_extra()
    return path


@dataclass(frozen=True, kw_only=True)
class _Written:
    """Options for the files to write."""

    panel: ClassVar[str] = "What is written"

    fallback: Annotated[
        Path | None, Option("--fallback", help="If the alarm has rung: the policy that never stops early.")
    ] = None
    suspend: Annotated[
        bool, Option("--suspend", help="If the alarm has rung: mark the certificate in the policy file as suspended.")
    ] = False
    audited: Annotated[
        RecordingPath | None, Option("--audited", help="Audited requests at full width, to calibrate and certify on.")
    ] = None
    plot: Annotated[
        Path | None,
        Option("--plot", help="The loss request by request: a .svg or .html file.", callback=_plot_path),
    ] = None
    prometheus: Annotated[
        str | None, Option("--prometheus", help="Figures as Prometheus reads them: a file, or - for standard output.")
    ] = None

    def files(
        self, result: WatchResult, log: Recording, policy: Policy, since: float | None
    ) -> dict[str, Path | str | None]:
        """Write the requested files; return their paths by description."""
        files: dict[str, Path | str | None] = {}
        if self.audited is not None:
            audited = audited_recording(log, policy, since=since)
            write_recording(self.audited, audited.table, audited.metadata)
            files["audited requests"] = self.audited
        if result.rang and self.fallback is not None:
            full_width(policy).save(self.fallback)
            files["policy to fall back to"] = self.fallback
        if self.plot is not None:
            result.plot().save(self.plot)
            files["plot"] = self.plot
        if self.prometheus not in (None, "-"):
            write_file(self.prometheus, prometheus_text(result))
            files["figures"] = self.prometheus
        return files


def watch_command(
    context: typer.Context,
    path: Annotated[
        RecordingPath, typer.Argument(metavar="LOG", help="A log of a deployed policy: a folder, or a file.")
    ],
    policy_path: Annotated[Path, Option("--policy", help="The policy file that was deployed.")],
    judged: _Judged,
    written: _Written,
    output: Output,
    tune: Annotated[
        RecordingPath | None,
        Option("--tune", help="The recording that the policy was calibrated or certified on: drift is against it."),
    ] = None,
    where: Where = None,
    exit_code: Annotated[
        bool,
        Option(
            "--exit-code",
            help="Exit with 3 if it says recalibrate or certify, or that too many golds are missing; 4 if the alarm has rung, 0 otherwise.",
        ),
    ] = False,
) -> None:
    """Audited requests show what the rule loses; the alarm and all intervals hold however often you look.

    Example: suffice watch log/ --policy policy.json --exit-code
    """
    if written.prometheus == "-" and output.as_json:
        raise typer.BadParameter("standard output is for JSON: name a file", param_hint="--prometheus")
    policy = options.load_policy(policy_path)
    # The bound of the policy's certificate or decision takes precedence over suffice.toml.
    from_file = is_from_file(context, "max_loss") and (
        policy.certificate is not None or decided_loss(policy) is not None
    )
    deadline = None if judged.deadline is None else _duration_in_seconds(judged.deadline)
    since = None if judged.since is None else seconds_of(judged.since)
    with status("watching", quiet=output.as_json):
        # The state of an earlier look lacks rows that are needed to choose requests and to write the audited requests.
        is_whole = bool(where) or since is not None or written.audited is not None
        whole, notes = (read_recording(path), []) if is_whole else read_log(path, policy)
        log = chosen_loop(whole, where)
        signal = None
        if judged.signal is not None:
            signal = by_request(record.values for record in records_of(judged.signal))
        result = watch(
            log,
            policy,
            tune=None if tune is None else tune_of_loop(read_recording(tune), where),
            metric=judged.metric,
            max_loss=None if from_file else judged.max_loss,
            signal=signal,
            deadline=deadline,
            gold_deadline=GOLD_DEADLINE if judged.gold_deadline is None else _duration_in_seconds(judged.gold_deadline),
            since=since,
            window=judged.window,
            alpha=judged.risk,
            # The chosen requests may lack those of earlier policies.
            number=judged.policy_number or (policy_number(whole, policy) if where else None),
        )
        export_metrics(result)
    files = written.files(result, log, policy, since)
    notes += [] if written.audited is None else _audited_notes(result, written.audited)
    notes += _suspend(result, policy, policy_path) if written.suspend else []
    if written.prometheus == "-":
        print_text(prometheus_text(result))
    else:
        again = _same_watch(path, policy_path, tune, judged, max_loss=None if from_file else judged.max_loss)
        again += where_words(where)
        then = _next_command(result, again, policy_path, policy, written)
        screen = Screen(sentences=[result.sentence], tables=result.tables(), notes=notes, files=files, then=then)
        output.show(
            {
                **result.to_dict(),
                "notes": [*result.notes, *notes],
                "files": {k: str(v) for k, v in files.items()},
                "next": then,
            },
            screen,
        )
    if exit_code and EXIT_CODES[result.status]:
        raise typer.Exit(EXIT_CODES[result.status])


def _suspend(result: WatchResult, policy: Policy, path: Path) -> list[str]:
    """Mark the certificate in a policy file as suspended if the alarm has rung; return a note on it."""
    if not result.rang:
        return []
    if policy.certificate is None:
        return [f"{path} has no certificate, so nothing is suspended"]
    if not result.certified:
        return [
            f"the alarm is not about what is certified in {path} (metric and bound), so the certificate is not suspended"
        ]
    if not policy.suspended:
        assert result.alarm is not None
        assert result.alarm.rang is not None
        policy.suspended_because(
            f"the alarm rang at {result.place_text(result.alarm.rang)}, the {result.question.text} had passed {result.question.bound:g}"
        ).save(path)
    return [f"the certificate in {path} is suspended: every program that loads it says so"]


def _audited_notes(result: WatchResult, path: Path) -> list[str]:
    """Return a note with reasons if the audited requests in a file are not a fair sample."""
    reasons = [f"{counted(result.n_lost, 'audit')} got lost"] if result.n_lost else []
    reasons += ["audit rates vary"] if result.rates_vary else []
    return [f"{path} is not a fair sample of all requests: {' and '.join(reasons)}"] if reasons else []


def _same_watch(path: Path, policy_path: Path, tune: Path | None, judged: _Judged, *, max_loss: float | None) -> str:
    given = {
        "--policy": policy_path,
        "--tune": tune,
        "--metric": judged.metric,
        "--max-loss": max_loss,
        "--signal": judged.signal,
        "--since": judged.since,
    }
    settings = {
        "deadline": judged.deadline,
        "gold-deadline": judged.gold_deadline,
        "risk": None if judged.risk == _Judged.risk else judged.risk,
        "policy-number": judged.policy_number,
        "window": None if judged.window == _Judged.window else judged.window,
    }
    words = [f"{name} {quoted(str(value))}" for name, value in given.items() if value is not None]
    words += [f"--set {quoted(f'{name}={value}')}" for name, value in settings.items() if value is not None]
    options_text = " ".join(words)
    return f"suffice watch {quoted(path)} {options_text}"


def _next_command(result: WatchResult, again: str, policy_path: Path, policy: Policy, written: _Written) -> str:
    if result.status == "fall back" and written.fallback is None:
        return f"{again} --fallback full-width.json{' --suspend' * (result.certified and not policy.suspended)}"
    if result.status in {"keep", "not enough audits", "missing golds", "lost audits"}:
        return again
    if written.audited is None:
        return f"{again} --audited audited.parquet"
    audited = quoted(written.audited)
    metric = None if result.question.metric == USER_SIGNAL else result.question.metric
    if result.status == "re-certify":
        bound = 0.02 if result.question.bound is None else result.question.bound
        return f"suffice certify {audited} --policy {quoted(policy_path)} --max-loss {bound:g}{options.metric_words(metric)} -o certified.json"
    rule = quoted(str(policy.rule))
    if metric is None:
        return f"suffice calibrate {audited} --rule {rule} -o recalibrated.json"
    return f"suffice calibrate {audited} --rule {rule} --target {quoted(metric)} -o recalibrated.json"


def _duration_in_seconds(text: str) -> float:
    """Return a duration in seconds.

    >>> _duration_in_seconds("36h"), _duration_in_seconds("90")
    (129600.0, 90.0)
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise DataError(f"a deadline is a number with s, m, h or d, as 36h, not {text!r}")
    return float(match["number"]) * _DURATION_UNITS[match["unit"]]
