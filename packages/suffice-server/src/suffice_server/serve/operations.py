"""The operations of the service, as a table for its routes and its OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass

OPEN_PATHS = frozenset({"/health", "/ready", "/openapi.json"})
"""Paths that need no token, because they reveal nothing about questions and decide nothing."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation of the service.

    Attributes:
        name: The operation's name; its handler, a method of `Service`, has the same name.
        method: The HTTP method.
        path: The path; parameters are in braces.
        summary: One sentence for the OpenAPI document.
        status: The HTTP status of a success.
        body: The name of the request's schema; None if the request has no body.
        result: The name of the response's schema, or the media type of a text; None if the response has no body.
        refusals: HTTP statuses of errors, in addition to those of every operation.
    """

    name: str
    method: str
    path: str
    summary: str
    status: int = 200
    body: str | None = None
    result: str | None = None
    refusals: tuple[int, ...] = ()


OPERATIONS = (
    Operation(
        name="decide",
        method="POST",
        path="/v1/decide",
        summary="Decide on all rounds of a question so far, which the request contains.",
        body="DecideRequest",
        result="Decided",
        refusals=(404, 408, 409, 413, 422, 429),
    ),
    Operation(
        name="open_session",
        method="POST",
        path="/v1/sessions",
        summary="Begin a question, whose rounds the server keeps.",
        status=201,
        body="SessionRequest",
        result="Session",
        refusals=(404, 408, 409, 413, 422, 429),
    ),
    Operation(
        name="observe",
        method="POST",
        path="/v1/sessions/{id}/rounds",
        summary="Give the next round and decide. A round with its index may be sent again: it counts once.",
        body="Round",
        result="Decided",
        refusals=(404, 408, 409, 413, 422),
    ),
    Operation(
        name="end",
        method="POST",
        path="/v1/sessions/{id}/end",
        summary="End a question, or its audit, from outside, with the best answer so far.",
        body="EndRequest",
        result="Decided",
        refusals=(404, 408, 409, 413, 422),
    ),
    Operation(
        name="session",
        method="GET",
        path="/v1/sessions/{id}",
        summary="Show the state of a session.",
        result="Session",
        refusals=(404, 409),
    ),
    Operation(
        name="close_session",
        method="DELETE",
        path="/v1/sessions/{id}",
        summary="Forget a session; a question that has not stopped ends as cancelled.",
        status=204,
        refusals=(404, 409),
    ),
    Operation(
        name="policies",
        method="GET",
        path="/v1/policies",
        summary="List the policies, with their certificates, and the files that do not load.",
        result="Policies",
    ),
    Operation(
        name="watch",
        method="GET",
        path="/v1/watch/{policy}",
        summary="Watch the log of a policy, by its name or digest: advise to keep it, or what else to do.",
        result="Watched",
        refusals=(404, 422),
    ),
    Operation(
        name="health",
        method="GET",
        path="/health",
        summary="Confirm that the server answers.",
        result="Health",
    ),
    Operation(
        name="ready",
        method="GET",
        path="/ready",
        summary="Report if a policy is loaded and the log can be written (200) or not (503), and the files that do not load.",
        result="Ready",
    ),
    Operation(
        name="metrics",
        method="GET",
        path="/metrics",
        summary="Figures for Prometheus.",
        result="text/plain",
    ),
    Operation(
        name="document",
        method="GET",
        path="/openapi.json",
        summary="This document.",
        result="Document",
    ),
)
"""All operations of the service, in the order of its document."""
