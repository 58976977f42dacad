"""Which links a network fault disturbs, and what loss costs."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from tidemark_chaos.faults.link_faults import LinkFaults
from tidemark_chaos.links import CONTROLLER, Links, Place, retransmission_seconds
from tidemark_chaos.schedule import PlannedFault
from tidemark_chaos.spec import FaultName, Party, Role

FAULT = PlannedFault(
    number=1,
    kind=FaultName.BANDWIDTH,
    role=Role.LEADER,
    partition=0,
    count=1,
    for_seconds=0.01,
    away_seconds=0.01,
    draw=0.0,
    from_=(Party.CONTROLLER,),
    delay_seconds=0.2,
    loss=0.1,
    bytes_per_second=1000,
)
BOTH_WAYS = {(1, CONTROLLER), (CONTROLLER, 1)}


class SeenLinks(Links):
    """Remember everything that links were told."""

    def __init__(self) -> None:
        super().__init__(lambda _: None, (CONTROLLER, 0, 1, 2))
        self.seen: list[tuple[str, object]] = []

    def cut(self, directions: Iterable[tuple[Place, Place]]) -> None:
        self.seen.append(("cut", set(directions)))

    def delay(self, seconds: Mapping[tuple[Place, Place], float]) -> None:
        self.seen.append(("delay", dict(seconds)))

    def lose(self, parts: Mapping[tuple[Place, Place], float]) -> None:
        self.seen.append(("lose", dict(parts)))

    def limit(self, bytes_per_second: Mapping[tuple[Place, Place], int]) -> None:
        self.seen.append(("limit", dict(bytes_per_second)))


@pytest.mark.parametrize(
    ("kind", "told", "words"),
    [
        (FaultName.NETWORK_CUT, ("cut", BOTH_WAYS), "broker 1 disconnected from controller"),
        (
            FaultName.NETWORK_DELAY,
            ("delay", dict.fromkeys(BOTH_WAYS, 0.2)),
            "broker 1: links to controller slower by 0.2 s",
        ),
        (
            FaultName.NETWORK_LOSS,
            ("lose", dict.fromkeys(BOTH_WAYS, 0.1)),
            "broker 1: links to controller lose 10%",
        ),
        (
            FaultName.BANDWIDTH,
            ("limit", dict.fromkeys(BOTH_WAYS, 1000)),
            "broker 1: links to controller limited to 1000 B/s",
        ),
    ],
)
def test_a_fault_disturbs_its_links_and_heals_them(
    kind: FaultName, told: tuple[str, object], words: str
) -> None:
    links = SeenLinks()
    said: list[str] = []
    fault = replace(FAULT, kind=kind)
    faults = LinkFaults(links, 3)
    asyncio.run(faults.strike(fault, (1,), lambda _, text: said.append(text), lambda *_: None))
    begun, healed = links.seen[:4], links.seen[4:]
    assert [entry for entry in begun if entry[1]] == [told]
    assert [entry for entry in healed if entry[1]] == []
    assert said == [f"{words} for 0.01 s"]


def test_a_node_that_is_down_has_no_link_left_and_other_faults_last_on() -> None:
    links = SeenLinks()
    faults = LinkFaults(links, 3)
    faults.cut(1, (1,))
    faults.cut(2, (0, 2))
    faults.heal_one(2)
    of_one = {(1, 0), (0, 1), (1, 2), (2, 1), *BOTH_WAYS}
    assert links.seen[-4] == ("cut", of_one)
    faults.heal()
    assert links.seen[-4] == ("cut", set())


@pytest.mark.parametrize(("lost", "seconds"), [(0, 0.0), (1, 0.2), (2, 0.6), (3, 1.4), (99, 12.6)])
def test_each_loss_of_a_segment_doubles_the_timeout(lost: int, seconds: float) -> None:
    draws = iter([0.05] * lost + [0.5])
    assert retransmission_seconds(0.1, lambda: next(draws)) == pytest.approx(seconds)
