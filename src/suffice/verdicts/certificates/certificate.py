"""The certificate of a policy: its statement, its assumptions, and the conditions that break it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import NoneType
from typing import Any

from suffice.common.display import Chart
from suffice.common.results import UNLESS_EMPTY, Result
from suffice.common.tables import Column, Table, facts_table, figure
from suffice.errors import SchemaError
from suffice.evaluation.replay.charts import (
    COST_TITLES,
    axis_of,
    bound_layer,
    by_state,
    chart_of,
    point_layer,
)
from suffice.policy.session import Policy
from suffice.verdicts.certificates.losses import COST_NAMES
from suffice.verdicts.losses import failed_text

ASSUMES = (
    "the questions to come are exchangeable with the certification questions: drawn independently, from one distribution",
    "the same model, prompt, decoding, retriever and corpus as in the recording, and no response that depends on others",
    "family, order, calibrators and thresholds were fixed before the certification set was looked at, and it was used once",
)
"""The assumptions of the guarantee."""

BREAKS = (
    "any change of the policy: then this certificate is void",
    "another model or revision, prompt, retriever or corpus; other users, topics or languages than those certified on",
    "certifying again on the same questions, with another family or epsilon, until it succeeds",
    "reading it for one question or one group of questions: it bounds the expected loss over all",
)
"""The changes that end the guarantee."""


_STATES = {"chosen": "var(--accent)", "certified": "var(--good)", "not certified": "var(--muted)"}
"""The states of a policy with their colours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate(Result):
    """The expected loss of one policy against a baseline is at most epsilon, with confidence.

    If certification were repeated on new sets of questions, at most a share ``1 - confidence`` of the runs would give a
    false certificate.

    Attributes:
        policy_digest: `Policy.digest` of the certified policy.
        loss: `net` or `harm`, see `Claim`.
        metric: The metric of quality.
        baseline: The baseline that the policy is compared with.
        epsilon: The largest expected loss, in the unit of the metric.
        confidence: 1 - delta.
        method: The name of the statistical test.
        p_value: The p-value of the chosen policy.
        level: The largest p-value that still certifies a policy: delta, or a share of delta.
        procedure: `fixed-sequence` or `bonferroni`.
        family: The tested family, in words.
        family_size: Number of policies in the family.
        position: Position of the chosen policy in the test order, from 0.
        sequence: One entry for each policy in test order: rule, p_value, certified, mean loss and calls.
        n: Number of certification questions.
        n_failed: Number of questions whose recording failed.
        figures: Means of the policy and of the baseline on the certification set. Savings look slightly too good,
            because the policy was chosen on these questions. The loss is a mean over all questions; the other means
            leave out failed questions.
        data_hash: Hash of the certification recording.
        question_ids: Hashes of the ids of the certification questions, sorted.
        question_texts: Hashes of the normalised texts of these questions, sorted; empty if the texts were not recorded.
        notes: Notes for the reader.
        versions: Versions of the software.
        leave_out_failed: True to leave out failed questions (certificates from before 0.4 do); False to count each as
            lost.
        seed: Seed of the betting order in certificates from before 0.4; None = order by the hash of the questions'
            names.
        suspended: The reason and time of the suspension by `suffice watch`; empty if the certificate is not suspended.
    """

    policy_digest: str
    loss: str
    metric: str
    baseline: str
    epsilon: float
    confidence: float
    method: str
    p_value: float
    level: float
    procedure: str
    family: str
    family_size: int
    position: int
    sequence: tuple[Mapping[str, Any], ...]
    n: int
    n_failed: int
    figures: Mapping[str, float | None]
    data_hash: str
    question_ids: tuple[str, ...]
    notes: tuple[str, ...]
    versions: Mapping[str, str]
    question_texts: tuple[str, ...] = ()
    leave_out_failed: bool = False
    seed: int | None = field(default=None, metadata=UNLESS_EMPTY)
    suspended: str = field(default="", metadata=UNLESS_EMPTY)

    @classmethod
    def from_dict(cls, data: Any) -> Certificate:
        """Return the certificate that `to_dict` wrote.

        Raises:
            SchemaError: Missing or unknown fields, or values of the wrong kind.
        """
        types = {item.name: str(item.type) for item in fields(cls)}
        # Certificates from before 0.4 have no texts, left out what failed, and had a seed.
        defaults: dict[str, Any] = {"question_texts": (), "leave_out_failed": True, "seed": None, "suspended": ""}
        values = {**defaults, **data} if isinstance(data, Mapping) else {}
        if set(values) != set(types):
            raise SchemaError(
                f"a certificate with unknown fields {sorted(set(values) - set(types))} and missing fields "
                f"{sorted(set(types) - set(values))}: certify the policy again"
            )
        for name, kind in types.items():
            value = values[name]
            expected = _FIELD_TYPES[kind.partition("[")[0]]
            if not isinstance(value, expected) or isinstance(value, bool) != (kind == "bool"):
                raise SchemaError(f"the field {name!r} of a certificate must be of type {kind}, not {value!r}")
            if kind.startswith("tuple"):
                values[name] = tuple(values[name])
        return cls(**values)

    @classmethod
    def of(cls, policy: Policy) -> Certificate | None:
        """Return the certificate of a policy, even if it is void; None if the policy has no certificate.

        Raises:
            SchemaError: The policy's `certificate` is not in the form that `to_dict` writes.
        """
        return None if policy.certificate is None else cls.from_dict(policy.certificate)

    def holds_for(self, policy: Policy) -> bool:
        """Return True if the certificate was issued for exactly this policy."""
        return policy.digest == self.policy_digest

    @property
    def statement(self) -> str:
        """The guarantee in one sentence."""
        kind = f"net loss of {self.metric}"
        if self.loss == "harm":
            kind = f"harm to {self.metric} (gains count for nothing, so the net loss is no larger)"
        bound = (
            f"With {100 * self.confidence:g} % confidence the expected {kind} against {self.baseline} is at most "
            f"{self.epsilon:g}"
        )
        return f"{bound}; {self.failed}" if self.n_failed else bound

    @property
    def failed(self) -> str:
        """The treatment of failed questions, in words; empty if none failed."""
        text = failed_text(self.n_failed, left_out=self.leave_out_failed)
        return f"{text}, so it says nothing about such" if text and self.leave_out_failed else text

    def plot(self) -> Chart:
        """Return the chart of the family: each policy's mean loss against its mean calls, with a line at epsilon."""
        return family_chart(
            self.sequence,
            self.epsilon,
            f"{'net loss' if self.loss == 'net' else 'harm'} of {self.metric}",
            self.position,
        )

    def table(self) -> Table:
        """Return the fields of the certificate as a table of names and values."""
        loss = "metric(baseline) - metric(policy)" if self.loss == "net" else "max(0, net)"
        facts = {
            "loss": f"{self.loss}: {loss}",
            "metric, baseline": f"{self.metric}, {self.baseline}",
            "epsilon, confidence": f"{self.epsilon:g}, {100 * self.confidence:g} %",
            "p-value": f"{self.p_value:.4g}, had to reach {self.level:.4g}; {self.method}",
            "questions": f"{self.n} (recording {self.data_hash}), order of betting: "
            + ("hash of their names" if self.seed is None else f"seed {self.seed}"),
            **({"failed": self.failed} if self.n_failed else {}),
            "family": self.family,
            "procedure": f"{self.procedure}; this one is number {self.position + 1} of {self.family_size}",
            "selected here": figures_text(self.figures, self.metric),
            "policy": self.policy_digest,
            "versions": ", ".join(f"{name} {version}" for name, version in self.versions.items()),
            **({"suspended": self.suspended} if self.suspended else {}),
        }
        return replace(facts_table("Certificate", facts), notes=self.notes)


