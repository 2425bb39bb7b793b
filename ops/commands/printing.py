"""What goes to standard output to the byte: JSON, and texts whose hash is kept."""

from __future__ import annotations

import sys

import orjson

from schemas.codec import Json


def print_json(value: Json) -> None:
    """Write one JSON value to standard output, text as it is, and nothing else."""
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    sys.stdout.flush()


def print_exactly(text: str) -> None:
    """Write a text to standard output as its UTF-8 bytes, so that its hash can be taken; on a terminal a line's end follows."""
    sys.stdout.buffer.write(text.encode())
    if sys.stdout.isatty():
        sys.stdout.buffer.write(b"\n")
    sys.stdout.flush()
