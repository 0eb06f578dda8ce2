"""Redis does not answer: said once, again now and then, and when it is over."""

from __future__ import annotations

import logging
import math

from ..records import boottime

logger = logging.getLogger(__name__)

AGAIN_S = 30.0


class Outage:
    """`back_at`: boottime when a call was answered that had waited for Redis."""

    def __init__(self) -> None:
        self.back_at = -math.inf
        self._calls = 0  # that wait
        self._since = self._said_at = 0.0

    def begins(self) -> None:
        """For one call more."""
        self._calls += 1
        if self._calls == 1:
            self._since, self._said_at = boottime(), -math.inf

    def tried(self, error: Exception, pause_s: float) -> None:
        if boottime() - self._said_at >= AGAIN_S:
            self._said_at = boottime()
            logger.warning("Redis does not answer, it is asked again and again: %s", error)
        else:
            logger.debug("Redis does not answer, again in %.1f s: %s", pause_s, error)

    def ends(self, answered: bool) -> None:
        """For one call."""
        self._calls -= 1
        if answered:
            self.back_at = boottime()
            if not self._calls:
                logger.warning("Redis answers again, after %.1f s", boottime() - self._since)
