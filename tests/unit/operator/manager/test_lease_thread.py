"""The Lease's thread: renewals beside a busy loop, and a loss that needs no turn of it."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import pytest
from tidemark_operator.api.kinds import LEASE, Object
from tidemark_operator.manager.lease_thread import STUCK_AFTER_MS, LeaderOnLoop, LeaseThread
from tidemark_operator.store.lease import ControllerLease, Leader, LeaseSettings
from tidemark_protocol.ids import ControllerEpoch
from tidemark_protocol.loop_lag import BEAT_SECONDS, LoopLag

from tests.support.controller_harness import FakeStore
from tests.support.waiting import eventually, run, wait_for  # `wait_for`: the loop does not turn
from tests.unit.operator.store.test_lease import FakeLeader, FakeLeaseClock

SETTINGS = LeaseSettings(namespace="tidemark", renew_interval_ms=1)


class Threaded:
    """A Lease on a thread, for a leader of the running loop."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.clock = FakeLeaseClock()
        self.leader = FakeLeader()
        self.threads: set[str] = set()  # on which its own calls ran
        self.thread = LeaseThread(self.leader, self.open_lease, LoopLag())

    @contextlib.asynccontextmanager
    async def open_lease(self, leader: Leader) -> AsyncIterator[ControllerLease]:
        self.threads.add(threading.current_thread().name)
        yield ControllerLease(
            self.store, "one", "10.0.0.1:8070", leader=leader, clock=self.clock, settings=SETTINGS
        )

    def stored(self) -> Object:
        return self.store.objects[(LEASE.kind, "tidemark", "tidemark-controller")]


def test_a_busy_loop_holds_up_no_renewal() -> None:
    async def scenario() -> None:
        threaded = Threaded()
        leading = asyncio.create_task(threaded.thread.run())
        await eventually(lambda: threaded.leader.is_leading)
        before = threaded.store.writes
        wait_for("three renewals", lambda: threaded.store.writes >= before + 3)
        assert threaded.threads == {"lease"}
        leading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await leading
        assert not threaded.leader.is_leading
        assert threaded.stored()["spec"]["holderIdentity"] == ""

    run(scenario)


def test_a_loss_deposes_a_leader_whose_loop_is_busy() -> None:
    """It steps down once its loop turns; until then it begins no decision."""

    async def scenario() -> None:
        threaded = Threaded()
        leading = asyncio.create_task(threaded.thread.run())
        await eventually(lambda: threaded.leader.is_leading)
        threaded.clock.ms += 60_000  # no renewal was sent for so long
        wait_for("its loss", lambda: not threaded.leader.is_leading)
        leading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await leading

    run(scenario)


def test_what_ends_the_thread_ends_the_operator() -> None:
    @contextlib.asynccontextmanager
    async def open_lease(leader: Leader) -> AsyncIterator[ControllerLease]:
        raise ValueError("no kubeconfig")
        yield

    async def scenario() -> None:
        with pytest.raises(ValueError, match="no kubeconfig"):
            await LeaseThread(FakeLeader(), open_lease, LoopLag()).run()

    run(scenario)


class Elsewhere:
    """Another loop, turned on another thread."""

    def __enter__(self) -> asyncio.AbstractEventLoop:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        return self.loop

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def test_who_steps_down_while_it_takes_over_takes_over_no_more() -> None:
    """The caller's task may be gone long before the leader's own loop hears of it."""

    class Slow(FakeLeader):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []
            self.began = threading.Event()

        async def take_over(
            self, controller_epoch: ControllerEpoch, *, is_second_opinion: bool
        ) -> None:
            self.began.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.001)  # an end that takes a moment
                self.seen.append("taken over")

        async def step_down(self) -> None:
            self.seen.append("stepped down")

    async def scenario() -> None:
        leader = Slow()
        with Elsewhere() as loop:
            bridge = LeaderOnLoop(leader, loop, LoopLag())
            taking_over = asyncio.create_task(
                bridge.take_over(ControllerEpoch(1), is_second_opinion=False)
            )
            await asyncio.to_thread(leader.began.wait)
            taking_over.cancel()
            await asyncio.gather(taking_over, return_exceptions=True)
            await bridge.step_down()
        assert leader.seen == ["taken over", "stepped down"]

    run(scenario)


def test_a_loop_that_does_not_turn_at_all_gives_its_lease_away() -> None:
    now_s = 100.0
    lag = LoopLag(lambda: now_s)
    loop = asyncio.new_event_loop()
    leader = LeaderOnLoop(FakeLeader(), loop, lag)
    loop.close()
    now_s += BEAT_SECONDS + (STUCK_AFTER_MS - 1) / 1000
    assert leader.reason_to_give_way() == ""
    now_s += 0.001
    assert leader.reason_to_give_way() == "the event loop has not turned for 10000 ms"


def test_the_lag_of_a_loop_is_that_of_its_last_beat_and_the_most_of_two_minutes() -> None:
    now_s = 100.0
    lag = LoopLag(lambda: now_s)

    def shown() -> list[float]:
        return [round(each, 3) for each in (lag.last_s, lag.max_s)]

    def beat(after_s: float) -> None:
        nonlocal now_s
        now_s += after_s
        lag.beat()

    beat(BEAT_SECONDS)
    assert shown() == [0.0, 0.0]
    beat(BEAT_SECONDS + 2.5)
    beat(BEAT_SECONDS)
    assert shown() == [0.0, 2.5]
    for _ in range(700):  # more than a minute, less than two
        beat(BEAT_SECONDS)
    assert shown() == [0.0, 2.5]
    for _ in range(700):
        beat(BEAT_SECONDS)
    assert shown() == [0.0, 0.0]
