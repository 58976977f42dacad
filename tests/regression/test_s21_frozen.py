"""S21: a frozen leader evicts healthy followers on waking, a frozen controller fences brokers.

A stall of one's own is nobody's silence. Lag is measured on CLOCK_MONOTONIC, the Lease on
CLOCK_BOOTTIME and by observed renewals, never by the written time.
"""

import asyncio
import socket
import time
from pathlib import Path
from typing import Any, cast

from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_broker.server.background.disk_probe import DiskProbe
from tidemark_broker.server.broker_server import run_ticks
from tidemark_operator.controller.clock import LeaseSystemClock, MonotonicClock

from tests.regression.lease_candidates import candidate
from tests.support.controller_harness import Harness, ProbeVerdict, evaluate
from tests.support.waiting import run

# The leader


class FreezingLoop(asyncio.SelectorEventLoop):
    """Its process can be frozen: the clock goes on, and what arrives waits in the sockets."""

    def __init__(self) -> None:
        super().__init__()
        self._frozen_s = 0.0

    def freeze(self, seconds: float) -> None:
        self._frozen_s += seconds

    def time(self) -> float:
        return super().time() + self._frozen_s


class Listening(asyncio.Protocol):
    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def data_received(self, data: bytes) -> None:
        self._seen.append(data.decode())


class Watched:
    """What ticks call, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.ticked = asyncio.Event()

    def on_stall(self, stall_ms: int) -> tuple[None, ...]:
        self.seen.append(f"stall of {round(stall_ms, -3)} ms")
        return (None, None)

    def ticking(self) -> tuple[None, ...]:
        self.seen.append("tick")
        self.ticked.set()
        return ()


def test_a_leader_that_wakes_serves_what_waited_before_it_judges_anybody() -> None:
    async def scenario() -> None:
        loop = cast(FreezingLoop, asyncio.get_running_loop())
        watched = Watched()
        there, here = socket.socketpair()
        with there:
            await loop.create_connection(lambda: Listening(watched.seen), sock=here)
            ticks = asyncio.create_task(
                run_ticks(cast(ReplicaManager, watched), cast(DiskProbe, Unprobed()))
            )
            await asyncio.sleep(0)
            there.send(b"fetch")
            loop.freeze(30)
            await watched.ticked.wait()
            ticks.cancel()
        assert sorted(watched.seen[:2]) == ["fetch", "stall of 30000 ms"]
        assert watched.seen[2:] == ["tick"]

    with asyncio.Runner(loop_factory=FreezingLoop) as runner:
        runner.run(scenario())


class Unprobed:
    def on_stall(self, stall_ms: int) -> None:
        return None


def test_a_stall_is_not_the_disks() -> None:
    async def scenario() -> None:
        loop = cast(FreezingLoop, asyncio.get_running_loop())
        unused: Any = None
        probe = DiskProbe(unused, Path("unused"), on_failure=lambda error: None)
        loop.freeze(30)
        assert probe.age_ms() >= 30_000
        probe.on_stall(30_000)
        assert probe.age_ms() < 30_000

    with asyncio.Runner(loop_factory=FreezingLoop) as runner:
        runner.run(scenario())


# The controller


def test_a_frozen_controller_wakes_and_fences_nobody_for_its_own_silence() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        before = harness.partition()
        await harness.advance(1000, *harness.brokers)
        harness.clock.ms += 60_000
        await harness.service.tick()
        await evaluate()
        assert [view.state for view in harness.service.brokers("shop/default")] == ["Active"] * 3
        assert harness.service.reason_to_give_way() == ""
        await harness.advance(5000, *harness.brokers)
        assert harness.partition() == before

    run(scenario)


def test_a_broker_that_died_while_the_controller_was_frozen_has_one_session_from_then() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.advance(1000, *harness.brokers)
        harness.clock.ms += 60_000
        await harness.advance(2000, *harness.brokers[1:])
        assert harness.partition().leader == 0
        await harness.advance(1500, *harness.brokers[1:])
        assert harness.partition().leader == 1

    run(scenario)


def test_a_poll_that_waits_unread_while_the_controller_is_frozen_is_not_a_closed_one() -> None:
    """Its probe is refused by a network policy, and the answer to its last poll is a minute old on
    the controller's clock: only by its own stall."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        broker = harness.brokers[0]
        harness.probe.verdicts[broker.incarnation] = ProbeVerdict.REFUSED
        await harness.advance(500, *harness.brokers[1:])  # its poll is answered
        assert broker.poll is not None
        assert broker.poll.done()
        harness.clock.ms += 60_000
        await harness.service.tick()
        harness.service.suspect("shop/default", broker.broker_id, "reported by broker 1")
        await evaluate()
        assert harness.partition().leader == 0
        await broker.catch_up()
        await harness.advance(1000, *harness.brokers)
        assert harness.partition().leader == 0

    run(scenario)


def test_a_holder_that_slept_leads_no_more_before_it_decides_anything() -> None:
    async def scenario() -> None:
        harness = Harness()
        lease, harness.service = candidate(harness, "one")
        await lease.step()
        harness.clock.ms += 60_000
        await lease.step()
        assert not harness.service.is_leading

    run(scenario)


def test_the_clocks_are_the_ones_that_go_on_or_stand_still_as_they_should() -> None:
    async def scenario() -> None:
        lag_ms = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000
        assert abs(MonotonicClock().now_ms() - lag_ms) < 5000
        lease_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        assert abs(LeaseSystemClock().now_ms() - lease_ms) < 5000

    run(scenario)
