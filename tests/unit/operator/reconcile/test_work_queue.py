"""The work queue: each key once, failures later, nothing lost."""

import asyncio
from collections.abc import Awaitable, Callable

from tidemark_operator.reconcile.work_queue import BackOff, WorkKey, WorkQueue
from tidemark_operator.store.object_store import StoreError

from tests.support.waiting import eventually

A, B = WorkKey("Topic", "shop", "a"), WorkKey("Topic", "shop", "b")


async def run_until(
    queue: WorkQueue,
    reconcile: Callable[[WorkKey], Awaitable[int | None]],
    is_done: Callable[[], bool],
) -> None:
    task = asyncio.create_task(queue.work(reconcile))
    await eventually(is_done)
    task.cancel()


def test_a_key_added_twice_is_worked_on_once() -> None:
    seen: list[WorkKey] = []

    async def reconcile(key: WorkKey) -> int | None:
        seen.append(key)
        return None

    async def story() -> None:
        queue = WorkQueue()
        queue.add(A)
        queue.add(B)
        queue.add(A)
        await run_until(queue, reconcile, lambda: len(seen) == 2 and len(queue) == 0)
        assert seen == [A, B]

    asyncio.run(story())


def test_a_key_added_while_it_is_worked_on_comes_once_more() -> None:
    seen: list[WorkKey] = []

    async def story() -> None:
        queue = WorkQueue()

        async def reconcile(key: WorkKey) -> int | None:
            seen.append(key)
            if len(seen) == 1:
                queue.add(A)
                queue.add(A)
            return None

        queue.add(A)
        await run_until(queue, reconcile, lambda: len(seen) == 2 and len(queue) == 0)
        assert seen == [A, A]

    asyncio.run(story())


def test_a_failed_key_comes_back() -> None:
    seen: list[WorkKey] = []

    async def reconcile(key: WorkKey) -> int | None:
        seen.append(key)
        if len(seen) < 3:
            raise StoreError("not now")
        return None

    async def story() -> None:
        queue = WorkQueue(BackOff(first_delay_ms=1, max_delay_ms=2))
        queue.add(A)
        await run_until(queue, reconcile, lambda: len(seen) == 3)

    asyncio.run(story())


def test_back_off_doubles_up_to_its_limit() -> None:
    back_off = BackOff(first_delay_ms=100, max_delay_ms=1000)
    delays = [back_off.delay_ms(failures) for failures in (1, 2, 3, 4, 5, 200)]
    assert delays == [100, 200, 400, 800, 1000, 1000]


def test_a_key_that_asked_for_a_later_turn_gets_it() -> None:
    seen: list[WorkKey] = []

    async def reconcile(key: WorkKey) -> int | None:
        seen.append(key)
        return 1 if len(seen) == 1 else None

    async def story() -> None:
        queue = WorkQueue()
        queue.add(A)
        await run_until(queue, reconcile, lambda: len(seen) == 2)

    asyncio.run(story())


class Turns:
    """Keeps which keys are in work; each turn ends when it is told to."""

    def __init__(self) -> None:
        self.running: list[WorkKey] = []
        self.new_partitions: list[WorkKey] = []
        self.most_at_once = 0
        self._ends: dict[WorkKey, asyncio.Event] = {}

    async def reconcile(self, key: WorkKey) -> int | None:
        assert key not in self.running
        self.running.append(key)
        self.new_partitions.append(key)
        self.most_at_once = max(self.most_at_once, len(self.running))
        self._ends[key] = asyncio.Event()
        try:
            await self._ends[key].wait()
        finally:
            self.running.remove(key)
        return None

    def end(self, key: WorkKey) -> None:
        self._ends[key].set()


def topics(count: int) -> list[WorkKey]:
    return [WorkKey("Topic", "shop", f"t{number}") for number in range(count)]


def test_turns_of_several_topics_run_at_once_up_to_the_limit() -> None:
    async def story() -> None:
        queue, turns = WorkQueue(turns_at_once={"Topic": 3}), Turns()
        for key in topics(5):
            queue.add(key)
        work = asyncio.create_task(queue.work(turns.reconcile))
        await eventually(lambda: len(turns.running) == 3)
        turns.end(topics(5)[1])
        await eventually(lambda: len(turns.new_partitions) == 4)
        assert turns.new_partitions == topics(4)
        assert turns.most_at_once == 3
        work.cancel()

    asyncio.run(story())


