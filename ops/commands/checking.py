"""Checking: `briefline check`: can the servers and the artifact store be reached, and are their settings safe. It changes nothing."""

from __future__ import annotations

from ops import rendering
from ops.broker.safety import look_at_broker
from ops.commands.exits import DONE, UNREACHABLE
from ops.commands.printing import print_json
from ops.findings import Finding, Level
from ops.settings import Settings, without_password
from ops.wiring import artifacts_of, board_of, team_of
from schemas.artifacts import artifact_of
from schemas.errors import Unavailable, UnreadableArtifact, UnsafeServer


async def check(settings: Settings, *, as_json: bool) -> int:
    """Look at both servers and the artifact store, and say what to change; `UNREACHABLE` if anything would break a promise."""
    team = team_of(settings)
    found = [("redis", each) for each in await _look_at_board(settings)]
    found += [
        ("rabbitmq", each)
        for each in await look_at_broker(
            settings.rabbitmq_url,
            prefix=settings.topology_prefix,
            agents=settings.agents or team.agents,
            ack_after_seconds=settings.ack_after_seconds,
            call_timeout_seconds=settings.call_timeout_seconds,
        )
    ]
    found.append(("artifacts", await _look_at_artifacts(settings)))
    if as_json:
        print_json([{"server": server, "level": each.level.value, "found": each.what, "what_to_do": each.advice} for server, each in found])
    else:
        rendering.console().print(rendering.findings_table(found))
    return UNREACHABLE if any(each.level is Level.FAIL for _, each in found) else DONE


async def _look_at_board(settings: Settings) -> list[Finding]:
    try:
        return await board_of(settings).check()
    except (Unavailable, UnsafeServer) as error:
        return [Finding(Level.FAIL, str(error), "start Redis, or set BRIEFLINE_REDIS_URL to where it is and who may use it")]


async def _look_at_artifacts(settings: Settings) -> Finding:
    """Ask for an artifact that nobody has: a store that can say so is there. Whether it takes one is seen by putting it."""
    place = without_password(settings.artifacts_url)
    if settings.artifacts_url == "memory:":
        advice = "set BRIEFLINE_ARTIFACTS_URL to a folder or bucket that all workers see"
        return Finding(Level.WARN, "artifacts are kept in the memory of each process, and no other one sees them", advice)
    nobodys = artifact_of(b"an artifact that nobody has put", producer="check").ref
    try:
        await artifacts_of(settings).read(nobodys.id)
    except UnreadableArtifact:
        pass
    except Unavailable as error:
        return Finding(Level.FAIL, str(error), "start it, or set BRIEFLINE_ARTIFACTS_URL to a folder or bucket that all workers see")
    return Finding(Level.OK, f"artifacts are kept in {place}", "")
