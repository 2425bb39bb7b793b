"""Logs: past-tense facts on standard error, for people or for machines. No payloads, no secrets. Set up once per process."""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

import structlog


def configure(level: str, style: Literal["console", "json"]) -> None:
    """Set up logging for this process: structlog's lines, and those of the libraries from WARNING on, to standard error."""
    number = logging.getLevelNamesMapping()[level]
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr, format="%(asctime)s [%(levelname)s] %(name)s: %(message)s")
    for driver in ("aiormq", "aio_pika"):  # tracebacks of every lost line: ours say so in one line
        logging.getLogger(driver).setLevel(logging.CRITICAL)
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer(ensure_ascii=False)
    if style == "console":
        renderer = console_renderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.format_exc_info] if style == "json" else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def console_renderer(*, colors: bool) -> structlog.typing.Processor:
    """Return what writes a line for people. Without colours and errors it is written here: a worker writes one for each step."""
    # Plain tracebacks: the rich ones print local variables, and with them briefs and personas.
    full = structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)

    def render(logger: Any, name: str, event: structlog.typing.EventDict) -> str:
        if colors or not _UNUSUAL.isdisjoint(event):
            return full(logger, name, event)
        told = " ".join(f"{key}={event[key]}" for key in sorted(event) if key not in _HEAD)
        return f"{event.get('timestamp', '')} [{event.get('level', ''):<9}] {event.get('event', '')!s:<30} {told}".rstrip()

    return render


_HEAD = frozenset({"timestamp", "level", "event"})
_UNUSUAL = frozenset({"exc_info", "exception", "stack", "stack_info"})
