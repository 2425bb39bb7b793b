"""The picture of what a brief saves: two groups of plain SVG that read on light and on dark. Pure."""

from __future__ import annotations

from html import escape

from ops.bench.context_tables import Measured, saved
from ops.bench.passing import Way

WIDTH, LEFT, RIGHT = 960, 150, 110
BAR = 26
PLOT_TOP, PLOT_HEIGHT = 250, 210
FONTS = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"

_STYLE = """
    .paper { fill: #ffffff; stroke: #d0d7de; }
    .ink { fill: #1f2328; }
    .faint { fill: #57606a; font-size: 13px; }
    .head { font-weight: 600; font-size: 17px; }
    .axis { stroke: #d0d7de; }
    .history { fill: #bf8700; stroke: #bf8700; }
    .summaries { fill: #8c959f; stroke: #8c959f; }
    .briefs { fill: #0969da; stroke: #0969da; }
    .line { fill: none; stroke-width: 2.5; }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117; stroke: #30363d; }
      .ink { fill: #e6edf3; }
      .faint { fill: #9da7b3; }
      .axis { stroke: #30363d; }
      .history { fill: #d29922; stroke: #d29922; }
      .summaries { fill: #6e7681; stroke: #6e7681; }
      .briefs { fill: #388bfd; stroke: #388bfd; }
      .line { fill: none; }
    }"""

CLASSES = {Way.HISTORY: "history", Way.SUMMARIES: "summaries", Way.BRIEFS: "briefs"}


def picture(measured: Measured, tokenizer: str) -> str:
    """Bars of what the last step is handed, and lines of what chains of 2 to 12 steps are handed together."""
    height = PLOT_TOP + PLOT_HEIGHT + 92
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="{FONTS}" font-size="15" role="img"
  aria-labelledby="title description">
  <title id="title">What a brief saves</title>
  <desc id="description">{escape(told(measured))}</desc>
  <style>{_STYLE}
  </style>
  <rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>
{_bars(measured)}
{_lines(measured)}
  <text class="faint" x="24" y="{height - 16}">Tokens as counted by {escape(tokenizer)}</text>
</svg>
"""


def told(measured: Measured) -> str:
    """The figures in words, for who cannot see the picture."""
    by, briefs = measured.last, measured.chains[-1]
    child = measured.left_by(Way.HISTORY).of["traveler"].before_end
    return (
        f"The last step of the trip is handed {by(Way.HISTORY):,} tokens by passing the whole history on, {by(Way.SUMMARIES):,} by "
        f"summaries and {by(Way.BRIEFS):,} by a brief; all steps together {measured.handed(Way.HISTORY):,}, "
        f"{measured.handed(Way.SUMMARIES):,} and {measured.handed(Way.BRIEFS):,}: briefs are "
        f"{saved(measured.handed(Way.HISTORY), measured.handed(Way.BRIEFS)):.1%} less than the history. "
        f"That a child comes along is stated {child:,} tokens before the end of the history. "
        f"A chain of {briefs.steps} steps is handed {briefs.history:,} tokens by history and {briefs.briefs:,} by briefs; that is "
        f"{measured.growth[0]:.1f} and {measured.growth[1]:.1f} times what one of 6 is."
    )


def _bars(measured: Measured) -> str:
    """What the last step is handed, each way."""
    scale = (WIDTH - LEFT - RIGHT) / measured.last(Way.HISTORY)
    lines = ['  <text class="ink head" x="24" y="38">Tokens handed to the last step of the Tokyo trip</text>']
    for place, way in enumerate(Way):
        y, value = 60 + place * (BAR + 14), measured.last(way)
        lines.append(f'  <text class="ink" x="{LEFT - 14}" y="{y + 18}" text-anchor="end">{way.value}</text>')
        lines.append(f'  <rect class="{CLASSES[way]}" x="{LEFT}" y="{y}" width="{max(2.0, value * scale):.1f}" height="{BAR}" rx="3"/>')
        x = LEFT + value * scale + 10
        lines.append(f'  <text class="ink" x="{x:.1f}" y="{y + 18}">{value:,}</text>')
        if way is not Way.HISTORY:
            lines.append(f'  <text class="faint" x="{x + 58:.1f}" y="{y + 18}">{_told_of(way, measured)}</text>')
    return "\n".join(lines)


def _told_of(way: Way, measured: Measured) -> str:
    """What is left in the last step's input, in a few words."""
    left = measured.left_by(way)
    stand = sum(each.stands for each in left.of.values())
    source = "the words of a source can be quoted" if left.quotable else "no words of any source can be quoted"
    return f"{stand} of {len(left.of)} constraints stand in it, {source}"


def _lines(measured: Measured) -> str:
    """What chains are handed, over their number of steps."""
    top, bottom = PLOT_TOP, PLOT_TOP + PLOT_HEIGHT
    most = max(each.history for each in measured.chains)
    first, last = measured.chains[0].steps, measured.chains[-1].steps
    right = WIDTH - RIGHT

    def at(steps: int, value: int) -> tuple[float, float]:
        return LEFT + (steps - first) / (last - first) * (right - LEFT), bottom - value / most * (bottom - top)

    lines = [f'  <text class="ink head" x="24" y="{top - 26}">Tokens handed to all steps of a chain, by its number of steps</text>']
    lines.append(f'  <line class="axis" x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}"/>')
    lines += [
        f'  <text class="faint" x="{at(each.steps, 0)[0]:.1f}" y="{bottom + 22}" text-anchor="middle">{each.steps}</text>'
        for each in measured.chains
    ]
    for way, values in (
        (Way.HISTORY, [(each.steps, each.history) for each in measured.chains]),
        (Way.BRIEFS, [(each.steps, each.briefs) for each in measured.chains]),
    ):
        points = [at(*each) for each in values]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        lines.append(f'  <polyline class="{CLASSES[way]} line" style="fill: none" points="{drawn}"/>')
        lines += [f'  <circle class="{CLASSES[way]}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in points]
        x, y = points[-1]
        lines.append(f'  <text class="ink" x="{x + 10:.1f}" y="{y + 5:.1f}">{values[-1][1]:,}</text>')
        middle = points[len(points) // 2]
        lines.append(f'  <text class="ink" x="{middle[0] - 12:.1f}" y="{middle[1] - 14:.1f}" text-anchor="end">{way.value}</text>')
    return "\n".join(lines)
