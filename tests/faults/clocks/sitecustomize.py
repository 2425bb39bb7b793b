"""Shifts this process's wall clock, as a wrong setting of its machine would; the monotonic clock goes on as it is.

Python imports a module of this name by itself when it starts. Used by `tests/faults/test_processes.py`.
"""

import datetime
import os
import time
from typing import Any

_SHIFT = float(os.environ.get("BRIEFLINE_TEST_CLOCK_SHIFT_SECONDS") or 0)
_time, _time_ns = time.time, time.time_ns
_real: Any = datetime.datetime


class _Kind(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _real)


class _Shifted(datetime.datetime, metaclass=_Kind):
    """The class `datetime`, whose present is another."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        """What the shifted clock shows."""
        return _real.now(tz) + datetime.timedelta(seconds=_SHIFT)

    @classmethod
    def utcnow(cls) -> Any:
        """What the shifted clock shows, without a zone."""
        return cls.now(datetime.UTC).replace(tzinfo=None)


if _SHIFT:
    time.time = lambda: _time() + _SHIFT
    time.time_ns = lambda: _time_ns() + int(_SHIFT * 1e9)
    datetime.datetime = _Shifted  # type: ignore[misc]  # a class takes the place of another
