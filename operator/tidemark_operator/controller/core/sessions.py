"""Keep the broker sessions of one pool: last contact, and which brokers must be fenced.

Silence fences after the session timeout, never sooner; brokers that expired together are one event.
Two things are never taken for a broker's silence: the controller's own stall (`extend`), and
silence of more than half of the brokers that should be heard, which is rather the controller's
network (S18): then no broker is fenced here, and another controller must decide. One that became
leader for this reason gives all brokers a full session, and fences those that it did not hear
either. Just after a stall of its own a controller does not doubt itself either: what was sent to it
meanwhile may wait unread.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemark_protocol.ids import BrokerId

from tidemark_operator.controller.core.settings import ControllerSettings


@dataclass(frozen=True, slots=True)
class Expiry:
    expired: tuple[BrokerId, ...]  # to fence now, as one event
    # Silent for so many ms, and so many brokers that another has to judge (S18).
    held_back: tuple[tuple[BrokerId, int], ...] = ()
    # Of those to fence, for people.
    silence_ms: Mapping[BrokerId, int] = field(default_factory=dict, compare=False)


class Sessions:
    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._last_contact_ms: dict[BrokerId, int] = {}
        self._unheard: dict[BrokerId, None] = {}  # since the take-over
        self._is_second_opinion = False
        self._stall_ended_ms: int | None = None
        self._doubted_since_ms: int | None = None  # until somebody is heard

    def contact(self, broker_id: BrokerId, now_ms: int) -> None:
        self._last_contact_ms[broker_id] = now_ms
        self._unheard.pop(broker_id, None)

    def end(self, broker_id: BrokerId) -> None:
        self._last_contact_ms.pop(broker_id, None)

    # guard: takeover-grants-sessions (S18)
    def grant_all(
        self, broker_ids: Iterable[BrokerId], now_ms: int, *, is_second_opinion: bool = False
    ) -> None:
        """Give each broker one full session after a takeover, during which silence does not count.

        `is_second_opinion` if the controller before stepped down because it heard too few (S18).
        """
        self._is_second_opinion = is_second_opinion
        for broker_id in broker_ids:
            self._last_contact_ms[broker_id] = now_ms
            self._unheard[broker_id] = None

    # guard: own-stall-extends-sessions (S21)
    def extend(self, stall_ms: int, now_ms: int) -> None:
        """Extend sessions by a stall of the controller itself: no broker could have been heard."""
        for broker_id, last_ms in self._last_contact_ms.items():
            self._last_contact_ms[broker_id] = min(last_ms + stall_ms, now_ms)
        self._stall_ended_ms = now_ms

    def silence_ms(self, broker_id: BrokerId, now_ms: int) -> int | None:
        last_ms = self._last_contact_ms.get(broker_id)
        return None if last_ms is None else now_ms - last_ms

    # guard: expired-together-are-one-event (I13)
    def expire(self, now_ms: int, *, pool_size: int) -> Expiry:
        """End the sessions that expired and return them; `pool_size` counts dead brokers too."""
        expired = self._silent_for(self._settings.session_timeout_ms, now_ms)
        if not expired:
            self._doubted_since_ms = None
            return Expiry(())
        silent = self._silent_at_once(now_ms)
        is_large = pool_size >= self._settings.mass_expiry_pool_size
        is_mass = is_large and self._is_mass_expiry(silent)
        if is_mass and not self._is_confirmed(expired):
            if self._may_hear_them_yet(now_ms):
                return Expiry(())
            return Expiry((), held_back=tuple((i, self._silence_of(i, now_ms)) for i in silent))
        self._doubted_since_ms = None
        silence_ms = {broker_id: self._silence_of(broker_id, now_ms) for broker_id in expired}
        for broker_id in expired:
            self.end(broker_id)
        return Expiry(expired, silence_ms=silence_ms)

    def _silent_at_once(self, now_ms: int) -> tuple[BrokerId, ...]:
        """Return the brokers that fell silent with the first one to expire.

        Polls are spread over a heartbeat interval, so the others are not quite due yet: as far as
        they may have spoken later, and once more.
        """
        session_ms = self._settings.session_timeout_ms
        spread_ms = min(2 * self._settings.heartbeat_interval_ms, session_ms // 2)
        return self._silent_for(session_ms - spread_ms, now_ms)

    # guard: mass-expiry (S18)
    def _is_mass_expiry(self, silent: tuple[BrokerId, ...]) -> bool:
        """Return whether more than half of the brokers with a session are silent.

        A session is of a broker that is unfenced, and neither told to stop nor known to be dead.
        """
        return 2 * len(silent) > len(self._last_contact_ms)

    def _may_hear_them_yet(self, now_ms: int) -> bool:
        """Return whether a stall ended just now; not without limit, because stalls may repeat."""
        settings = self._settings
        since_ms = self._doubted_since_ms = (
            now_ms if self._doubted_since_ms is None else self._doubted_since_ms
        )
        if self._stall_ended_ms is None or now_ms - since_ms >= settings.session_timeout_ms:
            return False
        return now_ms - self._stall_ended_ms < 2 * settings.heartbeat_interval_ms

    def _silence_of(self, broker_id: BrokerId, now_ms: int) -> int:
        return now_ms - self._last_contact_ms[broker_id]

    def _is_confirmed(self, expired: tuple[BrokerId, ...]) -> bool:
        """Return whether two controllers in succession heard nothing of these brokers.

        Each waited for a full session.
        """
        return self._is_second_opinion and all(each in self._unheard for each in expired)

    def _silent_for(self, at_least_ms: int, now_ms: int) -> tuple[BrokerId, ...]:
        return tuple(
            sorted(
                broker_id
                for broker_id, last_ms in self._last_contact_ms.items()
                if now_ms - last_ms >= at_least_ms
            )
        )
