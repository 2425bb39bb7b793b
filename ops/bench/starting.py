"""Starting: the wall time of `briefline --help` beside that of importing the model library, one after the other."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence

from ops.bench.children import program

OURS = ("briefline", "--help")
THEIRS = ("python", "-c", "import pydantic_ai")


def help_walls(pairs: int) -> list[float]:
    """Our wall time over theirs, pair by pair; the first of both, which reads from disk, is not counted."""
    walls = [(_wall(OURS), _wall(THEIRS)) for _ in range(pairs + 1)]
    return [ours / theirs for ours, theirs in walls[1:]]


def _wall(command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(program(command), check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began
