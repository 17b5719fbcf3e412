"""The formats of files for other programs, from the code: JSON Schemas, the columns of recordings, tables for TypeScript.

`python docs/build.py` writes them, and `--check` says where they are not current.
"""

from __future__ import annotations

import json
import keyword
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

import suffice
from suffice.common.json_text import FIELD, number_to_json
from suffice.common.results import UNLESS_EMPTY
from suffice.policy.calibration import Calibrator
from suffice.policy.calibration.calibrator import Constant, PiecewiseLinear, Sigmoid
from suffice.policy.rounds import Cost, Decision, Round
from suffice.policy.rules import NAMED_RULES
from suffice.policy.seen import Seen
from suffice.policy.session import Policy
from suffice.policy.session.audits import Draw
from suffice.policy.session.policy import _MOST_ROUNDS, _OPTIONAL_FIELDS, POLICY_FORMAT, POLICY_VERSION, Missing
from suffice.policy.session.state import _PLAIN_VERSION, STATE_FORMAT, STATE_VERSION, SessionState
from suffice.policy.signals import ABSTAIN_PATTERNS, SIGNALS, Allocation, AnswerPosition, Idf, RationaleScore, ZScore
from suffice.policy.signals.position import _NAMED, _POSITION_KINDS, ANSWER_FORMS
from suffice.recordings.schema import (
    DECISION_COLUMNS,
    EMBEDDING,
    RECORDING_VERSION,
    TEXT_COLUMNS,
    build_table,
    cost_column,
)
from suffice.verdicts.decisions.advice import _READ, FORMAT as VERDICT_FORMAT
from suffice.verdicts.decisions.trial import AdviceKind

Schema = dict[str, Any]

_NUMBER = {"type": ["number", "null"], "description": "null where it is undefined"}
_STORED_NUMBER = {
    "anyOf": [{"type": ["number", "null"]}, {"enum": [number_to_json(sign * math.inf) for sign in (1, -1)]}]
}
_SIMPLE: Mapping[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    Any: {},
}


