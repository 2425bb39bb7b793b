"""Asking Briefline, on servers or embedded: one request, from its submission to its answer, or to its whole report.

The peers' clients get a result and nothing else; `Client.answer` is what a user of ours would call for that.
"""

from __future__ import annotations

import time

from ops.bench.peers.peer import Payload
from ops.bench.teams import GIVEN, facts
from ops.embedded import Runtime
from schemas.requests import RequestStatus


async def ask(runtime: Runtime, given: Payload) -> Payload:
    """Ask for one request and return its payload, stamped when the client has the answer; an answer with a gap is an error.

    `facts` has no peers: there the client reads the whole report, facts included.
    """
    text = f"Request {given['id']}"
    if runtime.team is facts:
        report = await runtime.ask(text, constraints=GIVEN)
        _complete(report.request_id, report.status, report.text)
    else:
        request_id = (await runtime.submit(runtime.team, text)).request_id
        answer = await runtime.answer(request_id)
        _complete(request_id, answer.status, answer.text)
    return {**given, "ts": [time.time()]}


def _complete(request_id: str, status: RequestStatus, text: str) -> None:
    if status is not RequestStatus.COMPLETED:
        raise AssertionError(f"request {request_id} ended {status}: {text}")
