"""What a certificate says, what it assumes and what breaks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from suffice.certificates.losses import COST_NAMES
from suffice.errors import SchemaError
from suffice.session import Policy
from suffice.tables import Column, Table, figure

__all__ = ["ASSUMES", "BREAKS", "Certificate"]

ASSUMES = (
    "the questions to come are exchangeable with the certification questions: drawn independently, from one distribution",
    "the same model, prompt, decoding, retriever and corpus as in the recording, and no response that depends on others",
    "family, order, calibrators and thresholds were fixed before the certification set was looked at, and it was used once",
)
"""What the guarantee rests on."""

BREAKS = (
    "any change of the policy: then this certificate is void",
    "another model or revision, prompt, retriever or corpus; other users, topics or languages than those certified on",
    "certifying again on the same questions, with another family, epsilon or seed, until it succeeds",
    "reading it for one question or one group of questions: it bounds the expected loss over all",
)
"""What ends the guarantee."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """That the expected loss of one policy against a baseline is at most epsilon, with confidence.

    Over repeated certification sets, at most a share ``1 - confidence`` of all runs gives any false certificate.

    Attributes:
        policy_digest: `Policy.digest` of the policy that it belongs to.
        loss: `net` or `harm`, see `Claim`.
        metric: What quality means.
        baseline: What the loss is taken against.
        epsilon: The largest expected loss, in the unit of the metric.
        confidence: 1 - delta.
        method: The test.
        p_value: Of the chosen policy.
        level: What it had to reach: delta, or a share of it.
        procedure: `fixed-sequence` or `bonferroni`.
        family: What was tested, in words.
        family_size: How many policies.
        position: Place of the chosen one in the test order, from 0.
        sequence: The family in test order: rule, p_value, certified, mean loss and calls.
        n: Certification questions.
        n_failed: Questions left out because their recording failed.
        seed: Of the order of the betting.
        figures: Means on the certification set, "selected here": of the policy and of the baseline.
        data_hash: Of the certification recording.
        question_ids: Hashes of the ids of the certification questions, sorted.
        question_texts: Hashes of their normalised texts, sorted; empty where the texts are not on record.
        notes: What a reader must know.
        versions: Of the software.
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
    seed: int
    figures: Mapping[str, float | None]
    data_hash: str
    question_ids: tuple[str, ...]
    notes: tuple[str, ...]
    versions: Mapping[str, str]
    question_texts: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values, as `Policy.certificate` holds them."""
        data = asdict(self)
        return {**data, **{name: list(data[name]) for name in _TUPLES}}

    @classmethod
    def from_dict(cls, data: Any) -> Certificate:
        """Return the certificate that `to_dict` wrote.

        Raises:
            SchemaError: Missing or unknown fields, or values of the wrong kind.
        """
        kinds = {item.name: str(item.type) for item in fields(cls)}
        if isinstance(data, Mapping):  # certificates from before 0.4 compare ids alone
            data = {"question_texts": (), **data}
        if not isinstance(data, Mapping) or set(data) != set(kinds):
            given = set(data) if isinstance(data, Mapping) else set()
            raise SchemaError(
                f"a certificate with unknown fields {sorted(given - set(kinds))} and missing fields "
                f"{sorted(set(kinds) - given)}: certify the policy again"
            )
        for name, kind in kinds.items():
            wanted = _KINDS[kind.partition("[")[0]]
            if not isinstance(data[name], wanted) or isinstance(data[name], bool):
                raise SchemaError(f"the field {name!r} of a certificate must be of type {kind}, not {data[name]!r}")
        values: dict[str, Any] = {name: data[name] for name in kinds}
        return cls(**{**values, **{name: tuple(values[name]) for name in _TUPLES}})

    @classmethod
    def of(cls, policy: Policy) -> Certificate | None:
        """Return the certificate that a policy carries, valid or void; None if it has none.

        Raises:
            SchemaError: What it carries is no certificate.
        """
        return None if policy.certificate is None else cls.from_dict(policy.certificate)

    def holds_for(self, policy: Policy) -> bool:
        """Return whether it was given to exactly this policy."""
        return policy.digest == self.policy_digest

    @property
    def statement(self) -> str:
        """What it says, in one sentence."""
        kind = f"net loss of {self.metric}"
        if self.loss == "harm":
            kind = f"harm to {self.metric} (gains count for nothing, so the net loss is no larger)"
        return (
            f"With {100 * self.confidence:g} % confidence the expected {kind} against {self.baseline} is at most "
            f"{self.epsilon:g}"
        )

    @property
    def table(self) -> Table:
        """Its facts, a table of names and values."""
        percent = f"{100 * self.confidence:g} %"
        rows = (
            ("loss", f"{self.loss}: {'metric(baseline) - metric(policy)' if self.loss == 'net' else 'max(0, net)'}"),
            ("metric, baseline", f"{self.metric}, {self.baseline}"),
            ("epsilon, confidence", f"{self.epsilon:g}, {percent}"),
            ("p-value", f"{self.p_value:.4g}, had to reach {self.level:.4g}; {self.method}"),
            ("questions", f"{self.n} (recording {self.data_hash}), order of betting: seed {self.seed}"),
            ("family", self.family),
            ("procedure", f"{self.procedure}; this one is number {self.position + 1} of {self.family_size}"),
            ("selected here", figures_text(self.figures, self.metric)),
            ("policy", self.policy_digest),
            ("versions", ", ".join(f"{name} {version}" for name, version in self.versions.items())),
        )
        return Table(title="Certificate", columns=(Column("what"), Column("value")), rows=rows, notes=self.notes)


_TUPLES = ("sequence", "question_ids", "notes", "question_texts")
_KINDS: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "tuple": (list, tuple),
    "Mapping": Mapping,
}


def figures_text(figures: Mapping[str, float | None], metric: str) -> str:
    """Return the figures of a policy beside those of its baseline, in one line.

    >>> figures_text({"loss": -0.01, "value": 0.5, "baseline_value": 0.49, "calls": 4.0, "baseline_calls": 5.0}, "f1")
    'loss -0.0100; f1 50.0 against 49.0; 4.00 calls against 5.00 (-20.0 %)'
    """
    text = f"loss {figures['loss']:+.4f}; {metric} {_points(figures['value'])} against {_points(figures['baseline_value'])}"
    for name in COST_NAMES:
        ours, theirs = figures.get(name), figures.get(f"baseline_{name}")
        if ours is not None and theirs is not None:
            digits = 0 if name == "tokens" else 2
            saved = f" ({figure(ours / theirs - 1, '+.1f', 100)} %)" if theirs else ""
            text += f"; {ours:,.{digits}f} {name} against {theirs:,.{digits}f}{saved}"
    return text


def _points(value: float | None) -> str:
    return "-" if value is None else figure(value, ".1f", 100)