def _of_type(hint: Any) -> Schema:
    """Return the schema of a type annotation."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _SIMPLE:
        return dict(_SIMPLE[hint])
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, UnionType):
        return {"anyOf": [_of_type(argument) for argument in arguments]}
    if origin is tuple:
        return {"type": "array", "items": _of_type(arguments[0])}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of_type(arguments[1])}
    return {"$ref": f"#/$defs/{hint.__name__}"}


def _of_fields(cls: type, given: Mapping[str, Schema], optional: Sequence[str] = (), **first: Schema) -> Schema:
    """Return the schema of a dataclass: its fields by their types, those in `given` as they are written."""
    hints = get_type_hints(cls, localns={"Calibrator": Calibrator})  # a policy imports it for type checkers alone
    own = {
        item.name: given[item.name] if item.name in given else _of_type(hints[item.name])
        for item in fields(cls)
        if item.init
    }
    properties = {**first, **own, **{name: schema for name, schema in given.items() if name not in own}}
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _tagged(cls: Any, **given: Schema) -> Schema:
    key, kind = cls.tag
    optional = [item.name for item in fields(cls) if item.metadata == UNLESS_EMPTY]
    return _of_fields(cls, given, optional, **{key: {"const": kind}})


def _policy_parts() -> dict[str, Schema]:
    probability: Schema = {"type": "number", "minimum": 0, "maximum": 1}
    probabilities: Schema = {"type": "array", "items": probability, "minItems": 2}
    maps: Schema = {
        "oneOf": [
            _tagged(Constant, value=probability),
            _tagged(PiecewiseLinear, x={"type": "array", "items": {"type": "number"}, "minItems": 2}, y=probabilities),
            _tagged(Sigmoid, slope={"type": "number", "exclusiveMinimum": 0}),
        ]
    }
    by_round: Schema = {"type": "object", "propertyNames": {"pattern": r"^-?\d+$"}}
    count: Schema = {"type": "integer", "minimum": 1}
    hashes: Schema = {"type": "array", "items": {"type": "string"}}
    seen: Schema = {
        "type": "object",
        "properties": dict.fromkeys(Seen().to_dict(), hashes),
        "additionalProperties": False,
    }
    counts: Schema = {"type": "array", "items": count, "minItems": 1}
    return {
        "Calibrator": _of_fields(
            Calibrator,
            {
                "maps": {**by_round, "additionalProperties": maps, "minProperties": 1},
                "rounds_fitted": {**by_round, "additionalProperties": {"type": "integer"}},
            },
        ),
        "FittedState": {
            "oneOf": [
                _tagged(Idf, n=count, df={"type": "object", "additionalProperties": count}, seen=seen),
                _tagged(ZScore, scale={"type": "number", "minimum": 0}),
                _tagged(Allocation, sizes=counts),
                _tagged(
                    RationaleScore,
                    weights={"type": "object", "additionalProperties": {"type": "number"}, "minProperties": 1},
                ),
            ]
        },
        "AnswerPosition": _of_fields(
            AnswerPosition, {"kind": {"enum": [kind for kind in _POSITION_KINDS if kind != "callable"]}}
        ),
    }


def _policy() -> Schema:
    texts: Schema = {"type": "array", "items": {"type": "string"}}
    given: dict[str, Schema] = {
        "rule": {"type": "string", "minLength": 1, "description": "the text of the rule, see docs/reference/rules.md"},
        "selector": {"type": "string", "minLength": 1, "description": "the text of the selector"},
        "start_round": {"enum": [0, 1]},
        "max_rounds": {"type": "integer", "minimum": 1, "maximum": _MOST_ROUNDS},
        "calibrators": {"type": "array", "items": {"$ref": "#/$defs/Calibrator"}},
        "state": {"type": "object", "additionalProperties": {"$ref": "#/$defs/FittedState"}},
        "abstain_patterns": {"anyOf": [texts, {"type": "null"}]},
        "certificate": {"type": ["object", "null"]},
        FIELD: {"type": "string", "description": "SHA-256 of the content, by which an edited file is noticed"},
    }
    first = {"format": {"const": POLICY_FORMAT}, "version": {"const": POLICY_VERSION}}
    schema = _of_fields(Policy, given, (*_OPTIONAL_FIELDS, FIELD), **first)
    position = _policy_parts()["AnswerPosition"]
    del position["properties"]["span"]
    position["properties"]["form"] = {"enum": [*ANSWER_FORMS]}
    position["required"] = ["kind", "text"]
    named = {"properties": {"kind": {"enum": sorted(_NAMED)}}}
    position |= {
        "if": named,
        "then": {"properties": {"text": {"minLength": 1}}},
        "else": {"properties": {"text": {"const": ""}}},
    }
    return {**schema, "$defs": {**_policy_parts(), "AnswerPosition": position}}


def _decision() -> Schema:
    by_default = [item.name for item in fields(Decision) if item.default is not MISSING]
    return _of_fields(Decision, {"signals": {"type": "object", "additionalProperties": _NUMBER}}, by_default)


def _round() -> Schema:
    """Return the schema of a round in the state of a session, where passages are numbers of the list beside the rounds."""
    cost = {
        "type": "object",
        "additionalProperties": False,
        "properties": {item.name: _STORED_NUMBER for item in fields(Cost)},
    }
    token = {"type": "array", "minItems": 4, "maxItems": 4}
    given: dict[str, Schema] = {
        "answer_tokens": {"anyOf": [{"type": "array", "items": token}, {"type": "null"}]},
        "passages": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "pool_scores": {"type": "array", "items": _STORED_NUMBER},
        "signals": {"type": "object", "additionalProperties": _STORED_NUMBER},
        "costs": {"type": "object", "additionalProperties": cost},
        "embedding": {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "null"}]},
        "index": {"type": "integer", "minimum": 0},
    }
    written = Round(index=1).to_dict()
    optional = [item.name for item in fields(Round) if item.name not in written and item.default is not MISSING]
    # Readers ignore fields that a later release adds to rounds and states.
    return {**_of_fields(Round, given, optional), "additionalProperties": True}


def _session() -> Schema:
    policy = _policy()
    parts = policy.pop("$defs")
    own: dict[str, Schema] = {
        "policy": {"$ref": "#/$defs/Policy"},
        "missing": {"enum": list(get_args(Missing))},
        "unproven": {"type": "array", "items": {"type": "string"}},
        "passages": {"type": "array", "items": {"type": "array", "minItems": 4, "maxItems": 4}},
        "rounds": {"type": "array", "items": {"$ref": "#/$defs/Round"}},
        "decision": {"anyOf": [{"$ref": "#/$defs/Decision"}, {"type": "null"}]},
        "shadow": {"type": "array", "items": {"$ref": "#/$defs/Policy"}},
    }
    versions = {"format": {"const": STATE_FORMAT}, "version": {"enum": [_PLAIN_VERSION, STATE_VERSION]}}
    of_audits = ("draw", "ended", "shadow")
    schema = _of_fields(SessionState, own, of_audits, **versions)
    schema |= {
        "additionalProperties": True,
        "if": {"properties": {"version": {"const": STATE_VERSION}}},
        "then": {"required": list(of_audits)},
        "$defs": {**parts, "Policy": policy, "Decision": _decision(), "Round": _round(), "Draw": _of_fields(Draw, {})},
    }
    return schema


def _verdict() -> Schema:
    """Return the schema of what `suffice decide` writes; the figures of its trial are this library's own."""
    policy = _policy()
    parts = policy.pop("$defs")
    texts: Schema = {"type": "array", "items": {"type": "string"}}
    properties: dict[str, Schema] = {
        "format": {"const": VERDICT_FORMAT},
        "version": {"enum": list(_READ)},
        "verdict": {"enum": list(get_args(AdviceKind))},
        "sentence": {"type": "string", "description": "the verdict in words"},
        "n": {"type": "integer", "minimum": 0, "description": "questions that judge"},
        "rounds_text": {"type": "string", "description": "what the logged loop does"},
        "policy": {"anyOf": [{"$ref": "#/$defs/Policy"}, {"type": "null"}]},
        "candidates": {"type": "array", "items": {"type": "object"}},
        "notes": texts,
        "trial": {"type": "object", "description": "the evidence, from which this library computes everything else"},
        FIELD: {"type": "string", "description": "SHA-256 of the content, by which an edited file is noticed"},
    }
    required = [name for name in properties if name != FIELD]
    return {"type": "object", "properties": properties, "required": required, "$defs": {**parts, "Policy": policy}}


