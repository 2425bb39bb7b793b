"""The picture of the page: bars of ratios as plain SVG that reads on light and on dark. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from html import escape

from ops.bench.contenders import CONTENDERS
from ops.bench.figures import Figures, ratios
from ops.bench.rendering import Rounds

WIDTH, LEFT, RIGHT = 960, 275, 70
BAR, GAP, HEAD = 13, 12, 62
FONTS = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
CASES = ("chain", "diamond")

_STYLE = """
    .paper { fill: #ffffff; stroke: #d0d7de; }
    .ink { fill: #1f2328; }
    .faint { fill: #57606a; font-size: 13px; }
    .name { font-weight: 600; }
    .head { font-weight: 600; font-size: 17px; }
    .chain { fill: #54aeff; }
    .diamond { fill: #bf8700; }
    .one { stroke: #57606a; stroke-dasharray: 4 4; }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117; stroke: #30363d; }
      .ink { fill: #e6edf3; }
      .faint { fill: #9da7b3; }
      .chain { fill: #388bfd; }
      .diamond { fill: #d29922; }
      .one { stroke: #8b949e; }
    }"""


def picture(rounds: Rounds) -> str:
    """Two groups of bars: CPU a request over Celery's, on servers; requests a second over those of LangGraph, in one process."""
    on_servers = [name for name, each in CONTENDERS.items() if not each.in_process]
    in_process = [name for name, each in CONTENDERS.items() if each.in_process]
    cpu = _against("celery", on_servers, rounds, lambda each: each.cpu_ms_per_request)
    rate = _against("langgraph", in_process, rounds, lambda each: each.requests_per_second)
    upper, middle = _group("CPU a request on servers, Celery = 1 (less is better)", cpu, 20)
    lower, bottom = _group("Requests a second in one process, LangGraph in memory = 1 (more is better)", rate, middle + 18)
    height = bottom + 16
    told = f"{_told(cpu, 'CPU a request over that of Celery')} {_told(rate, 'requests a second over those of LangGraph in memory')}"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="{FONTS}" font-size="15" role="img"
  aria-labelledby="title description">
  <title id="title">Briefline beside others</title>
  <desc id="description">{escape(told)}</desc>
  <style>{_STYLE}
  </style>
  <rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>
{upper}
{lower}
</svg>
"""


Values = Mapping[str, Mapping[str, float]]
"""Contender -> case -> ratio."""


def _against(one: str, names: Sequence[str], rounds: Rounds, what: Callable[[Figures], float]) -> Values:
    return {name: {case: statistics.median(ratios(rounds[case][name], rounds[case][one], what)) for case in CASES} for name in names}


def _group(head: str, values: Values, top: int) -> tuple[str, int]:
    """The bars of one group from `top` downwards, and where they end."""
    scale = (WIDTH - LEFT - RIGHT) / max(1.0, *(value for each in values.values() for value in each.values()))
    lines = [f'  <text class="ink head" x="24" y="{top + 18}">{escape(head)}</text>']
    for place, case in enumerate(CASES):
        x = LEFT + place * 100
        lines.append(f'  <rect class="{case}" x="{x}" y="{top + 32}" width="12" height="12"/>')
        lines.append(f'  <text class="faint" x="{x + 18}" y="{top + 43}">{case}</text>')
    y = top + HEAD
    one, end = LEFT + scale, y + len(values) * (len(CASES) * BAR + GAP) - GAP
    lines.append(f'  <line class="one" x1="{one:.1f}" y1="{y - 6}" x2="{one:.1f}" y2="{end + 6}"/>')
    for name, each in values.items():
        lines.append(
            f'  <text class="ink name" x="{LEFT - 12}" y="{y + BAR + 5}" text-anchor="end">{escape(CONTENDERS[name].title)}</text>'
        )
        for case, value in each.items():
            lines.append(f'  <rect class="{case}" x="{LEFT}" y="{y}" width="{value * scale:.1f}" height="{BAR - 1}" rx="2"/>')
            lines.append(f'  <text class="faint" x="{LEFT + value * scale + 6:.1f}" y="{y + BAR - 2}">{value:.2f}</text>')
            y += BAR
        y += GAP
    return "\n".join(lines), y


def _told(values: Values, what: str) -> str:
    """The same in words, for who cannot see it."""
    told = (f"{CONTENDERS[name].title} " + " and ".join(f"{value:.2f}" for value in each.values()) for name, each in values.items())
    return f"For chain and diamond, {what}: {'; '.join(told)}."