_FIELD_TYPES: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "int | None": (int, NoneType),
    "bool": bool,
    "float": (int, float),
    "tuple": (list, tuple),
    "Mapping": Mapping,
}


_SHARE_IN_POINTS = Column("points", ".1f", scale=100)


def metric_of(policy: Policy) -> str | None:
    """Return the metric by which a policy was certified, advised or selected; None if the policy names no metric."""
    sources = [policy.certificate, *(policy.provenance.get(step) for step in ("decision", "search", "ranker"))]
    for source in sources:
        if isinstance(source, Mapping) and isinstance(source.get("metric"), str):
            return str(source["metric"])
    return None


def figures_text(figures: Mapping[str, float | None], metric: str) -> str:
    """Return the figures of a policy beside those of its baseline, in one line.

    >>> figures_text({"loss": -0.01, "value": 0.5, "baseline_value": 0.49, "calls": 4.0, "baseline_calls": 5.0}, "f1")
    'loss -0.0100; f1 50.0 against 49.0; 4.00 calls against 5.00 (-20.0 %)'
    """
    value, baseline = (_SHARE_IN_POINTS.text(figures[name]) for name in ("value", "baseline_value"))
    text = f"loss {figures['loss']:+.4f}; {metric} {value} against {baseline}"
    for name in COST_NAMES:
        cost, reference = figures.get(name), figures.get(f"baseline_{name}")
        if cost is not None and reference is not None:
            digits = 0 if name == "tokens" else 2
            saved = f" ({figure(cost / reference - 1, '+.1f', 100)} %)" if reference else ""
            text += f"; {cost:,.{digits}f} {name} against {reference:,.{digits}f}{saved}"
    return text


def family_chart(sequence: Sequence[Mapping[str, Any]], epsilon: float, kind: str, chosen: int | None) -> Chart:
    """Chart each policy's mean loss on the certification questions against its mean calls, with a line at epsilon."""
    data = [
        {
            "policy": member["rule"],
            "calls": member["calls"],
            "loss": member["loss"],
            "p": member["p_value"],
            "state": "chosen" if place == chosen else "certified" if member["certified"] else "not certified",
        }
        for place, member in enumerate(sequence)
    ]
    x, y = axis_of("calls", COST_TITLES["calls"]), axis_of("loss", f"{kind}, mean")
    colour, legend = by_state("state", _STATES, data)
    tooltip = [
        {"field": "policy"},
        {"field": "loss", "format": "+.4f"},
        {"field": "calls", "format": ".2f"},
        {"field": "p", "title": "p-value", "format": ".4f"},
        {"field": "state"},
    ]
    encoding = {"x": x, "y": y, "color": colour, "tooltip": tooltip}
    layers = [
        bound_layer("y", "epsilon", epsilon, f"epsilon = {epsilon:g}"),
        # The point is larger, so that it stays visible under other points at the same place.
        point_layer(encoding, "datum.state === 'chosen'", (220, 80)),
    ]
    return Chart(chart_of(data, layers, 300, f"Loss against calls of {len(data)} policies", legend))