def schemas() -> dict[str, Schema]:
    """Return the JSON Schemas by the name of their file, without its ending."""
    kinds = {"policy": ("A policy file", _policy()), "decision": ("A decision after one round", _decision())}
    kinds["session"] = ("The state of a session", _session())
    kinds["verdict"] = ("What suffice decide writes", _verdict())
    return {
        name: {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"urn:suffice:{name}",
            "title": title,
            **schema,
        }
        for name, (title, schema) in kinds.items()
    }


def schema_files() -> dict[str, str]:
    """Return the texts of `schemas/*.json` by file name."""
    return {f"{name}.schema.json": json.dumps(schema, indent=1) + "\n" for name, schema in schemas().items()}


_EXAMPLES = ("p_correct", "answer_stable", "overlap", "spend")
"""Signals that stand for all of them in the Arrow schema on the page."""


def arrow_schema() -> pa.Schema:
    """Return the schema of a recording with its fixed columns, and an example of each kind that repeats."""
    names: list[str] = [*TEXT_COLUMNS, "round", "golds", "passage_ids", EMBEDDING, *_EXAMPLES]
    names += [cost_column("generator", item.name) for item in fields(Cost)]
    names += [*suffice.METRICS, "recorded_at", *DECISION_COLUMNS, "model", "retriever"]
    return build_table([dict.fromkeys(names)]).schema


