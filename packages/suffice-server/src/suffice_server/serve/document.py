"""The OpenAPI document of the service, and the JSON Schemas in it, which also check every request."""

from __future__ import annotations

import re
from typing import Any, get_args

from suffice._version import __version__
from suffice.policy.rounds import COST_KINDS, WRITTEN_KINDS, Reason
from suffice.verdicts.watches import STATUSES
from suffice_server.serve.guard import Limits
from suffice_server.serve.operations import OPEN_PATHS, OPERATIONS, Operation
from suffice_server.serve.schema import Schema

_END_REASONS = ("exhausted", "failed", "cancelled")


def _object(required: tuple[str, ...] = (), /, *, about: Any = "", **properties: Any) -> Schema:
    described = {"description": about} if about else {}
    needed = {"required": [*required]} if required else {}
    return {"type": "object", **described, "properties": properties, **needed, "additionalProperties": False}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _text_schema(about: str = "", *, null: bool = False, **others: Any) -> Schema:
    return {"type": ["string", "null"] if null else "string", **({"description": about} if about else {}), **others}


_INDEX = {"type": "integer", "minimum": 0, "maximum": 1_000_000}
_UNKNOWN_INDEX = {**_INDEX, "type": ["integer", "null"]}
_NUMBER_SCHEMA = {
    "type": ["number", "null", "string"],
    "pattern": "^-?inf$",
    "description": 'null where undefined; "inf" and "-inf" where infinite',
}
_FLAG = {"type": "boolean"}
_DECISION: dict[str, Any] = {
    "stop": {**_FLAG, "description": "Whether the loop ends here."},
    "stop_round": _UNKNOWN_INDEX,
    "answer_round": {**_UNKNOWN_INDEX, "description": "The round whose answer is returned."},
    "answer": _text_schema("The answer to return.", null=True),
    "reason": {"type": ["string", "null"], "enum": [*get_args(Reason), None]},
    "fired": _text_schema("The text of the rule, or of its member, that held.", null=True),
    "signals": {
        "type": "object",
        "description": "The signals that the policy read at this round; null if undefined.",
        "additionalProperties": {"type": ["number", "null"]},
    },
}
_QUESTION: dict[str, Any] = {
    "policy": _text_schema(
        "The name of a policy, or its digest, which a later change of the file does not move.", minLength=1
    ),
    "question": _text_schema("Its text, for the log.", minLength=1),
    "question_id": _text_schema("Names the question in the log; an audit draws by it.", pattern=r"\S", maxLength=1000),
    "depends": {
        "type": "object",
        "description": "The configuration of the loop (model, prompt_id, ...); refused if the policy was fitted with another one.",
    },
    "missing": {
        "type": "string",
        "enum": ["error", "ignore"],
        "description": "The reaction to a round without a signal that the policy reads; by default it is refused.",
    },
}

_EVIDENCE: dict[str, Schema] = {
    "Number": _NUMBER_SCHEMA,
    "Cost": _object(
        about="The costs of one component.", **dict.fromkeys((*COST_KINDS, *WRITTEN_KINDS), _ref("Number"))
    ),
    "Token": {
        "type": "array",
        "description": "Text, log-probability in nats, alternatives with theirs, and the bytes in base64 or null.",
        "prefixItems": [
            {"type": "string"},
            _ref("Number"),
            {
                "type": "array",
                "items": {
                    "type": "array",
                    "prefixItems": [{"type": "string"}, _ref("Number")],
                    "minItems": 2,
                    "maxItems": 2,
                },
            },
            {"type": ["string", "null"]},
        ],
        "minItems": 4,
        "maxItems": 4,
    },
    "Passage": {
        "type": "array",
        "description": "Id, title, text and score of a piece of evidence.",
        "prefixItems": [{"type": "string"}, {"type": "string"}, {"type": "string"}, _ref("Number")],
        "minItems": 4,
        "maxItems": 4,
    },
}
"""Costs, tokens and passages, of which rounds consist."""

