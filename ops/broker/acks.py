"""Which deliveries of one channel are done: many acknowledgements become few frames, and none covers what is not done.

An acknowledgement with `multiple` covers every delivery up to its tag. It costs the broker a fraction of one for each.
Called by the RabbitMQ consumer.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """One acknowledgement to send."""

    tag: int
    multiple: bool


class Acks:
    """The open delivery tags of one channel, which arrive in rising order."""

    def __init__(self) -> None:
        self._open: dict[int, bool] = {}  # tag: whether it is done

    def arrived(self, tag: int) -> None:
        """Note a delivery."""
        self._open[tag] = False

    def done(self, tag: int) -> None:
        """Note that a delivery is to be acknowledged."""
        self._open[tag] = True

    def left(self, tag: int) -> None:
        """Note that a delivery was handed back. To be called once that is on its way, never before."""
        self._open.pop(tag, None)

    def take(self) -> list[Frame]:
        """Return what to send now for all that is done, and forget it."""
        covered = []
        for tag, done in self._open.items():
            if not done:
                break
            covered.append(tag)
        single = [tag for tag, done in self._open.items() if done][len(covered) :]
        for tag in (*covered, *single):
            del self._open[tag]
        frames = [Frame(covered[-1], multiple=len(covered) > 1)] if covered else []
        return [*frames, *(Frame(tag, multiple=False) for tag in single)]
