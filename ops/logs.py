"""Logs: past-tense facts on standard error, for people or for machines. No payloads, no secrets. Set up once per process."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog


def configure(level: str, style: Literal["console", "json"]) -> None:
    """Set up logging for this process: structlog's lines, and those of the libraries from WARNING on, to standard error."""
    number = logging.getLevelNamesMapping()[level]
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr, format="%(asctime)s [%(levelname)s] %(name)s: %(message)s")
    for driver in ("aiormq", "aio_pika"):  # tracebacks of every lost line: ours say so in one line
        logging.getLogger(driver).setLevel(logging.CRITICAL)
    renderer: structlog.typing.Processor
    if style == "json":
        renderer = structlog.processors.JSONRenderer(ensure_ascii=False)
    else:
        # Plain tracebacks: the rich ones print local variables, and with them briefs and personas.
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.format_exc_info] if style == "json" else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
