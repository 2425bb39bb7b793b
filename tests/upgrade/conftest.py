"""The system under test is that of `tests.system`, on both pairs."""

from __future__ import annotations

from tests.system.conftest import _plain_logs, system

__all__ = ["_plain_logs", "system"]
