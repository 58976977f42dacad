"""The work queue: each key once, failures later, nothing lost."""

import asyncio
from collections.abc import Awaitable, Callable

from tidemark_operator.reconcile.work_queue import BackOff, WorkKey, WorkQueue
from tidemark_operator.stores.object_store import StoreError

from tests.waiting import eventually

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


def test_keys_may_come_from_another_thread() -> None:
    seen: list[WorkKey] = []

    async def reconcile(key: WorkKey) -> int | None:
        seen.append(key)
        return None

    async def story() -> None:
        queue = WorkQueue()
        queue.add_threadsafe(A)  # before there is a loop: dropped, the first list finds it
        queue.bind(asyncio.get_running_loop())
        await asyncio.to_thread(queue.add_threadsafe, B)
        await run_until(queue, reconcile, lambda: bool(seen))
        assert seen == [B]

    asyncio.run(story())