_ROUND: Schema = _object(
    about="One round: its fields, or `response`, from which the other fields are read. Given fields take the "
    "place of those of the response.",
    response={
        "type": ["object", "string"],
        "description": "What the model's endpoint returned: a chat completion, a completion or a response of "
        "OpenAI's interface, a message of Anthropic's, or a text. The policy says where the answer is in it.",
    },
    seconds={"type": ["number", "null"], "description": "Duration of the call; belongs to `response`."},
    index={**_INDEX, "description": "The round; by default the next one."},
    answer=_text_schema("The answer or draft; null if there is none.", null=True),
    text=_text_schema("The generated text."),
    answer_tokens={"type": ["array", "null"], "items": _ref("Token")},
    passages={
        "type": "array",
        "items": _ref("Passage"),
        "description": "All evidence so far, the newest last.",
    },
    pool_scores={"type": "array", "items": _ref("Number")},
    signals={
        "type": "object",
        "description": "Signals that you measured, by name; null where undefined.",
        "additionalProperties": _ref("Number"),
    },
    costs={"type": "object", "description": "By component.", "additionalProperties": _ref("Cost")},
    finish_reason=_text_schema(null=True),
    reply_model=_text_schema("The model that the endpoint names in its reply.", null=True),
    system_fingerprint=_text_schema("The endpoint's own identifier of its configuration.", null=True),
    feedback=_text_schema("A critic's reply to the draft.", null=True),
    thinking=_text_schema("What was thought since the checkpoint before, in a chain of thought.", null=True),
    thinking_ids={"type": ["array", "null"], "items": {"type": "integer"}},
    embedding={"type": ["array", "null"], "items": {"type": "number"}},
)

_QUESTIONS: dict[str, Schema] = {
    "SessionRequest": _object(("policy",), **_QUESTION),
    "EndRequest": _object(("reason",), reason={"type": "string", "enum": [*_END_REASONS]}),
    "Decision": _object(tuple(_DECISION), **_DECISION),
    "Decided": _object(
        (*_DECISION, "policy", "audit", "session"),
        about="The decision. It does not change after the stop.",
        **_DECISION,
        policy=_text_schema("The digest of the policy that decided."),
        audit={
            **_FLAG,
            "description": "Whether this question was drawn for the audit and rounds of it remain: return the answer, "
            "then run the further rounds, and send them to the session.",
        },
        session=_text_schema("The session for further rounds; null if there is none.", null=True),
    ),
    "Session": _object(
        ("id", "policy", "question_id", "next_round", "decision", "audit", "expires_in"),
        id=_text_schema(),
        policy=_text_schema("The digest of the policy."),
        question_id=_text_schema(null=True),
        next_round={**_INDEX, "description": "The index of the round that is expected."},
        decision={"anyOf": [_ref("Decision"), {"type": "null"}]},
        audit={**_FLAG, "description": "Whether rounds of an audit remain."},
        expires_in={"type": "number", "description": "Seconds until the server forgets it, if nothing is asked."},
    ),
}
"""Sessions and decisions."""

