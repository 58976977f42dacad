"""Broker sessions of one pool: who was heard from when, who has to be fenced.

Silence fences after the session timeout, never sooner; brokers that expired together are one
event. Two things are never taken for a broker's silence: the controller's own stall (`extend`),
and more than half of the pool falling silent at once, which is rather the controller's network
(S18): then nobody is fenced here, and another controller is to judge. One that was made leader for
just that gives everybody a full session, and fences those that it did not hear either.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark_protocol.ids import BrokerId

from tidemark_operator.controller.settings import ControllerSettings


@dataclass(frozen=True, slots=True)
class Expiry:
    expired: tuple[BrokerId, ...]  # to fence now, as one event
    held_back: tuple[BrokerId, ...] = ()  # expired too, but so many that another has to judge (S18)


class Sessions:
    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._last_contact_ms: dict[BrokerId, int] = {}
        self._unheard: dict[BrokerId, None] = {}  # since the take-over
        self._is_second_opinion = False

    def contact(self, broker_id: BrokerId, now_ms: int) -> None:
        self._last_contact_ms[broker_id] = now_ms
        self._unheard.pop(broker_id, None)

    def end(self, broker_id: BrokerId) -> None:
        self._last_contact_ms.pop(broker_id, None)

    def grant_all(
        self, broker_ids: Iterable[BrokerId], now_ms: int, *, is_second_opinion: bool = False
    ) -> None:
        """After take-over: one full session each, during which silence does not count.

        `is_second_opinion`: the controller before gave way as it heard too few (S18)."""
        self._is_second_opinion = is_second_opinion
        for broker_id in broker_ids:
            self._last_contact_ms[broker_id] = now_ms
            self._unheard[broker_id] = None

    def extend(self, stall_ms: int, now_ms: int) -> None:
        """The controller itself did nothing for `stall_ms`: nobody could have been heard."""
        for broker_id, last_ms in self._last_contact_ms.items():
            self._last_contact_ms[broker_id] = min(last_ms + stall_ms, now_ms)

    def silence_ms(self, broker_id: BrokerId, now_ms: int) -> int | None:
        last_ms = self._last_contact_ms.get(broker_id)
        return None if last_ms is None else now_ms - last_ms

    def expire(self, now_ms: int, *, pool_size: int) -> Expiry:
        """Ends the sessions that it names expired. `pool_size`: of all brokers, dead ones too."""
        expired = self._silent_for(self._settings.session_timeout_ms, now_ms)
        if not expired:
            return Expiry(())
        if self._is_mass_expiry(now_ms, pool_size) and not self._is_confirmed(expired):
            return Expiry((), held_back=expired)
        for broker_id in expired:
            self.end(broker_id)
        return Expiry(expired)

    def _is_mass_expiry(self, now_ms: int, pool_size: int) -> bool:
        """More than half of those that had a session. Polls are spread over a heartbeat interval,
        so those that fell silent with the first one to expire are not quite due yet: half a
        session of silence counts as "at once"."""
        silent = self._silent_for(self._settings.session_timeout_ms // 2, now_ms)
        is_large = pool_size >= self._settings.mass_expiry_pool_size
        return is_large and 2 * len(silent) > len(self._last_contact_ms)

    def _is_confirmed(self, expired: tuple[BrokerId, ...]) -> bool:
        """Two controllers, one after the other, heard nothing of these for a full session."""
        return self._is_second_opinion and all(each in self._unheard for each in expired)

    def _silent_for(self, at_least_ms: int, now_ms: int) -> tuple[BrokerId, ...]:
        return tuple(
            sorted(
                broker_id
                for broker_id, last_ms in self._last_contact_ms.items()
                if now_ms - last_ms >= at_least_ms
            )
        )
