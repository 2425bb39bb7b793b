"""Rendering: reports and lists as tables and trees for a terminal. No I/O except to the console it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import orjson
from rich.console import Console, Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ops.boundary_tables import metrics_table
from ops.comparing import Comparison
from ops.dead_letters import DeadLetter
from ops.findings import Finding
from ops.measuring import measure
from ops.private import PrivateRecord
from ops.reading import Listed
from ops.reporting import Report, StepReport
from orchestrator.desk import DeskItem
from schemas.codec import Json
from schemas.requests import RequestRecord
from schemas.results import CROSSINGS_LABEL, MADE_WITH_LABEL
from workers.quoting import lines_of

_STATE_STYLE = {
    "COMPLETED": "green",
    "DEGRADED": "yellow",
    "FAILED": "red",
    "CANCELLED": "magenta",
    "RUNNING": "cyan",
    "ACCEPTED": "cyan",
    "READY": "blue",
    "WAITING": "dim",
    "SKIPPED": "dim yellow",
}
_STATE_MARK = {"COMPLETED": "✔", "FAILED": "✘", "RUNNING": "▶", "READY": "…", "WAITING": "·", "SKIPPED": "–"}
_DIFF_STYLE = {"+": "green", "-": "red", "@": "cyan"}
_LEVEL_STYLE = {"ok": "green", "warn": "yellow", "fail": "red"}


def state_text(state: str) -> Text:
    """A state in its colour, with a mark that does without colour."""
    return Text(f"{_STATE_MARK.get(state, '')} {state}".strip(), style=_STATE_STYLE.get(state, ""))


def plan_table(report: Report) -> Table:
    """The whole plan with how each step stands: what `submit --wait` shows live."""
    moment = f"  as it was after event {report.position} of {report.position + report.later}" if report.later else ""
    table = Table(title=f"{report.request_id}  {report.status}{moment}", title_justify="left", expand=False)
    for column in ("step", "title", "state", "attempt", "took", "ended", "after"):
        table.add_column(column, no_wrap=column in ("state", "took"))
    for each in report.steps:
        table.add_row(
            each.step.id,
            each.step.title,
            state_text(each.state),
            f"{each.record.attempt}/{each.record.max_attempts}" + (f" (epoch {each.record.epoch})" if each.record.epoch else ""),
            _took(each),
            _ended(each),
            ", ".join(each.step.depends_on),
        )
    return table


def _took(each: StepReport) -> str:
    if each.record.reused is not None:
        return "reused"
    return "" if each.duration_ms is None else f"{each.duration_ms / 1000:.2f} s"


def _ended(each: StepReport) -> str:
    if each.failure is not None:
        return each.failure.code
    return each.result.termination.value if each.result is not None and each.state == "COMPLETED" else ""


def facts_table(report: Report) -> Table:
    """Every fact with the tool return that it was copied from."""
    table = Table(title="facts", title_justify="left")
    for column in ("step", "fact", "value", "copied from"):
        table.add_column(column, overflow="fold")
    for step, fact in report.facts:
        source = fact.provenance
        value = f"{fact.value}{f' {fact.unit}' if fact.unit else ''}"
        if fact.artifact is not None:
            value += f"\n{fact.artifact.media_type}, {fact.artifact.size:,} bytes: {fact.artifact.summary}"
        table.add_row(step, fact.key, Text(value), f"{source.tool} → {source.path}  ({source.call_id})")
    return table


def judgements_table(report: Report) -> Table:
    """What steps judged, how sure they were, and what it rests on."""
    table = Table(title="judgements", title_justify="left")
    for column in ("step", "kind", "judgement", "confidence", "rests on", "because"):
        table.add_column(column, overflow="fold")
    for step, packet in report.judgements:
        control = packet.control
        evidence = "\n".join(map(str, control.evidence)) or "–"
        table.add_row(step, packet.kind, Text(f"{packet.key}: {packet.payload}"), f"{control.confidence:g}", evidence, Text(control.reason))
    return table


def shared_table(report: Report) -> Table:
    """The team's shared fields: value, who wrote it, and what a reader should know of it."""
    table = Table(title="shared state", title_justify="left")
    for column in ("field", "value", "by", "note"):
        table.add_column(column, overflow="fold")
    for name, record in report.shared.items():
        writers = record.step or ", ".join(dict.fromkeys(each.step for each in record.claims))
        value = "; ".join(f"{each.id}: {each.value!r}" for each in record.claims) if record.contested else str(record.value)
        notes = [
            *(("contested",) if record.contested else ()),
            record.flagged,
            *(f"said by {each.channel}" for each in record.communicated),
        ]
        notes += [
            f"proposed by {each.step}: {each.value!r}{f' (refused: {each.refused})' if each.refused else ''}" for each in record.proposals
        ]
        notes += [f"{each.amount:g} reserved by {each.step}" for each in record.reservations.values()]
        table.add_row(name, Text(value), writers, Text("\n".join(note for note in notes if note)))
    return table


