"""A wall clock that is off by WALL_CLOCK_OFF_S seconds: Python imports this before all else from a folder on PYTHONPATH.

Only the time of day moves, and only where Python code asks for it; the clocks since boot stay, as on a machine whose clock was set wrong.
"""

from __future__ import annotations

import datetime
import os
import time
from datetime import datetime as _datetime

OFF_S = int(os.environ["WALL_CLOCK_OFF_S"])
_time, _time_ns, _clock_gettime = time.time, time.time_ns, time.clock_gettime


class _Everywhere(type):
    """What C code made is a datetime too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _datetime)


class _ShiftedDatetime(_datetime, metaclass=_Everywhere):
    __slots__ = ()

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> _ShiftedDatetime:
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> _ShiftedDatetime:
        return cls.now(datetime.timezone.utc).replace(tzinfo=None)


def _shifted_clock(clock: int) -> float:
    return _clock_gettime(clock) + (OFF_S if clock == time.CLOCK_REALTIME else 0)


time.time = lambda: _time() + OFF_S
time.time_ns = lambda: _time_ns() + OFF_S * 10**9
time.clock_gettime = _shifted_clock
datetime.datetime = _ShiftedDatetime  # type: ignore[misc]