def test_topics_of_one_request_hold_up_anothers_for_one_turn() -> None:
    async def story() -> None:
        queue, turns = WorkQueue(turns_at_once={"Topic": 1}), Turns()
        many = topics(1000)
        for key in many:
            queue.add(key, "request 1")
        work = asyncio.create_task(queue.work(turns.reconcile))
        await eventually(lambda: turns.running == many[:1])
        queue.add(A, "request 2")
        queue.add(B)  # by kubectl, or for a change of the controller
        for key, following in ((many[0], many[1]), (many[1], A), (A, B), (B, many[2])):
            turns.end(key)
            await eventually(lambda wanted=following: turns.running == [wanted])
        assert len(queue) == 997
        work.cancel()

    asyncio.run(story())


def test_key_that_another_asks_for_again_keeps_its_place() -> None:
    async def story() -> None:
        queue, turns = WorkQueue(turns_at_once={"Topic": 1}), Turns()
        queue.add(A, "request 1")
        queue.add(B, "request 1")
        queue.add(A, "request 2")
        assert len(queue) == 2
        work = asyncio.create_task(queue.work(turns.reconcile))
        for key in (A, B):
            await eventually(lambda wanted=key: turns.running == [wanted])
            turns.end(key)
        await eventually(lambda: not turns.running)
        assert turns.new_partitions == [A, B]
        work.cancel()

    asyncio.run(story())


def test_key_in_work_runs_again_only_after_its_turn() -> None:
    async def story() -> None:
        queue, turns = WorkQueue(turns_at_once={"Topic": 3}), Turns()
        queue.add(A)
        work = asyncio.create_task(queue.work(turns.reconcile))
        await eventually(lambda: turns.running == [A])
        queue.add(A)
        queue.add(B)
        await eventually(lambda: turns.running == [A, B])  # A waits and holds up nothing
        turns.end(A)
        await eventually(lambda: turns.new_partitions == [A, B, A])
        work.cancel()

    asyncio.run(story())


def test_pools_have_one_turn_at_a_time_beside_topics() -> None:
    pools = [WorkKey("BrokerPool", "shop", name) for name in "ab"]

    async def story() -> None:
        queue, turns = WorkQueue(), Turns()
        for key in (*pools, A):
            queue.add(key)
        work = asyncio.create_task(queue.work(turns.reconcile))
        await eventually(lambda: turns.running == [pools[0], A])
        turns.end(pools[0])
        await eventually(lambda: turns.running == [A, pools[1]])
        work.cancel()

    asyncio.run(story())


def test_swept_keys_wait_behind_changed_ones_but_are_not_starved() -> None:
    swept = [WorkKey("Topic", "shop", f"s{number}") for number in range(3)]

    async def story() -> None:
        queue, turns = WorkQueue(turns_at_once={"Topic": 3}), Turns()
        for key in swept:
            queue.add_swept(key)
        for key in topics(3):
            queue.add(key)
        work = asyncio.create_task(queue.work(turns.reconcile))
        await eventually(lambda: len(turns.running) == 3)
        assert turns.new_partitions == [swept[0], *topics(2)]
        turns.end(topics(1)[0])
        await eventually(lambda: len(turns.new_partitions) == 4)
        turns.end(topics(3)[1])  # nothing changed waits any more: the sweep has the room
        await eventually(lambda: len(turns.new_partitions) == 5)
        assert turns.new_partitions[3:] == [topics(3)[2], swept[1]]
        work.cancel()

    asyncio.run(story())


def test_swept_key_that_changes_is_worked_on_once() -> None:
    async def story() -> None:
        queue = WorkQueue()
        queue.add_swept(A)
        queue.add(A)
        queue.add_swept(A)
        assert len(queue) == 1

    asyncio.run(story())


def test_turns_cut_short_by_the_end_of_a_term_are_done_in_the_next() -> None:
    async def story() -> None:
        queue, turns = WorkQueue(), Turns()
        for key in (A, B):
            queue.add(key)
        work = asyncio.create_task(queue.work(turns.reconcile))
        await eventually(lambda: turns.running == [A, B])
        queue.add(WorkKey("Topic", "shop", "c"))
        work.cancel()
        await asyncio.wait((work,))
        assert turns.running == []
        queue.clear()
        queue.add(A)
        work = asyncio.create_task(queue.work(turns.reconcile))
        await eventually(lambda: turns.running == [A])
        work.cancel()

    asyncio.run(story())
