"""`suffice certify` and `suffice data show`: bound the loss of a policy with confidence, and say what that rests on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from suffice.certificates import (
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
    path_values,
    threshold_path,
)
from suffice.cli import options
from suffice.cli.console import errors, print_json, print_table, say
from suffice.errors import DataError
from suffice.replays.outcomes import default_metrics
from suffice.session import Policy
from suffice.store import Recording, read_recording
from suffice.tables import Column, Table

__all__ = ["certify_command", "certify_path", "show_certification", "show_command"]


def certify_command(
    path: Annotated[Path, typer.Argument(metavar="RECORDING", help="Questions used for nothing else, at full width.")],
    max_loss: Annotated[float, typer.Option("--max-loss", help="epsilon: the largest expected loss, 0.02 = 2 points.")],
    policy: Annotated[Path | None, typer.Option("--policy", help="The policy file that is varied.")] = None,
    along: Annotated[
        str | None,
        typer.Option(
            "--path", help="SIGNAL=LOW:HIGH:N: its threshold moved; SIGNAL alone takes the range from --tune."
        ),
    ] = None,
    rules: Annotated[
        Path | None, typer.Option("--rules", help="A file with a rule, or the path of a policy file, on each line.")
    ] = None,
    tune: Annotated[
        Path | None, typer.Option("--tune", help="A recording of tune questions: they set values and test order.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", help="f1 (default; em for multiple choice), em, agreement, or a column in [0, 1]."),
    ] = None,
    confidence: Annotated[float, typer.Option("--confidence", help="1 - delta, between 0 and 1.")] = 0.95,
    loss: Annotated[
        str, typer.Option("--loss", help="'net': gains count against losses; 'harm': losses alone, stricter.")
    ] = "net",
    baseline: Annotated[
        str, typer.Option("--baseline", help="'full', a rule as fixed_k(3), a policy file, closed_book, an oracle.")
    ] = "full",
    procedure: Annotated[
        str, typer.Option("--procedure", help="'fixed-sequence' (order matters) or 'bonferroni'.")
    ] = "fixed-sequence",
    cheapest: Annotated[str, typer.Option("--cheapest", help=f"What is cheap: {', '.join(COST_NAMES)}.")] = "calls",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the order of betting; fix it beforehand.")] = 42,
    start_round: options.StartRound = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The certified policy, a JSON file.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """The expected loss is at most --max-loss with the given confidence. Exit code 1 if no policy is certified.

    Example: suffice certify eval.parquet --max-loss 0.02 --policy policy.json
    """
    options.allowed(cheapest, COST_NAMES, "--cheapest")
    recording = read_recording(path)
    claim = Claim(
        epsilon=max_loss,
        confidence=confidence,
        metric=metric or default_metrics(recording)[0],
        loss=options.allowed(loss, ("net", "harm"), "--loss"),
        baseline=Policy.load(baseline) if Path(baseline).suffix == ".json" else baseline,
        seed=seed,
    )
    known = None if tune is None else read_recording(tune)
    family = _family(recording, None if policy is None else Policy.load(policy), along, rules, known, start_round)
    with errors.status(f"testing {len(family.policies)} policies"):
        found = certify(
            recording,
            family,
            claim,
            procedure=options.allowed(procedure, PROCEDURES, "--procedure"),
            tune=known,
            cheapest=cheapest,
        )
    if out is not None and found.policy is not None:
        found.policy.save(out)
    if as_json:
        print_json({**found.to_dict(), "policy": None if out is None or found.policy is None else str(out)})
    else:
        show_certification(found)
        if out is not None:
            said = "nothing is certified: no policy is written" if found.policy is None else f"policy written to {out}"
            say(said)
    if found.policy is None:
        raise typer.Exit(1)


def certify_path(recording: Recording, tune: Recording, policy: Policy, signal: str, claim: Claim) -> Certification:
    """Certify along the threshold of one signal, values and test order taken from tune questions."""
    family = threshold_path(policy, signal, path_values(policy, signal, tune))
    return certify(recording, family, claim, tune=tune)


def _family(
    recording: Recording,
    policy: Policy | None,
    along: str | None,
    rules: Path | None,
    tune: Recording | None,
    start_round: int | None = None,
) -> Family:
    """Return the family that the options declare: a path, a list, or the policy alone."""
    if along is not None and rules is not None:
        raise typer.BadParameter("give a path or a list of rules, not both", param_hint="--path / --rules")
    lines = [] if rules is None else _lines(rules)
    start = options.start_of(start_round, [line for line in lines if isinstance(line, str)])
    if rules is not None:
        return listed(lines, policy or recording, **start)
    if policy is None:
        raise typer.BadParameter("give a policy file, or a list of rules with --rules", param_hint="--policy")
    if along is None:
        return listed([policy], policy)
    signal, given, values = along.partition("=")
    if given:
        return threshold_path(policy, signal, _values(values))
    if tune is None:
        raise typer.BadParameter(
            f"{along!r} has no values: write {along}=LOW:HIGH:N, or give --tune to take them from", param_hint="--path"
        )
    return threshold_path(policy, signal, path_values(policy, signal, tune))


def _values(text: str) -> list[float]:
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
    return [Policy.load(path.parent / line) if line.endswith(".json") else line for line in wanted]


def show_certification(found: Certification) -> None:
    """Print the family, the outcome, and what the next policy lacks."""
    print_table(found.table())
    say(found.headline)
    if found.policy is not None and found.missing:
        say(f"cheaper: {found.missing}")


def show_command(
    path: Annotated[Path, typer.Argument(metavar="POLICY", help="A policy file.")],
    as_json: options.AsJson = False,
) -> None:
    """What it says, what the certificate assumes, and what breaks it.

    Example: suffice data show policy.json
    """
    policy = Policy.load(path)
    certificate = Certificate.of(policy)
    state = "none" if certificate is None else "valid" if certificate.holds_for(policy) else "void"
    if as_json:
        print_json(
            {
                "policy": policy.to_dict(),
                "digest": policy.digest,
                "certificate": state,
                "statement": None if certificate is None else certificate.statement,
                "assumes": list(ASSUMES),
                "breaks": list(BREAKS),
            }
        )
        return
    print_table(_policy_table(policy))
    if certificate is None:
        say("no certificate: `suffice certify` gives one on questions that it has not seen")
        return
    if state == "void":
        say(
            f"VOID: the policy was changed. This certificate belongs to the policy {certificate.policy_digest}, this one "
            f"is {policy.digest}: what it says below says nothing about it. Certify again, on fresh questions.",
            bold=True,
        )
    print_table(certificate.table())
    say(f"{certificate.statement}.")
    for title, lines in (("It assumes", ASSUMES), ("It breaks with", BREAKS)):
        say(f"{title}:")
        for line in lines:
            say(f"  - {line}")


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