def briefs_table(report: Report) -> Table:
    """What each agent was given: how much, which facts, and what stayed behind."""
    table = Table(title="briefs", title_justify="left")
    for column in ("step", "size", "facts", "left out"):
        table.add_column(column, overflow="fold")
    for each in report.briefs:
        manifest = each.brief.manifest
        left = ", ".join(f"{out.step}.{out.key} ({out.reason})" for out in manifest.left_out)
        size = f"{manifest.characters} characters\n~{manifest.tokens} tokens"
        if each.as_given is False:
            size += "\n[yellow]not as it was given: the team has changed[/yellow]"
        table.add_row(each.brief.step_id, size, ", ".join(each.facts) or "–", left or "–")
    return table


def timeline_table(report: Report) -> Table:
    """Every event of the request, oldest first, with the time since its opening."""
    table = Table(title="timeline", title_justify="left")
    for column in ("#", "after", "event", "details", "by"):
        table.add_column(column)
    opened = report.events[0].at_ms
    for event in report.events:
        details = ", ".join(
            f"{key}={value}" for key, value in event.labels.items() if key not in ("event", MADE_WITH_LABEL, CROSSINGS_LABEL)
        )
        table.add_row(str(event.position), f"{(event.at_ms - opened) / 1000:.3f} s", event.labels.get("event", ""), details, event.writer)
    return table


def answer_block(report: Report) -> RenderableType:
    """The answer as the user reads it."""
    return Padding(Markdown(report.answer), (1, 2)) if report.answer else Text("no answer yet", style="dim")


def full(report: Report) -> Group:
    """Everything of one request."""
    parts: list[RenderableType] = [Text(report.request.text, style="italic"), *map(Text, origin_lines(report.request)), plan_table(report)]
    if report.facts:
        parts.append(facts_table(report))
    if report.judgements:
        parts.append(judgements_table(report))
    if report.shared:
        parts.append(shared_table(report))
    if report.briefs:
        parts.append(briefs_table(report))
    if report.desk:
        parts.append(desk_tree([(report.request_id, each) for each in report.desk]))
    parts += [metrics_table([("this request", measure(report))]), timeline_table(report), answer_block(report)]
    return Group(*parts)


def comparison(compared: Comparison) -> Group:
    """What differs between two requests, and their answers line by line."""
    parts: list[RenderableType] = []
    if not compared.same_team:
        said = f"two teams, {compared.a.team} and {compared.b.team}: steps and facts of one name may mean different things"
        parts.append(Text(said, style="yellow"))
    if compared.differences:
        table = Table(title="differences", title_justify="left")
        for column in ("", "name", str(compared.a), str(compared.b)):
            table.add_column(column, overflow="fold")
        for each in compared.differences:
            table.add_row(
                each.kind, Text(each.name), *(Text("–", style="dim") if side is None else Text(side) for side in (each.a, each.b))
            )
        parts.append(table)
    parts += [Text(line, style=_DIFF_STYLE.get(line[:1], "")) for line in compared.answer]
    return Group(*parts) if parts else Group(Text(f"{compared.a} and {compared.b} differ in nothing that is compared"))


def origin_lines(request: RequestRecord) -> list[str]:
    """Where a request comes from: its turn in a session, the request that it takes up, and what that means for what it reuses."""
    lines: list[str] = []
    if request.session is not None:
        after = f", after {request.session.previous}" if request.session.previous else ""
        lines.append(f"session {request.session.name}, turn {request.session.turn}{after}")
    if (origin := request.forked_from) is not None:
        reused = ", ".join(origin.reused) or "nothing"
        lines.append(f"forked from {origin.request}@{origin.position} at {origin.step}; reused: {reused}")
        if origin.reused:
            lines += [f"what is reused was made with {name}: {old or '(none)'}" for name, old in origin.changed.items()]
    return lines


