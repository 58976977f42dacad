"""Disturb the links of local brokers: cut, delay, lose or limit what they carry.

The links are proxies of this process: they end with it, so there is nothing to write down.
"""

import asyncio
import time
from dataclasses import dataclass

from tidemark_chaos.environments.chaos_environment import Tell
from tidemark_chaos.links import CONTROLLER, Links, Place
from tidemark_chaos.schedule import PlannedFault
from tidemark_chaos.spec import Direction, FaultName, Party

Ways = list[tuple[Place, Place]]


@dataclass(frozen=True, slots=True)
class _Disturbance:
    kind: FaultName
    ways: Ways
    fault: PlannedFault | None = None  # None: cut by another fault


class LinkFaults:
    def __init__(self, links: Links, brokers: int) -> None:
        self._links = links
        self._brokers = brokers
        self._disturbed: dict[int, _Disturbance] = {}  # by number of the fault

    async def strike(
        self, fault: PlannedFault, brokers: tuple[int, ...], on_begin: Tell, on_heal: Tell
    ) -> None:
        """Disturb links until `for` is over."""
        ways = directions_of(fault, brokers, self._brokers)
        try:
            self._disturbed[fault.number] = _Disturbance(fault.kind, ways, fault)
            t_ms = time.time() * 1000
            self._set()
            on_begin(t_ms, f"{_words(fault, brokers)} for {fault.for_seconds:g} s")
            await asyncio.sleep(fault.for_seconds)
        finally:
            t_ms = time.time() * 1000
            self.heal_one(fault.number)
            on_heal(t_ms, f"the links of {names(brokers)} are healed")

    def cut(self, number: int, brokers: tuple[int, ...]) -> None:
        """Cut all links of these brokers for a fault of another kind."""
        others = [place for place in range(self._brokers) if place not in brokers]
        ways = [(broker, place) for broker in brokers for place in (*others, CONTROLLER)]
        both = [*ways, *((place, broker) for broker, place in ways)]
        self._disturbed[number] = _Disturbance(FaultName.NETWORK_CUT, both)
        self._set()

    def heal_one(self, number: int) -> None:
        if self._disturbed.pop(number, None) is not None:
            self._set()

    def heal(self) -> None:
        if self._disturbed:
            self._disturbed.clear()
            self._set()

    def _set(self) -> None:
        cut: Ways = []
        delays: dict[tuple[Place, Place], float] = {}
        losses: dict[tuple[Place, Place], float] = {}
        rates: dict[tuple[Place, Place], int] = {}
        for each in self._disturbed.values():
            match each.kind, each.fault:
                case FaultName.NETWORK_DELAY, PlannedFault() as fault:
                    delays |= dict.fromkeys(each.ways, fault.delay_seconds)
                case FaultName.NETWORK_LOSS, PlannedFault() as fault:
                    losses |= dict.fromkeys(each.ways, fault.loss)
                case FaultName.BANDWIDTH, PlannedFault() as fault:
                    rates |= dict.fromkeys(each.ways, fault.bytes_per_second)
                case _:
                    cut += each.ways
        self._links.cut(cut)
        self._links.delay(delays)
        self._links.lose(losses)
        self._links.limit(rates)


def directions_of(
    fault: PlannedFault, brokers: tuple[int, ...], count: int
) -> list[tuple[Place, Place]]:
    """Return each (from, to) that a network fault of these brokers disturbs."""
    found = []
    for broker_id in brokers:
        places: list[Place] = []
        if Party.PEERS in fault.from_:
            places += [place for place in range(count) if place not in brokers]
        if Party.CONTROLLER in fault.from_:
            places.append(CONTROLLER)
        for place in places:
            if fault.direction is not Direction.IN:
                found.append((broker_id, place))
            if fault.direction is not Direction.OUT:
                found.append((place, broker_id))
    return found


def names(brokers: tuple[int, ...]) -> str:
    return f"broker{'s' * (len(brokers) > 1)} {', '.join(map(str, brokers))}"


def _words(fault: PlannedFault, brokers: tuple[int, ...]) -> str:
    whose, parties = names(brokers), " and ".join(fault.from_)
    match fault.kind:
        case FaultName.NETWORK_DELAY:
            text = f"{whose}: links to {parties} slower by {fault.delay_seconds:g} s"
        case FaultName.NETWORK_LOSS:
            text = f"{whose}: links to {parties} lose {fault.loss:.0%}"
        case FaultName.BANDWIDTH:
            text = f"{whose}: links to {parties} limited to {fault.bytes_per_second} B/s"
        case _:
            text = f"{whose} disconnected from {parties}"
    if fault.direction is not Direction.BOTH:
        text += f", {fault.direction}bound only"
    return text