def arrow_text() -> str:
    """Return the Arrow schema as a block of Markdown: name, type, kind and unit of each column."""
    lines = []
    for field in arrow_schema():
        about = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        lines.append(
            f"{field.name}: {field.type}  kind={about['kind']}" + (f" unit={about['unit']}" if "unit" in about else "")
        )
    return "\n```\n" + "\n".join(lines) + f"\n```\n\nThe version of recordings is {RECORDING_VERSION}.\n\n"


# Tables of the TypeScript package


def _numbered(build: Any, n: int) -> str | None:
    """Return the text of a named rule with `{0}`, `{1}`, ... for its numbers; None if it computes with them."""
    texts = []
    for numbers in ((7.0, 6.0), (9.0, 8.0)):
        text = str(build(*numbers[:n]))
        for place, number in enumerate(numbers[:n]):
            text = re.sub(rf"(?<![\d.]){number:g}(?![\d.])", f"{{{place}}}", text)
        texts.append(text)
    return texts[0] if texts[0] == texts[1] and all(f"{{{place}}}" in texts[0] for place in range(n)) else None


def named_rules() -> dict[str, dict[str, str]]:
    """Return the texts of named rules by name and by how many numbers they are given."""
    return {
        name: {str(n): text for n in entry.arity if (text := _numbered_or_none(entry.build, n)) is not None}
        for name, entry in NAMED_RULES.items()
    }


def _numbered_or_none(build: Any, n: int) -> str | None:
    try:
        return _numbered(build, n)
    except ValueError:  # it takes a number in a range, such as a probability
        return None


def javascript_tables() -> str:
    """Return packages/suffice-js/src/generated.js."""
    signals = {
        name: {
            "low": signal.range[0],
            "high": signal.range[1],
            "clip": signal.clip,
            "first": signal.first_round,
            "last": signal.last_round,
            "component": signal.component,
            "fitted": signal.fitted,
            "computed": signal.compute is not None,
            "needs": sorted(signal.needs),
        }
        for name, signal in SIGNALS.items()
    }
    tables = [
        ("POLICY_FORMAT", "string", POLICY_FORMAT, "The format of a policy file."),
        ("POLICY_VERSION", "number", POLICY_VERSION, "The version of policy files that this release reads."),
        (
            "POSITION_KINDS",
            "Record<string, boolean>",
            {kind: kind in _NAMED for kind in _POSITION_KINDS if kind != "callable"},
            "The kinds of answer position, and whether each has a text.",
        ),
        ("ANSWER_FORMS", "string[]", [*ANSWER_FORMS], "The forms in which answers are read."),
        ("PYTHON_KEYWORDS", "string[]", keyword.kwlist, "Words that are no names."),
        ("DEFAULT_ABSTAIN_PATTERNS", "string[]", list(ABSTAIN_PATTERNS), "The patterns of refusals to answer."),
        (
            "NAMED_RULES",
            "Record<string, Record<string, string>>",
            named_rules(),
            "The texts of named rules, by how many numbers they are given.",
        ),
        ("SIGNALS", _SIGNAL_TYPE, signals, "The signals of the Python library."),
    ]
    parts = ["// Written by docs/build.py from the Python library; edit that.\n"]
    for name, type_, value, doc in tables:
        text = json.dumps(value, indent=1, ensure_ascii=False)
        parts.append(f"/** {doc} @type {{{type_}}} */\nexport const {name} = {text};\n")
    return "\n".join(parts)


_SIGNAL_TYPE = (
    "Record<string, { low: number, high: number, clip: boolean, first: number, last: number | null, component: string, "
    "fitted: boolean, computed: boolean, needs: string[] }>"
)