def private_record(record: PrivateRecord) -> Group:
    """What was said and called in one attempt: texts as they are, with control characters made visible."""
    told = record.told
    head = (
        f"{told.get('request')}  {told.get('step')}, attempt {told.get('attempt')} (epoch {told.get('epoch')}), agent {told.get('agent')}"
    )
    parts: list[RenderableType] = [Text(head, style="bold"), Text(f"records of attempts: {', '.join(record.attempts)}", style="dim")]
    parts.append(_panel("instructions", told.get("instructions")))
    parts += [_message(each) for each in _objects(told.get("messages"))]
    for each in _objects(told.get("observations")):
        outcome = next((each[key] for key in ("error", "artifact", "returned") if key in each), None)
        title = f"call {each.get('call_id')}, round {each.get('round')}: {each.get('tool')} {_shown(each.get('arguments'))}"
        parts.append(_panel(title, outcome, "red" if "error" in each else "dim"))
    return Group(*parts)


def _message(message: Mapping[str, Json]) -> Panel:
    role = str(message.get("role"))
    if "call" in message:
        return _panel(f"{role} calls {message['call']}", message.get("arguments"), "cyan")
    return _panel(f"{role} {message['tool']}" if "tool" in message else role, message.get("text"), "green" if role == "assistant" else "")


def _panel(title: str, content: Json, style: str = "") -> Panel:
    return Panel(Text(_shown(content)), title=Text(_shown(title)), title_align="left", border_style=style)


def _shown(content: Json) -> str:
    """Texts as lines, anything else as JSON; what a terminal would obey is written out."""
    text = content if isinstance(content, str) else orjson.dumps(content).decode()
    return "\n".join(lines_of(text))


def _objects(value: Json) -> list[Mapping[str, Json]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


_NARROW = {"session": 14, "team": 12}
"""Columns that are cut rather than the id and the status."""


def list_table(listed: Sequence[Listed]) -> Table:
    """Recent requests."""
    table = Table(expand=True)
    sessions = any(each.session for each in listed)
    for column in ("request", "status", "team", *(("session",) if sessions else ()), "age", "text"):
        widest = {"request": 36, "status": 11}.get(column)  # never cut: they are what one copies and looks for
        table.add_column(column, no_wrap=True, ratio=1 if column == "text" else None, min_width=widest, max_width=_NARROW.get(column))
    for each in listed:
        session = Text(f"{each.session.name} #{each.session.turn}" if each.session else "")
        opened, text = age(each.now_ms - each.opened_at_ms), Text(each.text.replace("\n", " "))
        table.add_row(each.request_id, state_text(each.status), each.team, *((session,) if sessions else ()), opened, text)
    return table


def dead_tree(letters: Sequence[DeadLetter]) -> Tree:
    """Dead letters, each with its first and last error below it: that stays readable on a narrow terminal."""
    tree = Tree(f"{len(letters)} dead letter{'' if len(letters) == 1 else 's'}")
    for each in letters:
        failure = each.record.failure
        tried = f"attempt {each.record.attempt} of {each.record.max_attempts}, epoch {each.record.epoch}"
        branch = tree.add(Text.assemble(each.request_id, "  ", (each.step_id, "bold"), "  ", (each.reason, "red")))
        branch.add(
            Text(f"agent {each.record.agent}, {tried}, {age(each.now_ms - each.failed_at_ms)} ago; the request is {each.request_status}")
        )
        branch.add(Text(f"first error: {each.record.first_error or '–'}"))
        branch.add(Text(f"last error:  {failure.code}: {failure.description}" if failure else "last error:  –"))
    return tree


def desk_tree(items: Sequence[tuple[str, DeskItem]]) -> Tree:
    """What waits for a person, each with its question, what speaks for it, and how to decide it."""
    tree = Tree(f"{len(items)} {'thing waits' if len(items) == 1 else 'things wait'} for a person")
    for request_id, item in items:
        branch = tree.add(Text.assemble(request_id, "  ", (item.id, "bold"), "  ", (item.title, "cyan")))
        branch.add(Text(item.question))
        for line in item.details:
            if line:
                branch.add(Text(line, style="dim"))
        branch.add(Text(f"briefline desk decide {request_id} {item.id} {'|'.join(item.choices)} --seen {item.version} --reason …"))
    return tree


def findings_table(findings: Sequence[tuple[str, Finding]]) -> Table:
    """What a look at the servers found."""
    table = Table()
    for column in ("server", "", "found", "what to do"):
        table.add_column(column)
    for server, each in findings:
        table.add_row(server, Text(each.level.value, style=_LEVEL_STYLE[each.level.value]), Text(each.what), Text(each.advice))
    return table


def age(milliseconds: int) -> str:
    """A length of time in its largest whole unit."""
    seconds = max(0, milliseconds) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def moment(at_ms: int) -> str:
    """A board time as UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def console() -> Console:
    """A console on standard output."""
    return Console(highlight=False)
