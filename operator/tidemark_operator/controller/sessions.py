"""Broker sessions of one pool: who was heard from when, who has to be fenced.

Silence fences after the session timeout, never sooner; brokers that expired together are one
event. Two things are never taken for a broker's silence: the controller's own stall (`extend`),
and more than half of the pool falling silent at once, which is rather the controller's network
(S18): then one more session is waited. Giving the Lease away in that case is not done yet.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark_protocol.ids import BrokerId

from tidemark_operator.controller.settings import ControllerSettings


@dataclass(frozen=True, slots=True)
class Expiry:
    expired: tuple[BrokerId, ...]  # to fence now, as one event
    held_back: tuple[BrokerId, ...] = ()  # expired too, but the guard (S18) began with this look


class Sessions:
    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._last_contact_ms: dict[BrokerId, int] = {}
        self._guard_until_ms: int | None = None

    def contact(self, broker_id: BrokerId, now_ms: int) -> None:
        self._last_contact_ms[broker_id] = now_ms

    def end(self, broker_id: BrokerId) -> None:
        self._last_contact_ms.pop(broker_id, None)

    def grant_all(self, broker_ids: Iterable[BrokerId], now_ms: int) -> None:
        """After take-over: one full session each, during which silence does not count."""
        for broker_id in broker_ids:
            self._last_contact_ms[broker_id] = now_ms

    def extend(self, stall_ms: int, now_ms: int) -> None:
        """The controller itself did nothing for `stall_ms`: nobody could have been heard."""
        for broker_id, last_ms in self._last_contact_ms.items():
            self._last_contact_ms[broker_id] = min(last_ms + stall_ms, now_ms)

    def silence_ms(self, broker_id: BrokerId, now_ms: int) -> int | None:
        last_ms = self._last_contact_ms.get(broker_id)
        return None if last_ms is None else now_ms - last_ms

    def expire(self, now_ms: int, *, pool_size: int) -> Expiry:
        """Ends the sessions that it names expired."""
        timeout_ms = self._settings.session_timeout_ms
        expired = self._silent_for(timeout_ms, now_ms)
        if not expired:
            self._guard_until_ms = None
            return Expiry(())
        # Polls are spread over a heartbeat interval, so those that fell silent with the first one
        # to expire are not quite due yet: half a session of silence counts as "at once".
        silent = self._silent_for(timeout_ms // 2, now_ms)
        is_mass = pool_size >= self._settings.mass_expiry_pool_size and 2 * len(silent) > pool_size
        if is_mass and self._guard_until_ms is None:
            self._guard_until_ms = now_ms + timeout_ms
            return Expiry((), held_back=expired)
        if self._guard_until_ms is not None and is_mass and now_ms < self._guard_until_ms:
            return Expiry(())
        for broker_id in expired:
            self.end(broker_id)
        return Expiry(expired)

    def _silent_for(self, at_least_ms: int, now_ms: int) -> tuple[BrokerId, ...]:
        return tuple(
            sorted(
                broker_id
                for broker_id, last_ms in self._last_contact_ms.items()
                if now_ms - last_ms >= at_least_ms
            )
        )
