"""Asking Briefline, on servers or embedded: one request, from its submission to its whole report."""

from __future__ import annotations

import time

from ops.bench.peers.peer import Payload
from ops.bench.teams import GIVEN, facts
from ops.embedded import Runtime
from schemas.requests import RequestStatus


async def ask(runtime: Runtime, given: Payload) -> Payload:
    """Ask for one request and return its payload, stamped when the client has the answer; an answer with a gap is an error."""
    constraints = GIVEN if runtime.team is facts else None
    report = await runtime.ask(f"Request {given['id']}", constraints=constraints)
    if report.status is not RequestStatus.COMPLETED:
        raise AssertionError(f"request {report.request_id} ended {report.status}: {report.text}")
    return {**given, "ts": [time.time()]}
