"""Keep connections above the limit for a moment, in case they are brokers of the pool.

However many clients there are, a follower must connect, or records stop being acknowledged. The
first request tells who connected: a fetch of a replica in its current epoch stays, as a normal
connection. All others are refused: at their first request, when their time is up, or when as many
newer ones have come.
"""

from typing import Protocol

from tidemark_broker.clock import Scheduler, Timer
from tidemark_broker.kafka.network.limits import ListenerLimits


class OverLimitConnection(Protocol):
    @property
    def is_peer(self) -> bool: ...

    def reject(self, kind: str, reason: str) -> None: ...


class OverLimitConnections:
    def __init__(self, limits: ListenerLimits, scheduler: Scheduler) -> None:
        self._limits = limits
        self._scheduler = scheduler
        self._timers: dict[OverLimitConnection, Timer] = {}  # by age

    def join(self, over_limit_connection: OverLimitConnection) -> None:
        if len(self._timers) >= self._limits.over_limit_connections:
            self.judge(next(iter(self._timers)))
        self._timers[over_limit_connection] = self._scheduler.call_later(
            self._limits.over_limit_seconds, lambda: self.judge(over_limit_connection)
        )

    def judge(self, over_limit_connection: OverLimitConnection) -> bool:
        """Return whether the connection stays; if so it is no longer a newcomer."""
        timer = self._timers.pop(over_limit_connection, None)
        if timer is None:
            return True
        timer.cancel()
        if not over_limit_connection.is_peer:
            reason = f"{self._limits.connections} connections are open"
            over_limit_connection.reject("too many connections", reason)
        return over_limit_connection.is_peer

    def forget(self, over_limit_connection: OverLimitConnection) -> None:
        """Forget a connection that is gone."""
        timer = self._timers.pop(over_limit_connection, None)
        if timer is not None:
            timer.cancel()

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
