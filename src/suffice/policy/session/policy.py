"""A policy: everything that a deployment needs, in one JSON file that is read without executing code."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, cast

from suffice.common.files import write_file
from suffice.common.identities import aligned
from suffice.common.json_text import refuse_constant, sealed_text, unsealed, was_edited
from suffice.common.results import Displayed
from suffice.common.tables import Table, facts_table
from suffice.errors import (
    ConfigMismatchError,
    DataError,
    LogprobsUnavailableError,
    ModelError,
    NotFittedError,
    RuleSyntaxError,
    SchemaError,
)
from suffice.policy.normalizers import DEFAULT_NORMALIZER, normalizer_of
from suffice.policy.rounds import Decision, Round, Rounds
from suffice.policy.rules import Never, Rule, Selector, parse_rule, parse_selector
from suffice.policy.rules.parse import Spelled
from suffice.policy.rules.selectors import CALIBRATED, Best, Last
from suffice.policy.session.derived import Derivation
from suffice.policy.signals import CUMULATED, LOGPROB_NEEDS, REMEDIES, SIGNALS, AnswerPosition, cost_columns
from suffice.policy.signals.state import FittedState, state_from_dict
from suffice.policy.signals.votes import VOTES, weights_of

if TYPE_CHECKING:
    from pathlib import Path

    from suffice.policy.calibration import Calibrator


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
    """A rule for stopping and a selector of the answer, with everything that the decision depends on.

    >>> Policy(rule="tasr", selector="max_p_correct").signals
    ('answer_stable', 'p_correct')

    Attributes:
        rule: The rule, or its text. It stops the loop at the first round at which it fires.
        selector: The selector, or its text. It chooses among the answers of the rounds up to the stop. `best` stands
            for ``max_SIGNAL`` of the only signal of quality that the rule reads or a calibrator computes.
        start_round: The first round of the loop and of replays: 0 or 1, or a later one in an escalation that skips the
            first models.
        max_rounds: The highest round R, 1 to 100,000: the loop never goes past it.
        calibrators: Fitted maps, one for each calibrated signal that is used.
        state: Fitted state, by signal, of signals that need statistics over many questions.
        answer_position: The position of the answer in the generated text.
        abstain_patterns: Patterns of refusals to answer; None = the default list.
        normalizer: The name of the normalizer that compares answers for votes, `answer_stable` and `majority`, in
            `NORMALIZERS`.
        depends: The configuration to which the fitted state belongs, by name (model, prompt, retriever).
        provenance: The origin of the policy: data hash, versions, figures of the fit.
        certificate: The certificate from `suffice certify` (see `suffice.verdicts.certificates.Certificate`); None
            without one. A certificate is valid only for the policy whose `digest` it names; see `certified` and
            `suspended`.
        name: The name of the policy in reports; by default the text of the rule.
    """

    rule: Spelled[Rule] = Spelled[Rule](Rule, parse_rule, Never())  # noqa: RUF009
    selector: Spelled[Selector] = Spelled[Selector](Selector, parse_selector, Last())  # noqa: RUF009
    start_round: int = 1
    max_rounds: int = 5
    calibrators: tuple[Calibrator, ...] = ()
    state: Mapping[str, FittedState] = field(default_factory=dict)
    answer_position: AnswerPosition = AnswerPosition()  # noqa: RUF009 - it is frozen
    abstain_patterns: tuple[str, ...] | None = None
    normalizer: str = DEFAULT_NORMALIZER
    depends: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    certificate: Mapping[str, Any] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        most = self.max_rounds
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= _MOST_ROUNDS:
            raise DataError(f"max_rounds must be a whole number from 1 to {_MOST_ROUNDS:,}, not {most!r:.40}")
        first = self.start_round
        if not isinstance(first, int) or isinstance(first, bool) or not 0 <= first <= most:
            raise DataError(
                f"start_round must be 0 (the model alone), 1, or a later round up to max_rounds ({most}), not {first!r:.40}"
            )
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

    @cached_property  # cached, since every logged stop contains it
    def digest(self) -> str:
        """Short hash of all fields that affect decisions: all but the name, the provenance and the certificate.

        Raises:
            DataError: The answer position is a Python callable, which has no text.
        """
        deciding = {key: value for key, value in self.to_dict().items() if key not in _NOT_DECIDING}
        return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def certified(self) -> bool:
        """True if the certificate is for exactly this policy; False if the policy was changed after certification.

        It is also False without a certificate, and if the certificate is suspended (see `suspended_because`).
        """
        given = self.certificate is not None and self.certificate.get("policy_digest") == self.digest
        return given and not self.suspended

    @property
    def suspended(self) -> str:
        """The reason and time of the certificate's suspension; empty without a certificate, or if it is not suspended."""
        return "" if self.certificate is None else str(self.certificate.get("suspended") or "")

    def suspended_because(self, reason: str) -> Policy:
        """Return the policy with its certificate suspended; its digest stays the same.

        Args:
            reason: The reason and the time of the suspension, in the words of `suffice watch`.

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
    def compares_answers(self) -> bool:
        """True if the policy reads the answers of all rounds: to choose among them, or for a rule that counts votes."""
        return not isinstance(self.selector, Last) or any(name in VOTES for name in self.signals)

    @cached_property
    def reads_every_answer(self) -> bool:
        """True if the policy may read the answer or cost of any earlier round.

        A policy may do so if its selector chooses among several answers, or if one of its signals adds up costs since the
        start round or looks back to round 0. For such a policy, round 0 must be answered even if a gate passes it by.
        """
        if self.compares_answers or any(name in CUMULATED for name in self.signals):
            return True
        known = [SIGNALS[name] for name in self.raw_signals if name in SIGNALS]
        return any(signal.lookback >= max(signal.first_round, 1) for signal in known)

    @cached_property
    def raw_columns(self) -> tuple[str, ...]:
        """The names of `raw_signals`, and of the cost columns that `calls`, `tokens` and `seconds` add up."""
        summed = [name for name in self.signals if name in CUMULATED]
        return (*self.raw_signals, *dict.fromkeys(column for name in summed for column in cost_columns(name)))

    def view(self, raw: Rounds) -> Rounds:
        """Return the columns that the rule reads: rounds from `start_round` to `max_rounds`, with fitted signals.

        Only this method derives signals, both live (shape ``(n_rounds,)``) and in replays (``(n_questions,
        n_rounds)``).

        Args:
            raw: Raw columns: measured signals, and ``cost.COMPONENT.KIND`` for the signals that add up costs.
                `answer_column` and `vote_columns` may be among them; if they are missing, they are computed from the answers.

        Raises:
            UnknownSignalError: A column that the policy reads is missing.
        """
        first = int(raw.index[0]) if len(raw.index) else self.start_round
        if first < self.start_round or first + len(raw.index) - 1 > self.max_rounds:
            span = slice(max(0, self.start_round - first), max(0, self.max_rounds + 1 - first))
            raw = raw.taken(lambda values: values[..., span], raw.index[span])
        return raw.derived({name: self._column(name, raw) for name in self.signals}, normalizer_of(self.normalizer))

    @property
    def needs(self) -> frozenset[str]:
        """The inputs that a model or a measurement must provide for this policy, as named in `Signal.needs`."""
        return frozenset().union(*(SIGNALS[name].needs for name in self.raw_signals if name in SIGNALS))

    def check_depends(self, running: Mapping[str, Any]) -> None:
        """Raise if the policy was fitted with a different model, prompt or embedder than the present one.

        Args:
            running: The present configuration, by the names of `depends`. Names that only one of the two configurations
                has are not compared.

        Raises:
            ConfigMismatchError: The configurations contradict each other.
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
            capabilities: The capabilities of the model, as named in `Signal.needs`; None = unknown, so not checked.

        Raises:
            NotFittedError: A signal needs fitted state that the policy does not hold.
            LogprobsUnavailableError: The policy needs log-probabilities that the model does not give.
            ModelError: The policy needs a capability, other than log-probabilities, that the model lacks.
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
        """Return the decision that a session would have after these rounds.

        The decision is final if the policy stops at one of the rounds.

        >>> decision = Policy(rule="answer_stable").decide([Round(index=1, answer="Oslo"), Round(index=2, answer="Oslo")])
        >>> decision.stop_round, decision.reason
        (2, 'rule')

        Args:
            rounds: All rounds so far, from `start_round` on; rounds after the stop are ignored.
            missing: The reaction to a round that lacks a signal which the policy reads; see `Session`.

        Raises:
            DataError: The rounds have a gap, or a value has the wrong type.
            UnknownSignalError: A round lacks a signal that the policy reads.
            NotFittedError: A round lacks a calibrated signal, and the policy has no calibrator for it.
        """
        session = import_module("suffice.policy.session.session").Session  # which imports this module
        decision: Decision | None = session(self, missing=missing).observe_all(rounds)
        return decision or Decision(stop=False)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values.

        Raises:
            DataError: The answer position is a Python callable, which has no text.
        """
        # The default is left out, so that digests stay as they were before this field existed.
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
        """Return the policy from the values of `to_dict` or the JSON of a policy file; nothing in it is executed.

        Raises:
            SchemaError: The values are not a policy of a version that this release reads, fields are missing or unknown,
                or values have the wrong type.
            RuleSyntaxError: The rule does not parse.
        """
        from suffice.policy.calibration import Calibrator

        data = unsealed(data)
        if not isinstance(data, dict) or data.get("format") != POLICY_FORMAT:
            raise SchemaError(f"this is not a policy: the field 'format' must be {POLICY_FORMAT!r}")
        if data.get("version") != POLICY_VERSION or isinstance(data["version"], bool):
            raise SchemaError(
                f"policy version {data.get('version')!r} is not readable; this release reads {POLICY_VERSION}"
            )
        expected = {item.name for item in fields(cls)} | {"format", "version"}
        if not expected - _OPTIONAL_FIELDS <= set(data) <= expected:
            unknown, missing = sorted(set(data) - expected), sorted(expected - _OPTIONAL_FIELDS - set(data))
            raise SchemaError(f"a policy file with unknown fields {unknown} and missing fields {missing}")
        patterns = data["abstain_patterns"]
        patterns = None if patterns is None else tuple(_texts_of(data, "abstain_patterns"))
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
        """Return the policy's settings as one table."""
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
            DataError: The text of the rule or of the selector does not parse to the same object, or the answer position
                is a Python callable, which has no text.
        """
        _check_text(self.rule, parse_rule, "register_rule")
        _check_text(self.selector, parse_selector, "register_selector")
        write_file(path, sealed_text(self.to_dict()))

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy file.

        If the file was edited after it was written, this warns and suspends the certificate. It also warns if the
        certificate is already suspended.

        Raises:
            SchemaError: The file is not a policy that this release reads.
            RuleSyntaxError: The rule in the file does not parse.
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
        if was_edited(data):
            warnings.warn(
                f"{str(path)!r} was edited after it was written: save it again if that is meant", stacklevel=2
            )
            policy = policy.suspended_because("its file was edited") if policy.certified else policy
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


def _texts_of(data: Mapping[str, Any], name: str) -> list[str]:
    values = _field_of(data, name, list)
    if not all(isinstance(value, str) for value in values):
        raise SchemaError(f"the field {name!r} of a policy must be a list of texts, not {values!r:.80}")
    return cast("list[str]", values)
