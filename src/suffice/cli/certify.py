"""`suffice certify` and `suffice data show`: bound the loss of a policy with confidence, and show the bound's assumptions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import typer

from suffice.cli import options
from suffice.cli.console import status
from suffice.cli.groups import RecordingPath, command_line
from suffice.cli.options import Where, chosen_loop, tune_of_loop
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting
from suffice.common.files import quoted
from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.evaluation.replay.outcomes import default_metrics
from suffice.policy.session import Policy
from suffice.recordings import Recording, read_recording
from suffice.verdicts.certificates import (
    ASSUMES,
    BREAKS,
    COST_NAMES,
    PROCEDURES,
    Certificate,
    Certification,
    Claim,
    Family,
    certify,
    listed,
    metric_of,
    path_values,
    threshold_path,
)


@dataclass(frozen=True, kw_only=True)
class _Claimed:
    """Options for the claim of a certificate."""

    panel: ClassVar[str] = "What is claimed"

    max_loss: Annotated[float, typer.Option("--max-loss", help="epsilon: the largest expected loss, 0.02 = 2 points.")]
    metric: options.Quality = None
    confidence: Annotated[float, Setting("certificate", "confidence", help="1 - delta, between 0 and 1.")] = 0.95
    loss: Annotated[
        str, Setting("certificate", "loss", help="'net': gains count against losses; 'harm': losses alone, stricter.")
    ] = "net"
    baseline: Annotated[
        str, typer.Option("--baseline", help="'full', a rule as fixed_k(3), a policy file, closed_book, an oracle.")
    ] = "full"
    leave_out_failed: Annotated[
        bool,
        Setting(
            "statistics", "leave-out-failed", help="Leave out questions that failed; otherwise they count as lost."
        ),
    ] = False
    orders: Annotated[
        int | None,
        Setting(
            "statistics",
            "orders",
            min=1,
            help="For independent samples: average each loss over this many orders; default: 100.",
        ),
    ] = None

    def claim(self, recording: Recording) -> Claim:
        """Return the claim about a policy on a recording."""
        return Claim(
            epsilon=self.max_loss,
            confidence=self.confidence,
            metric=self.metric or default_metrics(recording)[0],
            loss=options.allowed(self.loss, ("net", "harm"), "loss"),
            baseline=options.read_baseline(self.baseline) or "full",
            orders=self.orders,
            leave_out_failed=self.leave_out_failed,
        )


@dataclass(frozen=True, kw_only=True)
class _Varied:
    """Options for the policies to test."""

    panel: ClassVar[str] = "The policies that are tested"

    policy: Annotated[Path | None, typer.Option("--policy", help="The policy file that is varied.")] = None
    along: Annotated[
        str | None,
        typer.Option(
            "--path", help="SIGNAL=LOW:HIGH:N: its threshold moved; SIGNAL alone takes the range from --tune."
        ),
    ] = None
    rules: Annotated[
        Path | None, typer.Option("--rules", help="A file with a rule, or the path of a policy file, on each line.")
    ] = None
    start_round: options.StartRound = None

    def family(self, recording: Recording, tune: Recording | None) -> Family:
        """Return the family of policies that the options declare: a path, a list, or a single policy."""
        if self.along is not None and self.rules is not None:
            raise typer.BadParameter("give a path or a list of rules, not both", param_hint="--path / --rules")
        policy = None if self.policy is None else options.load_policy(self.policy)
        lines = [] if self.rules is None else _lines(self.rules)
        start = options.start_of(self.start_round, [line for line in lines if isinstance(line, str)])
        if self.rules is not None:
            return listed(lines, policy or recording, **start)
        if policy is None:
            raise typer.BadParameter("give a policy file, or a list of rules with --rules", param_hint="--policy")
        if self.along is None:
            return listed([policy], policy)
        signal, given, values = self.along.partition("=")
        if given:
            return threshold_path(policy, signal, _values_along(values))
        if tune is None:
            raise typer.BadParameter(
                f"{signal!r} has no values: write {signal}=LOW:HIGH:N, or give --tune to take them from",
                param_hint="--path",
            )
        return threshold_path(policy, signal, path_values(policy, signal, tune))


def certify_command(
    context: typer.Context,
    path: Annotated[
        RecordingPath, typer.Argument(metavar="RECORDING", help="Questions used for nothing else, at full width.")
    ],
    claimed: _Claimed,
    varied: _Varied,
    output: Output,
    tune: Annotated[
        RecordingPath | None,
        typer.Option("--tune", help="A recording of tune questions: they set values and test order."),
    ] = None,
    where: Where = None,
    procedure: Annotated[
        str, Setting("certificate", "procedure", help="'fixed-sequence' (order matters) or 'bonferroni'.")
    ] = "fixed-sequence",
    cheapest: Annotated[
        str, Setting("certificate", "cheapest", help=f"The cost to compare: {', '.join(COST_NAMES)}.")
    ] = "calls",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The certified policy, a JSON file.")] = None,
) -> None:
    """The expected loss is at most --max-loss with the given confidence. Exit code 1 if no policy is certified.

    Example: suffice certify eval.parquet --max-loss 0.02 --policy policy.json
    """
    options.allowed(cheapest, COST_NAMES, "cheapest")
    recording = chosen_loop(read_recording(path), where)
    known = None if tune is None else tune_of_loop(read_recording(tune), where)
    family, claim = varied.family(recording, known), claimed.claim(recording)
    with status(f"testing {len(family.policies)} policies", quiet=output.as_json):
        result = certify(
            recording,
            family,
            claim,
            procedure=options.allowed(procedure, PROCEDURES, "procedure"),
            tune=known,
            cheapest=cheapest,
        )
    written = None if result.policy is None else out
    if result.policy is not None and written is not None:
        result.policy.save(written)
    then = f"{command_line(context, 'details', folders=True)} -o certified.json"
    if result.policy is None:
        then = f"suffice replay {quoted(path)}{options.metric_words(claimed.metric)}"
    elif written is not None:
        then = f'suffice answer "QUESTION" --corpus FOLDER --policy {written}'
    lost = ["nothing is certified, so no policy is written"] if out is not None and written is None else []
    screen = replace(certification_screen(result), notes=lost, files={"policy": written}, then=then)
    output.show({**result.to_dict(), "policy": None if written is None else str(written)}, screen)
    if result.policy is None:
        raise typer.Exit(1)


def certify_path(recording: Recording, tune: Recording, policy: Policy, signal: str, claim: Claim) -> Certification:
    """Certify a policy with different thresholds on one signal; tune questions determine the thresholds and the test order."""
    family = threshold_path(policy, signal, path_values(policy, signal, tune))
    return certify(recording, family, claim, tune=tune)


def _values_along(text: str) -> list[float]:
    try:
        low, high, n = text.split(":")
        return [float(value) for value in np.linspace(float(low), float(high), int(n))]
    except ValueError:
        raise typer.BadParameter(f"{text!r}: write LOW:HIGH:N, 0.1:0.9:17", param_hint="--path") from None


def _lines(path: Path) -> Sequence[Policy | str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the list of rules {str(path)!r} cannot be read: {error}") from None
    lines = [line.strip() for line in text.splitlines()]
    wanted = [line for line in lines if line and not line.startswith("#")]
    return [options.load_policy(path.parent / line) if line.endswith(".json") else line for line in wanted]


def certification_screen(result: Certification) -> Screen:
    """Return the screen with the outcome, the family, and what the next policy would need."""
    cheaper = [f"cheaper: {result.missing}"] if result.policy is not None and result.missing else []
    return Screen(sentences=[result.headline, *cheaper], tables=result.tables(), aside={"p (Hoeffding-Bentkus)"})


def show_command(
    path: Annotated[Path, typer.Argument(metavar="POLICY", help="A policy file.")],
    output: Output,
) -> None:
    """Show a policy file: its rule, the assumptions of its certificate, and what would break it.

    Example: suffice data show policy.json
    """
    policy = options.load_policy(path)
    certificate = Certificate.of(policy)
    state = "none" if certificate is None else "valid" if certificate.holds_for(policy) else "void"
    state = "suspended" if state == "valid" and policy.suspended else state
    tables, sentences, notes = [_policy_table(policy)], [], []
    if certificate is None:
        sentences.append("no certificate: `suffice certify` gives one on questions that it has not seen")
    else:
        tables.append(certificate.table())
        sentences.append(f"{certificate.statement}.")
        if state == "void":
            sentences.insert(
                0,
                f"VOID: the policy was changed. This certificate belongs to the policy {certificate.policy_digest}, this "
                f"one is {policy.digest}: what it says below says nothing about it. Certify again, on fresh questions.",
            )
        if state == "suspended":
            sentences.insert(
                0, f"SUSPENDED: {policy.suspended}. What the certificate says below does not hold any more."
            )
        notes = [*(f"It assumes: {line}" for line in ASSUMES), *(f"It breaks with: {line}" for line in BREAKS)]
    words = options.metric_words(metric_of(policy))
    then = f"suffice certify FRESH.parquet --max-loss 0.02 --policy {quoted(path)}{words}"
    if state == "valid":
        then = f'suffice answer "QUESTION" --corpus FOLDER --policy {path}'
    data = {
        "policy": policy.to_dict(),
        "digest": policy.digest,
        "certificate": state,
        "statement": None if certificate is None else certificate.statement,
        "assumes": list(ASSUMES),
        "breaks": list(BREAKS),
    }
    output.show(data, Screen(sentences=sentences, tables=tables, notes=notes, then=then))


def _policy_table(policy: Policy) -> Table:
    provenance = policy.provenance
    rows = (
        ("name", policy.name or "(none)"),
        ("rule", str(policy.rule)),
        ("selector", str(policy.selector)),
        ("rounds", f"{policy.start_round} to {policy.max_rounds}"),
        ("calibrators", ", ".join(f"{c.output} from {c.signal}" for c in policy.calibrators) or "none"),
        ("fitted state", ", ".join(policy.state) or "none"),
        ("answer position", json.dumps(policy.answer_position.to_dict())),
        ("depends on", json.dumps(dict(policy.depends), ensure_ascii=False) if policy.depends else "nothing named"),
        (
            "fitted on",
            f"{len(provenance.get('tune_ids') or ())} questions (recording {provenance.get('data_hash', '-')})",
        ),
        ("digest", policy.digest),
    )
    return Table(title="Policy", columns=(Column("what"), Column("value")), rows=rows)
