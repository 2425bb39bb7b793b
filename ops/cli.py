"""The command line: names, options and help. What a command does stands in `ops.commands`.

That, the settings and the event loop are imported when a command is called, so that `briefline --help` waits for no library
but the one that writes it: neither for models' and servers' nor for those of our own words.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine
from enum import StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ops.commands.exits import EXIT_CODES, INTERRUPTED, exit_of_error
from schemas.errors import BrieflineError, Refused, Unavailable
from schemas.states import RequestStatus

if TYPE_CHECKING:
    from ops.settings import Settings

_CODES = "  ".join(f"{code}: {meaning}." for code, meaning in EXIT_CODES.items())

app = typer.Typer(
    name="briefline",
    help="Teams of AI agents over RabbitMQ and Redis. Settings come from BRIEFLINE_ variables and .env.",
    epilog=f"Exit codes: {_CODES}",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
dead_app = typer.Typer(help="Dead letters: steps that were given up, kept for a person.", no_args_is_help=True)
schemas_app = typer.Typer(help="The contracts as JSON Schema and AsyncAPI.", no_args_is_help=True)
desk_app = typer.Typer(help="The desk: what waits for a person, and what they decide.", no_args_is_help=True)
app.add_typer(dead_app, name="dead")
app.add_typer(desk_app, name="desk")
app.add_typer(schemas_app, name="schemas")


class Backend(StrEnum):
    """Where the demo runs."""

    EMBEDDED = "embedded"
    SERVERS = "servers"


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, and nothing else there.")]
TeamOption = Annotated[str | None, typer.Option("--team", help="A shipped team, or package.module:attribute.")]
RequestArgument = Annotated[str, typer.Argument(metavar="REQUEST", help="The id that submit printed.")]
ItemArgument = Annotated[str, typer.Argument(metavar="ITEM", help="The item, as the desk lists it: step:…, action:…, field:…, said:….")]
StepArgument = Annotated[str, typer.Argument(metavar="STEP", help="The step's id.")]


@app.command()
def demo(
    scenario: Annotated[
        str, typer.Option(help="happy; or one in which something goes wrong: product-stuck, slow-product (bitmall), hotels-failing (trip).")
    ] = "",
    backend: Annotated[Backend, typer.Option(help="In this process, or on RabbitMQ and Redis.")] = Backend.EMBEDDED,
    team: Annotated[str, typer.Option(help="Which shipped team.")] = "bitmall",
    as_json: JsonOption = False,
) -> None:
    """Run a shipped team on its demo request: no server, no key, seconds."""
    from ops.commands.demo import demo as run

    if scenario:
        os.environ["BRIEFLINE_SCENARIO"] = scenario  # it reaches a worker process by this setting
    _run(run(_settings(quiet=True), team_name=team, servers=backend is Backend.SERVERS, as_json=as_json))


@app.command()
def orchestrator(
    reducers: Annotated[
        list[str] | None, typer.Option("--reducers", metavar="TEAM", help="A team whose own reducers it is to have; may be given again.")
    ] = None,
) -> None:
    """Run an orchestrator until it is told to end. Several may run."""
    from ops.commands.serving import serve_orchestrator

    _run(serve_orchestrator(_settings(), reducers or ()))


@app.command()
def worker(
    team: TeamOption = None,
    agents: Annotated[str | None, typer.Option(help="The agents to serve, separated by commas; all of the team if left out.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, max=1000, help="Steps at a time, per agent (8 unless set).")] = None,
) -> None:
    """Run a worker until it is told to end: then it finishes what runs within the grace time, and hands back the rest."""
    from ops.commands.serving import serve_worker

    _run(serve_worker(_settings(team=team, agents=agents, concurrency=concurrency)))


@app.command()
def submit(
    text: Annotated[str, typer.Argument(help="The request, in the user's words; - reads standard input.")],
    team: TeamOption = None,
    constraint: Annotated[list[str] | None, typer.Option(help="name=value; wins over what the words say. Repeatable.")] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key: the same key and content is the same request.")] = None,
    deadline: Annotated[float | None, typer.Option(help="Seconds until the request ends as it is; the team's if left out.")] = None,
    session: Annotated[str | None, typer.Option(help="The conversation it belongs to: one request after the other.")] = None,
    session_wait: Annotated[bool, typer.Option("--session-wait", help="Wait until the session's last request is over.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Show the plan until it is over, then the answer.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Submit a request and print its id."""
    from ops.commands.requests import submit as run

    given = _pairs(constraint or [])
    words = sys.stdin.buffer.read() if text == "-" else text
    settings = _settings(team=team, quiet=True)
    work = run(
        settings,
        _text(words),
        constraints=given,
        key=key,
        deadline_seconds=deadline,
        session=session,
        session_wait=session_wait,
        wait=wait,
        as_json=as_json,
    )
    _run(work)


