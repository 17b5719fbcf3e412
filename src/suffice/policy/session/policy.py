"""A policy: all that a deployment needs, in one JSON file that is read without executing anything."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, cast

from suffice.common.display import Displayed, facts_table
from suffice.common.files import write_file
from suffice.common.identities import aligned
from suffice.common.json_text import refuse_constant
from suffice.common.tables import Table
from suffice.errors import (
    ConfigMismatchError,
    DataError,
    LogprobsUnavailableError,
    ModelError,
    NotFittedError,
    RuleSyntaxError,
    SchemaError,
)
from suffice.policy.calibration import CALIBRATED, Calibrator
from suffice.policy.normalizers import DEFAULT_NORMALIZER, normalizer_of
from suffice.policy.rounds import Decision, Round, Rounds
from suffice.policy.rules import Never, Rule, Selector, parse_rule, parse_selector
from suffice.policy.rules.selectors import Best, Last
from suffice.policy.session.derived import Derivation
from suffice.policy.session.spelled import Spelled
from suffice.policy.signals import CUMULATED, LOGPROB_NEEDS, REMEDIES, SIGNALS, AnswerPosition, cost_columns
from suffice.policy.signals.state import FittedState, state_from_dict
from suffice.policy.signals.votes import VOTES, weights_of

if TYPE_CHECKING:
    from pathlib import Path


Missing = Literal["error", "warn", "ignore"]
"""Reactions of a session to a round without the signals that the policy reads."""

POLICY_FORMAT = "suffice.policy"
POLICY_VERSION = 1
_OPTIONAL_FIELDS = frozenset({"certificate", "normalizer"})  # files of older releases do not have them
_ADVICE = "Use an endpoint that gives it, or a rule that works on text alone (answer_stable)"
_MOST_ROUNDS = 100_000  # far more than loops run, so that a foreign policy file cannot ask for endless rounds

_NOT_DECIDING = ("name", "provenance", "certificate", "format", "version")


@dataclass(frozen=True, kw_only=True)
class Policy(Derivation, Displayed):
    """When to stop and which answer to return, with everything that the decision depends on.

    >>> Policy(rule="tasr", selector="max_p_correct").signals
    ('answer_stable', 'p_correct')

    Attributes:
        rule: Stops the loop at the first round at which it fires; its text may be given instead.
        selector: Chooses among the seen rounds' answers; its text may be given instead.  `best` is ``max_SIGNAL`` of the
            one signal of quality that the rule reads or a calibrator gives.
        start_round: The first round of the loop, 0 or 1; a recording is sliced from it.
        max_rounds: The highest round R, 1 to 100,000: the loop never goes past it.
        calibrators: Fitted maps, one for each calibrated signal that is used.
        state: Fitted state of signals that need statistics beyond their own question, by signal.
        answer_position: Where the answer is in the generated text.
        abstain_patterns: Patterns of refusals to answer; None = the default list.
        normalizer: Which answers are the same, for votes, `answer_stable` and `majority`: a name in `NORMALIZERS`.
        depends: What else the fitted state belongs to (model, prompt, retriever), by name.
        provenance: Where it comes from: data hash, versions, fit figures.
        certificate: What `suffice certify` showed of this policy (see `suffice.verdicts.certificates.Certificate`); None = nothing.
            It belongs to the policy with its `digest` and to no other; see `certified` and `suspended`.
        name: What reports call it; by default the text of the rule.
    """

    rule: Spelled[Rule] = Spelled[Rule](Rule, parse_rule, Never())  # noqa: RUF009
    selector: Spelled[Selector] = Spelled[Selector](Selector, parse_selector, Last())  # noqa: RUF009
    start_round: int = 1
    max_rounds: int = 5
    calibrators: tuple[Calibrator, ...] = ()
    state: Mapping[str, FittedState] = field(default_factory=dict)
    answer_position: AnswerPosition = field(default_factory=AnswerPosition)
    abstain_patterns: tuple[str, ...] | None = None
    normalizer: str = DEFAULT_NORMALIZER
    depends: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    certificate: Mapping[str, Any] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if self.start_round not in (0, 1):
            raise DataError(f"start_round must be 0 (the model alone) or 1, not {self.start_round!r}")
        most = self.max_rounds
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= _MOST_ROUNDS:
            raise DataError(f"max_rounds must be a whole number from 1 to {_MOST_ROUNDS:,}, not {most!r:.40}")
        normalizer_of(self.normalizer)
        outputs = [calibrator.output for calibrator in self.calibrators]
        if isinstance(self.selector, Best):
            object.__setattr__(self, "selector", self.selector.by({*self.rule.signals, *outputs}))
        if len(set(outputs)) != len(outputs):
            raise DataError(f"two calibrators of one signal: {outputs!r}")
        for name in self.state:
            if name in SIGNALS and not SIGNALS[name].fitted:
                raise DataError(
                    f"state of {name!r}, which is not fitted: it is computed from a question's own rounds. Drop it, or "
                    "calibrate the policy again"
                )

    @property
    def label(self) -> str:
        """The name, or the text of the rule."""
        return self.name or str(self.rule)

    @property
    def digest(self) -> str:
        """Short hash of everything that decides: all fields but the name, the provenance and the certificate.

        Raises:
            DataError: The answer position is a Python callable, which has no text.
        """
        deciding = {key: value for key, value in self.to_dict().items() if key not in _NOT_DECIDING}
        return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def certified(self) -> bool:
        """True if there is a certificate for exactly this policy; one that was changed since has none.

        One that is suspended does not count, see `suspended_because`.
        """
        given = self.certificate is not None and self.certificate.get("policy_digest") == self.digest
        return given and not self.suspended

    @property
    def suspended(self) -> str:
        """Why and since when the certificate is suspended; empty where it is not, or where there is none."""
        return "" if self.certificate is None else str(self.certificate.get("suspended") or "")

    def suspended_because(self, reason: str) -> Policy:
        """Return the policy with its certificate suspended; its digest stays the same.

        Args:
            reason: What was seen, and when: what `suffice watch` says.

        Raises:
            DataError: There is no certificate.
        """
        if self.certificate is None:
            raise DataError(f"the policy {self.label!r} has no certificate, so nothing can be suspended")
        return replace(self, certificate={**self.certificate, "suspended": reason})

    @cached_property
    def signals(self) -> tuple[str, ...]:
        """The signals that the rule and the selector read, sorted."""
        return tuple(sorted(self.rule.signals | self.selector.signals))

    @cached_property
    def reads_every_answer(self) -> bool:
        """True if it may read the answer, or the cost, of any earlier round: a gated round 0 is then always answered.

        So do a selector among several answers, the signals that add up costs since the start round, and a signal that
        looks back as far as round 0.
        """
        if not isinstance(self.selector, Last) or any(name in CUMULATED or name in VOTES for name in self.signals):
            return True
        known = [SIGNALS[name] for name in self.raw_signals if name in SIGNALS]
        return any(signal.lookback >= max(signal.first_round, 1) for signal in known)

    @cached_property
    def raw_columns(self) -> tuple[str, ...]:
        """`raw_signals` and the cost columns behind `calls`, `tokens` and `seconds`."""
        return (*self.raw_signals, *dict.fromkeys(column for name in self.signals for column in cost_columns(name)))

    def view(self, raw: Rounds) -> Rounds:
        """Return what the rule reads: rounds from `start_round` to `max_rounds`, fitted signals applied.

        Signals are derived here alone, live (shape ``(n_rounds,)``) and replayed (``(n_questions, n_rounds)``) alike.

        Args:
            raw: Raw columns: measured signals, ``cost.COMPONENT.KIND`` for the signals that add up costs, and
                `answer_column` and `vote_columns`, which are otherwise computed from the answers.

        Raises:
            UnknownSignalError: A column that the policy reads is not there.
        """
        first = int(raw.index[0]) if len(raw.index) else self.start_round
        if first < self.start_round or first + len(raw.index) - 1 > self.max_rounds:
            span = slice(max(0, self.start_round - first), max(0, self.max_rounds + 1 - first))
            raw = raw.taken(lambda values: values[..., span], raw.index[span])
        return raw.derived(self._derived_columns(raw), normalizer_of(self.normalizer))

    @property
    def needs(self) -> frozenset[str]:
        """The inputs that a model or a measurement must provide for this policy, in the terms of `Signal.needs`."""
        return frozenset().union(*(SIGNALS[name].needs for name in self.raw_signals if name in SIGNALS))

    def check_depends(self, running: Mapping[str, Any]) -> None:
        """Raise if the policy was fitted with another model, prompt or embedder.

        Args:
            running: What runs, by the names of `depends`; what only one of them names is not compared.

        Raises:
            ConfigMismatchError: They contradict each other.
        """
        depends = aligned(self.depends, running)
        wrong = {k: (v, running[k]) for k, v in depends.items() if k in running and running[k] != v}
        if wrong:
            changes = "; ".join(f"{key}: fitted with {old!r}, running {new!r}" for key, (old, new) in wrong.items())
            raise ConfigMismatchError(
                f"the policy belongs to another model, prompt or embedder ({changes}): calibrate on a recording of this one"
            )

    def check(self, capabilities: frozenset[str] | None = None) -> None:
        """Raise if the policy cannot decide, before the first call.

        Args:
            capabilities: What the model gives, in the words of `Signal.needs`; None = not known, not checked.

        Raises:
            NotFittedError: A signal needs fitted state that the policy does not hold.
            LogprobsUnavailableError: The policy needs log-probabilities that the model does not give.
            ModelError: The policy needs something else that the model does not give.
        """
        for name in filter(self.unfitted, (*self.signals, *weights_of(self.signals))):
            if name in CALIBRATED:
                raise NotFittedError(
                    f"{name!r} needs a calibrator, and this policy has none: run `suffice calibrate` on a recording of "
                    "tune questions, or use a rule without it (answer_stable)"
                )
            raise NotFittedError(f"{name!r} needs state fitted on tune questions, and this policy has none")
        if capabilities is None:
            return
        for name in self.raw_signals:
            known = SIGNALS.get(name)
            missing = sorted((known.needs if known else frozenset()) - capabilities)
            if missing:
                kind = LogprobsUnavailableError if LOGPROB_NEEDS & set(missing) else ModelError
                advice = next((REMEDIES[need] for need in missing if need in REMEDIES), _ADVICE)
                raise kind(
                    f"the rule reads {name!r}, which needs {', '.join(missing)}; the loop gives: "
                    f"{', '.join(sorted(capabilities)) or 'nothing beyond the text'}. {advice}"
                )

    def decide(self, rounds: Iterable[Round], *, missing: Missing = "error") -> Decision:
        """Return the decision of a session after these rounds: the stop, if one of them stopped it.

        >>> decision = Policy(rule="answer_stable").decide([Round(index=1, answer="Oslo"), Round(index=2, answer="Oslo")])
        >>> decision.stop_round, decision.reason
        (2, 'rule')

        Args:
            rounds: All rounds so far, from `start_round` on; none is looked at after the stop.
            missing: What to do if a round does not bring what the policy reads; see `Session`.

        Raises:
            DataError: The rounds have a gap, or one has a value of another type.
            UnknownSignalError: A round does not bring what the policy reads.
            NotFittedError: The same of a calibrated signal for which the policy has no calibrator.
        """
        session = import_module("suffice.policy.session.session").Session  # which imports this module
        decision: Decision | None = session(self, missing=missing).observe_all(rounds)
        return decision or Decision(stop=False)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values.

        Raises:
            DataError: The answer position is a Python callable, which has no text.
        """
        # So that digests stay as they were.
        normalizer = {} if self.normalizer == DEFAULT_NORMALIZER else {"normalizer": self.normalizer}
        return {
            "format": POLICY_FORMAT,
            "version": POLICY_VERSION,
            **normalizer,
            "name": self.name,
            "rule": str(self.rule),
            "selector": str(self.selector),
            "start_round": self.start_round,
            "max_rounds": self.max_rounds,
            "calibrators": [calibrator.to_dict() for calibrator in self.calibrators],
            "state": {name: fitted.to_dict() for name, fitted in self.state.items()},
            "answer_position": self.answer_position.to_dict(),
            "abstain_patterns": None if self.abstain_patterns is None else list(self.abstain_patterns),
            "depends": dict(self.depends),
            "provenance": dict(self.provenance),
            "certificate": None if self.certificate is None else dict(self.certificate),
        }

    @classmethod
    def from_dict(cls, data: Any) -> Policy:
        """Return the policy that `to_dict` wrote; nothing in it is executed.

        Raises:
            SchemaError: Another format or version, missing or unknown fields, values of the wrong kind.
            RuleSyntaxError: The rule does not parse.
        """
        if not isinstance(data, dict) or data.get("format") != POLICY_FORMAT:
            raise SchemaError(f"this is not a policy: the field 'format' must be {POLICY_FORMAT!r}")
        if data.get("version") != POLICY_VERSION:
            raise SchemaError(
                f"policy version {data.get('version')!r} is not readable; this release reads {POLICY_VERSION}"
            )
        expected = {item.name for item in fields(cls)} | {"format", "version"}
        if not expected - _OPTIONAL_FIELDS <= set(data) <= expected:
            unknown, missing = sorted(set(data) - expected), sorted(expected - _OPTIONAL_FIELDS - set(data))
            raise SchemaError(f"a policy file with unknown fields {unknown} and missing fields {missing}")
        patterns = data["abstain_patterns"]
        patterns = None if patterns is None else tuple(map(str, _field_of(data, "abstain_patterns", list)))
        try:
            return cls(
                rule=parse_rule(_field_of(data, "rule", str)),
                selector=parse_selector(_field_of(data, "selector", str)),
                start_round=_field_of(data, "start_round", int),
                max_rounds=_field_of(data, "max_rounds", int),
                calibrators=tuple(Calibrator.from_dict(item) for item in _field_of(data, "calibrators", list)),
                state={name: state_from_dict(item) for name, item in _field_of(data, "state", dict).items()},
                answer_position=AnswerPosition.from_dict(_field_of(data, "answer_position", dict)),
                abstain_patterns=patterns,
                normalizer=_field_of({"normalizer": DEFAULT_NORMALIZER, **data}, "normalizer", str),
                depends=_field_of(data, "depends", dict),
                provenance=_field_of(data, "provenance", dict),
                certificate=None if data.get("certificate") is None else _field_of(data, "certificate", dict),
                name=_field_of(data, "name", str),
            )
        except (TypeError, AttributeError) as error:
            raise SchemaError(f"a policy file does not read: {error}") from None

    def tables(self) -> list[Table]:
        """Return what decides, as one table."""
        certificate = "none" if self.certificate is None else "void: the policy was changed"
        certificate = "valid" if self.certified else f"suspended: {self.suspended}" if self.suspended else certificate
        facts = {
            "rule": self.rule,
            "selector": self.selector,
            **({} if self.normalizer == DEFAULT_NORMALIZER else {"normalizer": self.normalizer}),
            "rounds": f"{self.start_round} to {self.max_rounds}",
            "signals": ", ".join(self.signals),
            "calibrated": ", ".join(f"{item.output} from {item.signal}" for item in self.calibrators),
            "needs": ", ".join(sorted(self.needs)),
            "depends on": ", ".join(f"{name} = {value}" for name, value in self.depends.items()),
            "certificate": certificate,
        }
        return [facts_table(f"Policy {self.label}", facts)]

    def save(self, path: str | Path) -> None:
        """Write the policy as JSON, whole or not at all.

        Raises:
            DataError: The text of the rule or of the selector would not load as what it is, or the answer position is
                a Python callable, which has no text.
        """
        _check_text(self.rule, parse_rule, "register_rule")
        _check_text(self.selector, parse_selector, "register_selector")
        text = json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        write_file(path, text)

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy file; warn if its certificate is suspended.

        Raises:
            SchemaError: The file is not a policy that this release reads.
            RuleSyntaxError: Its rule does not parse.
        """
        from pathlib import Path

        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=refuse_constant)
        except OSError as error:
            raise DataError(
                f"the policy file {str(path)!r} cannot be read: {error.strerror or error}. The text of a rule is not a "
                "file: write Policy(rule=...)"
            ) from None
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"the policy {str(path)!r} is not JSON: {error}") from None
        policy = cls.from_dict(data)
        if policy.suspended:
            warnings.warn(
                f"the certificate of {str(path)!r} is suspended: {policy.suspended}. Certify the policy again",
                stacklevel=2,
            )
        return policy


def _check_text(value: Rule | Selector, parse: Callable[[str], Rule | Selector], register: str) -> None:
    try:
        if parse(str(value)) == value:
            return
        why = "it is the text of another one"
    except RuleSyntaxError as error:
        why = str(error)
    raise DataError(
        f"the policy cannot be saved, since {str(value)!r} does not read back: {why}. Register the class ({register}), "
        "and let its text be a call of that name"
    )


def _field_of(data: Mapping[str, Any], name: str, kind: type) -> Any:
    value = data[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise SchemaError(f"the field {name!r} of a policy must be of type {kind.__name__}, not {value!r}")
    return cast("Any", value)
