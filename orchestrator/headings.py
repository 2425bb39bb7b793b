"""Headings: Markdown of an agent made fit to stand as one section below a heading of level 2. Pure; `assembling` calls it.

A Markdown parser says what is a heading, and in which lines; only these lines are written anew. It reads blocks alone
(no emphasis, no links), and its rules are those of CommonMark with tables.
"""

from __future__ import annotations

import re
from itertools import pairwise

from markdown_it import MarkdownIt

_BLOCKS = MarkdownIt("commonmark").enable("table").disable("inline")
_MAY_MATTER = re.compile(r"[#<`~]|[=-][ \t]*(?:[\r\n]|$)")
"""Without one of these no line is a heading, code or HTML, and most bodies need no parser."""
_LINE_END = re.compile(r"\r\n|\n|\r")  # no other: `str.splitlines` would cut at separators that Markdown takes for text
_MARKS = re.compile(r"#{1,2}(?=[ \t]|$)")
_CLOSING_MARKS = re.compile(r"(?:^|[ \t])#+$")
_NO_PREFIX = re.compile(r"[^ \t>0-9.)*+-]")  # a vertical tab may stand there, and would make the heading plain text
_HTML_ENDS = {
    "<!--": "-->",
    "<?": "?>",
    "<![cdata[": "]]>",
    "<!": ">",
    "<script": "</script>",
    "<pre": "</pre>",
    "<style": "</style>",
    "<textarea": "</textarea>",
}
"""HTML that goes on over blank lines, and what ends it; the longer beginning stands first."""


def demote_headings(body: str) -> str:
    """Return Markdown whose headings of level 1 or 2 are of level 3, without blank lines around it.

    Both forms are seen (`# x`, and lines underlined by `===` or `---`), inside lists and quotes too; what stands in code
    is left alone. Code or HTML that the body leaves open is closed, or it would take in what comes after.
    """
    lines = _LINE_END.split(body)
    while lines and not lines[0].strip():
        del lines[0]
    if not _MAY_MATTER.search(body):
        return "\n".join(lines).rstrip()
    for heading, content in reversed([*pairwise(_BLOCKS.parse("\n".join(lines)))]):
        if heading.type == "heading_open" and heading.tag in ("h1", "h2") and heading.map is not None:
            start, end = heading.map
            if heading.markup.startswith("#"):
                lines[start] = _MARKS.sub("###", lines[start], count=1)
            else:
                # The blank line keeps a heading with a `|` from being taken for the head of a table.
                lines[start:end] = [_one_line_heading(lines[start], content.content), *([""] if "|" in content.content else [])]
    text = "\n".join(lines).rstrip()
    return text + _ending(text)


def _one_line_heading(first: str, title: str) -> str:
    """An underlined heading as one line, in the quote or list item where it stood."""
    parts = [part.strip() for part in title.split("\n")]
    joined = " ".join(parts)
    prefix = _NO_PREFIX.sub("", first[: first.rindex(parts[0])])
    # Marks at the end of a line are no part of a heading, unless there are further ones.
    return f"{prefix}### {joined}{' ###' if _CLOSING_MARKS.search(joined) else ''}"


def _ending(text: str) -> str:
    """What closes the code or HTML that `text` leaves open, or nothing."""
    if not any(mark in text for mark in ("```", "~~~", "<")):
        return ""
    last = [token for token in _BLOCKS.parse(f"{text}\n\n## next") if token.level == 0][-1]
    if last.type == "fence":
        return f"\n{last.markup}"
    if last.type == "html_block":
        start = last.content.lstrip().lower()
        return next((f"\n{end}" for begin, end in _HTML_ENDS.items() if start.startswith(begin)), "")
    return ""