@app.command("list")
def list_(
    status: Annotated[RequestStatus | None, typer.Option(case_sensitive=False, help="Only requests with this status.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many to look at, newest first.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List recent requests with status, team and age."""
    from ops.commands.requests import list_requests

    _run(list_requests(_settings(quiet=True), status=status, limit=limit, as_json=as_json))


@app.command()
def show(
    request: RequestArgument,
    brief: Annotated[str | None, typer.Option(metavar="STEP", help="Print exactly what this step's model was given.")] = None,
    crossings: Annotated[bool, typer.Option("--crossings", help="Each decision of the gate, with its checks.")] = False,
    basis: Annotated[str | None, typer.Option(metavar="NAME", help="What a field, fact or judgement rests on, all the way back.")] = None,
    touched: Annotated[str | None, typer.Option(metavar="NAME", help="What rests on it, or on an artifact (ID#PLACE).")] = None,
    at: Annotated[int | None, typer.Option(metavar="N", help="As it was after this event of its timeline.")] = None,
    private: Annotated[
        str | None, typer.Option(metavar="STEP", help="What was said and called in this step's last attempt; who reads it is noted.")
    ] = None,
    attempt: Annotated[int | None, typer.Option(min=1, metavar="N", help="With --private: of this attempt.")] = None,
    team: TeamOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a request: steps, facts with sources, briefs, timeline, answer."""
    from ops.commands.requests import show as run
    from ops.commands.requests import show_private, show_trails

    if attempt is not None and private is None:
        _fail(Refused("an attempt is named with --private STEP", path="attempt"))
    if private is not None:
        _run(show_private(_settings(quiet=True), request, private, attempt=attempt, as_json=as_json))
    if basis is not None or touched is not None:
        _run(show_trails(_settings(quiet=True), request, basis=basis, touched=touched, at=at, as_json=as_json))
    _run(run(_settings(quiet=True), request, brief=brief, crossings=crossings, at=at, team_name=team, as_json=as_json))


@app.command()
def audit(request: RequestArgument, team: TeamOption = None, as_json: JsonOption = False) -> None:
    """Check a request: declared evidence arrived, nothing undeclared did, and no two sections state different values."""
    from ops.commands.boundary import audit as run

    _run(run(_settings(quiet=True), request, team_name=team, as_json=as_json))


@app.command()
def metrics(
    requests: Annotated[list[str] | None, typer.Argument(metavar="[REQUEST]...", help="Of these; the recent ones if left out.")] = None,
    team: Annotated[str | None, typer.Option(help="Only requests of the team of this name.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many recent ones to look at, newest first.")] = 50,
    input_price: Annotated[float | None, typer.Option(min=0, help="Of a million tokens in; without prices there is no cost.")] = None,
    output_price: Annotated[float | None, typer.Option(min=0, help="Of a million tokens out.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the boundary: what crossed and was used, asked for again, stale, in conflict; tokens, cost, time, recovery."""
    from ops.commands.boundary import metrics as run
    from ops.metrics import Price

    if (input_price is None) != (output_price is None):
        _fail(Refused("a cost needs both prices: --input-price and --output-price", path="price"))
    price = None if input_price is None or output_price is None else Price(input_price, output_price)
    _run(run(_settings(quiet=True), requests or [], team=team, limit=limit, price=price, as_json=as_json))


@app.command()
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A request, or REQUEST@N: as it was after its event N.")],
    b: Annotated[str, typer.Argument(metavar="B", help="What to compare it with, likewise.")],
    as_json: JsonOption = False,
) -> None:
    """Say what differs between two requests: constraints, steps, facts with sources, versions, answer."""
    from ops.commands.travel import diff as run

    _run(run(_settings(quiet=True), a, b, as_json=as_json))


@app.command()
def fork(
    request: RequestArgument,
    at: Annotated[str, typer.Option(metavar="STEP", help="This step and everything below it run anew.")],
    constraint: Annotated[list[str] | None, typer.Option(help="name=value, in place of the request's own. Repeatable.")] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key: the same key and fork is the same request.")] = None,
    deadline: Annotated[float | None, typer.Option(help="Seconds until the fork ends as it is; the request's if left out.")] = None,
    team: TeamOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Show the plan until it is over, then the answer.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Open a new request that takes up another one from a step on, and reuses what came before."""
    from ops.commands.travel import fork as run

    given = _pairs(constraint or [])
    settings = _settings(quiet=True)
    _run(run(settings, request, at=at, constraints=given, key=key, deadline_seconds=deadline, team_name=team, wait=wait, as_json=as_json))


@app.command()
def cancel(
    request: RequestArgument,
    reason: Annotated[str, typer.Option(help="Kept as an event.")] = "",
    as_json: JsonOption = False,
) -> None:
    """End a request now, for good, with what is finished."""
    from ops.commands.requests import cancel as run

    _run(run(_settings(quiet=True), request, reason=reason, as_json=as_json))


@app.command()
def check(as_json: JsonOption = False) -> None:
    """Say whether the servers can be reached and are set safely, and what to change."""
    from ops.commands.checking import check as run

    _run(run(_settings(quiet=True), as_json=as_json))


@dead_app.command("list")
def dead_list(
    request: Annotated[str | None, typer.Option(help="Only of this request.")] = None,
    step: Annotated[str | None, typer.Option(help="Only of this step.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only of this agent.")] = None,
    reason: Annotated[str | None, typer.Option(help="Only with this failure code.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many to show, newest first.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """List dead letters with reason, attempts, first and last error, age."""
    from ops.commands.dead import list_dead

    settings = _settings(quiet=True)
    _run(list_dead(settings, request=request, step=step, agent=agent, reason=reason, limit=limit, as_json=as_json))


@dead_app.command("show")
def dead_show(request: RequestArgument, step: StepArgument, as_json: JsonOption = False) -> None:
    """Show one dead letter whole."""
    from ops.commands.dead import show_dead

    _run(show_dead(_settings(quiet=True), request, step, as_json=as_json))


@dead_app.command("replay")
def dead_replay(
    request: Annotated[str | None, typer.Argument(metavar="[REQUEST]", help="Only of this request.")] = None,
    step: Annotated[str | None, typer.Argument(metavar="[STEP]", help="Only this step.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only of this agent.")] = None,
    reason: Annotated[str | None, typer.Option(help="Only with this failure code.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All that fit; needed where nothing else says which.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would run again, and what changed since.")] = False,
    team: TeamOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reopen failed steps: they and what they had stopped run again, and nothing else.

    A dry run compares the failed attempt with the code and settings of this process.
    """
    from ops.commands.dead import replay_dead

    which = {"request": request, "step": step, "agent": agent, "reason": reason}
    settings = _settings(quiet=True)
    _run(replay_dead(settings, **which, every=every, dry_run=dry_run, team_name=team, as_json=as_json))


@dead_app.command("drop")
def dead_drop(
    request: RequestArgument,
    step: StepArgument,
    reason: Annotated[str, typer.Option(help="Why; kept as an event.")],
    as_json: JsonOption = False,
) -> None:
    """Take a dead letter out of the list, for a reason."""
    from ops.commands.dead import drop_dead

    _run(drop_dead(_settings(quiet=True), request, step, reason=reason, as_json=as_json))


@app.command()
def retract(
    request: RequestArgument,
    name: Annotated[str, typer.Argument(metavar="STEP.KEY", help="What a step said, as step.key.")],
    reason: Annotated[str, typer.Option(help="Why; it stands in the new answer.")],
    recheck: Annotated[bool, typer.Option("--recheck", help="Let the step itself run again as well.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Withdraw what a step said: what rests on it, and only that, runs again, and the answer is made anew."""
    from ops.commands.desk import retract as run

    _run(run(_settings(quiet=True), request, name, reason=reason, recheck=recheck, as_json=as_json))


@app.command()
def rules(
    request: RequestArgument,
    change: Annotated[list[str], typer.Option("--set", metavar="NAME=VALUE", help="A boundary rule; may be given again.")],
    as_json: JsonOption = False,
) -> None:
    """Let other boundary rules hold for a request that runs."""
    from ops.commands.desk import change_rules as run

    _run(run(_settings(quiet=True), request, change, as_json=as_json))


@desk_app.command("list")
def desk_list(
    request: Annotated[str | None, typer.Option(help="Only of this request.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many to show.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """List what waits for a person: steps that ask first, requested actions, contested fields, what was said and no longer holds."""
    from ops.commands.desk import list_desk as run

    _run(run(_settings(quiet=True), request=request, limit=limit, as_json=as_json))


@desk_app.command("show")
def desk_show(request: RequestArgument, item: ItemArgument, as_json: JsonOption = False) -> None:
    """Show one item with its evidence and choices."""
    from ops.commands.desk import show_item as run

    _run(run(_settings(quiet=True), request, item, as_json=as_json))


@desk_app.command("decide")
def desk_decide(
    request: RequestArgument,
    item: ItemArgument,
    choice: Annotated[str, typer.Argument(help="approve, refuse, or for a contested field the claim that holds.")],
    reason: Annotated[str, typer.Option(help="Why; kept with who decided.")] = "",
    seen: Annotated[str, typer.Option(help="The version that the desk listed: refused where the item has changed since.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Decide an item; a request that waited for it goes on."""
    from ops.commands.desk import decide as run

    _run(run(_settings(quiet=True), request, item, choice, reason=reason, seen=seen, as_json=as_json))


@schemas_app.command("export")
def schemas_export(
    folder: Annotated[Path, typer.Argument(help="Where to write.")] = Path("docs/schemas"),
    check_only: Annotated[bool, typer.Option("--check", help="Write nothing; say whether the folder is current.")] = False,
) -> None:
    """Write the JSON Schemas of everything on the wire, and the AsyncAPI document."""
    from ops.commands.exits import DONE, UNEXPECTED
    from ops.exporting import export, outdated

    if check_only:
        stale = outdated(folder)
        for name in stale:
            typer.echo(f"{name} is not current; run: briefline schemas export {folder}", err=True)
        raise typer.Exit(UNEXPECTED if stale else DONE)
    try:
        written = export(folder)
    except OSError as error:
        _fail(Refused(f"cannot write to {folder}: {error.strerror}", path="folder"))
    for path in written:
        typer.echo(path)


def _settings(*, quiet: bool = False, **given: str | int | None) -> Settings:
    """The settings of this process, with what the command line gave; logging is set up by them (`quiet`: warnings only)."""
    from ops.logs import configure
    from ops.settings import load_settings

    try:
        settings = load_settings({name: value for name, value in given.items() if value is not None})
    except Refused as error:
        _fail(error)
    configure("WARNING" if quiet and settings.log_level == "INFO" else settings.log_level, settings.log_format)
    return settings


def _run(work: Coroutine[Any, Any, int | None]) -> None:
    """Run a command to its exit code; our own errors become one line, Ctrl-C a quiet end."""
    import asyncio

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            code = runner.run(work)
    except BrieflineError as error:
        _fail(error)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(code or 0)


def _fail(error: BrieflineError) -> NoReturn:
    typer.echo(f"error: {error}", err=True)
    if isinstance(error, Unavailable):
        typer.echo("`briefline check` looks at both servers and says what to do", err=True)
    raise typer.Exit(exit_of_error(error)) from None


def _loop_factory() -> Any:
    """uvloop's loop where it is installed: it halves what a message costs. The platform's own elsewhere."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _pairs(given: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not (name and equals):
            _fail(Refused(f"a constraint is given as name=value, not {each!r}", path="constraint"))
        pairs[name.strip()] = value
    return pairs


def _text(words: str | bytes) -> str:
    if isinstance(words, str):
        return words
    try:
        return words.decode()
    except UnicodeDecodeError as error:
        _fail(Refused(f"standard input is not UTF-8 (byte {error.start})", path="text"))


def main() -> None:
    """Run the command line; the entry point of `briefline` and `python -m ops`.

    The folder it is called from is where a user's own team is looked for last, as `python -m` would look there first: so
    nothing that lies there takes the place of a module of ours. What a terminal cannot show is written as an escape.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    app()
