"""When the board was away: for one lease nobody may take over, so that holders renew first.

Everything here is measured by the board's own clock, as its answers tell it. This room calls nothing. Called by
`ops.blackboard.redis`, which passes both times with every write that asks for `unheld`.
"""

from __future__ import annotations


class Grace:
    """What one client knows of the board's absence.

    A client hears from the board at least every third of a lease (it asks when it has nothing to do), so a gap as long
    as a lease between two answers means that the board did not answer, or that this process stood still: in both
    cases leases may have ended that their holders had no chance to renew.
    """

    def __init__(self, lease_seconds: float) -> None:
        self.lease_ms = max(1, round(lease_seconds * 1000))
        self.heard_ms = 0
        """When the board last answered; 0 before its first answer."""
        self.calm_until_ms = 0
        """Until then a lease counts as live as long as its version fits."""
        self._server: str | None = None

    def heard(self, now_ms: int) -> None:
        """Take in an answer that the board gave at `now_ms`."""
        if self.heard_ms and now_ms - self.heard_ms >= self.lease_ms:
            self.calm_until_ms = max(self.calm_until_ms, now_ms + self.lease_ms)
        self.heard_ms = now_ms

    def met(self, server: str, uptime_ms: int, now_ms: int) -> None:
        """Take in which server a new connection leads to: another one than before, or a young one, begins with a calm."""
        known, self._server = self._server, server
        if server != known and (known is not None or uptime_ms < self.lease_ms):
            self.calm_until_ms = max(self.calm_until_ms, now_ms + self.lease_ms)
        self.heard(now_ms)