_SERVER: dict[str, Schema] = {
    "Policy": _object(
        ("name", "digest", "rule", "selector", "start_round", "max_rounds", "certificate", "note"),
        name=_text_schema(),
        digest=_text_schema(),
        rule=_text_schema(),
        selector=_text_schema(),
        start_round=_INDEX,
        max_rounds=_INDEX,
        certificate={"type": "string", "description": "none, valid, void or suspended."},
        note=_text_schema("The warning raised when the file was loaded.", null=True),
    ),
    "Policies": _object(
        ("policies", "broken"),
        policies={"type": "array", "items": _ref("Policy")},
        broken={"type": "object", "additionalProperties": {"type": "string"}},
    ),
    "Watched": _object(
        (
            "policy",
            "status",
            "sentence",
            "requests",
            "audited",
            "metric",
            "loss",
            "bound",
            "e_value",
            "alarm",
            "risk",
            "seconds_ago",
        ),
        policy=_text_schema("The digest of the policy."),
        status={"type": "string", "enum": [*STATUSES]},
        sentence=_text_schema("What to do, and why."),
        requests={"type": "integer", "minimum": 0},
        audited={"type": "integer", "minimum": 0, "description": "Requests whose loss is known."},
        metric=_text_schema("What is lost."),
        loss=_object(
            ("mean", "low", "high"),
            about="The mean loss since deployment, with an interval that holds at every look.",
            **{name: {"type": ["number", "null"]} for name in ("mean", "low", "high")},
        ),
        bound={"type": ["number", "null"], "description": "The largest accepted mean loss, from the certificate."},
        e_value={"type": ["number", "null"], "description": "Evidence that the loss has passed the bound."},
        alarm={**_FLAG, "description": "Whether the alarm has rung."},
        risk={"type": "number", "description": "The risk that it ever rings falsely: this policy's share of 5 %."},
        seconds_ago={"type": "number", "description": "Age of this result."},
    ),
    "Health": _object(("status",), status={"type": "string", "enum": ["ok"]}),
    "Ready": _object(
        ("ready", "policies", "broken", "fault"),
        ready=_FLAG,
        policies={"type": "integer", "minimum": 0},
        broken={"type": "array", "items": {"type": "string"}, "description": "Names of files that do not load."},
        fault=_text_schema("Why the log could not be written within the last second or two.", null=True),
    ),
    "Document": {"type": "object"},
    "Error": _object(
        ("error",),
        error=_object(
            ("type", "message"), type=_text_schema("The name of the error."), message=_text_schema("What to do.")
        ),
    ),
}
"""Policies, watches and the state of the server."""


def schemas_for(limits: Limits) -> dict[str, Schema]:
    """Return all schemas by name, with the limits of a server in them."""
    rounds = {"type": "array", "items": _ref("Round"), "maxItems": limits.rounds}
    request = _object(("policy", "rounds"), rounds=rounds, **_QUESTION)
    return {**_EVIDENCE, "Round": _ROUND, "DecideRequest": request, **_QUESTIONS, **_SERVER}


_REFUSALS = {
    401: "The token is missing or another one.",
    403: "The host or the origin is not allowed.",
    404: "There is no such policy or session.",
    408: "The body took too long.",
    409: "The request contradicts the session, or another request was first.",
    413: "The body is too large.",
    422: "The request cannot be read or decided; nothing changed.",
    429: "Too many sessions are open.",
    500: "The server failed.",
    503: "Too many requests are in flight, or the log cannot be written.",
}


def openapi(limits: Limits, *, token: bool) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of a server.

    Args:
        limits: The server's limits.
        token: True if requests need a token.
    """
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation_object(operation, token=token)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Suffice", "version": __version__, "summary": "When to stop, and which answer to return."},
        "paths": paths,
        "components": {"schemas": schemas_for(limits)},
    }
    if token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return document


def _operation_object(operation: Operation, *, token: bool) -> dict[str, Any]:
    always = (403, 500, 503) if operation.path in OPEN_PATHS or not token else (401, 403, 500, 503)
    error = {"application/json": {"schema": _ref("Error")}}
    responses: dict[str, Any] = {
        str(status): {"description": _REFUSALS[status], "content": error}
        for status in sorted({*always, *operation.refusals})
    }
    success: dict[str, Any] = {"description": "Done."}
    if operation.result is not None:
        is_text = "/" in operation.result
        media = operation.result if is_text else "application/json"
        success["content"] = {media: {"schema": {"type": "string"} if is_text else _ref(operation.result)}}
    responses[str(operation.status)] = success
    if operation.name == "ready":
        responses["503"] = {**success, "description": "No policy, or a log that cannot be written."}
    described: dict[str, Any] = {"operationId": operation.name, "summary": operation.summary, "responses": responses}
    parameters = re.findall(r"\{(\w+)\}", operation.path)
    if parameters:
        text = {"type": "string"}
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": text} for name in parameters
        ]
    if operation.body is not None:
        content = {"application/json": {"schema": _ref(operation.body)}}
        described["requestBody"] = {"required": True, "content": content}
    if token and operation.path not in OPEN_PATHS:
        described["security"] = [{"token": []}]
    return described
