"""The loop of a simulated process: asyncio's order, virtual time, deaths without `finally`."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.simulation.engine.clock import MILLION
from tests.simulation.engine.loop import ProcessDied
from tests.simulation.engine.processes import KILLED, SimulatedProcess
from tests.simulation.engine.simulated_cluster import Cluster
from tests.simulation.faults.faults import freeze

Main = Callable[[], Coroutine[Any, Any, Any]]


def process_of(cluster: Cluster, main: Main, name: str = "p") -> SimulatedProcess:
    process = cluster.spawn(name, cluster.new_machine(f"machine-of-{name}"), f"10.8.0.{name}")
    process.start(main)
    return process


def test_sleepers_wake_in_the_order_of_their_times_and_the_loop_tells_the_time() -> None:
    heard: list[tuple[str, float]] = []

    async def sleep(name: str, seconds: float) -> None:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(seconds)
        heard.append((name, round(asyncio.get_running_loop().time() - began, 3)))

    async def main() -> int:
        await asyncio.gather(sleep("late", 2.0), sleep("soon", 0.5), sleep("now", 0))
        return 3

    with Cluster(1) as cluster:
        process = process_of(cluster, main)
        cluster.run_for(3_000)
        assert heard == [("now", 0.0), ("soon", 0.5), ("late", 2.0)]
        assert process.exit_code == 3


def test_a_killed_process_runs_no_finally() -> None:
    heard: list[str] = []

    async def main() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            heard.append("finally")

    with Cluster(1) as cluster:
        process = process_of(cluster, main)
        cluster.run_for(500)
        process.kill()
        cluster.run_for(5_000)
        assert (heard, process.exit_code) == ([], KILLED)


def test_a_frozen_process_finds_its_timers_late() -> None:
    lates_ms: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0.1)
            lates_ms.append(round((loop.time() - before) * 1000) - 100)

    with Cluster(1) as cluster:
        process = process_of(cluster, main)
        cluster.run_for(150)
        process.freeze()
        cluster.run_for(1_000)
        assert lates_ms == [0]
        process.thaw()
        cluster.run_for(50)
        assert lates_ms == [0, 950]


def test_a_clock_with_another_rate_moves_timers_that_are_set_already() -> None:
    woke_at_us: list[int] = []

    async def main() -> None:
        await asyncio.sleep(10)
        woke_at_us.append(cluster.now_us)

    with Cluster(1) as cluster:
        process = process_of(cluster, main)
        cluster.run_for(2_000)
        process.machine.set_clock_rate(2 * MILLION)
        cluster.run_for(10_000)
        assert woke_at_us == [6_000_000]


def test_a_job_of_a_worker_takes_time_and_its_result_comes_back() -> None:
    heard: list[object] = []

    def job(fails: bool) -> str:
        if fails:
            raise ValueError("no")
        return "done"

    async def main() -> None:
        heard.append(await asyncio.to_thread(job, False))
        with pytest.raises(ValueError, match="no"):
            await asyncio.to_thread(job, True)
        heard.append(cluster.now_us > 0)

    with Cluster(1) as cluster:
        process = process_of(cluster, main)
        cluster.run_for(100)
        assert (heard, process.exit_code) == (["done", True], 0)


def test_the_executor_shuts_down_after_its_last_job() -> None:
    heard: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, heard.append, "job")
        await loop.shutdown_default_executor()
        heard.append("shut down")

    with Cluster(1) as cluster:
        process_of(cluster, main)
        cluster.run_for(100)
        assert heard == ["job", "shut down"]


def test_sigterm_calls_the_handler_and_ends_a_process_without_one() -> None:
    async def stops() -> int:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()
        return 0

    async def ignores() -> None:
        await asyncio.sleep(100)

    with Cluster(1) as cluster:
        processes = [process_of(cluster, stops, "1"), process_of(cluster, ignores, "2")]
        cluster.run_for(10)
        for process in processes:
            process.terminate()
        cluster.run_for(10)
        assert [process.exit_code for process in processes] == [0, -signal.SIGTERM]


def test_an_exception_that_nobody_caught_is_the_worlds_to_judge() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(0.1)
        raise ValueError("the end")

    with Cluster(1) as cluster:
        process_of(cluster, main)
        cluster.run_for(1_000)
        assert [type(crash.error) for crash in cluster.crashes] == [ZeroDivisionError, ValueError]


def test_a_process_that_dies_inside_a_call_is_no_defect() -> None:
    async def main() -> None:
        process.kill()
        raise ProcessDied

    with Cluster(1) as cluster:
        process = process_of(cluster, main)
        cluster.run_for(10)
        assert (cluster.crashes, process.exit_code) == ([], KILLED)


def test_a_blocked_loop_waits_for_its_system_call() -> None:
    ran_at_us: list[int] = []

    async def main() -> None:
        process.spend(5_000)
        await asyncio.sleep(0)
        ran_at_us.append(cluster.now_us)

    with Cluster(1) as cluster:
        process = process_of(cluster, main)
        cluster.run_for(100)
        assert ran_at_us == [5_000]


def test_tasks_are_cancelled_in_one_order_whatever_their_addresses() -> None:
    """asyncio keeps some tasks in sets."""
    heard: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.sleep(10)
        finally:
            heard.append(number)

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(20):
                tasks.create_task(wait(number))
            await asyncio.sleep(1)
            raise ValueError

    with Cluster(1) as cluster:
        process_of(cluster, main)
        cluster.run_for(2_000)
        assert heard == sorted(heard)
        assert len(heard) == 20


def test_who_is_frozen_for_good_is_thawed_by_no_fault_of_before() -> None:
    """57000192: the thaw of a freeze that the healing had ended came later, and it led on."""
    woke: list[int] = []

    async def main() -> None:
        await asyncio.sleep(1)
        woke.append(cluster.now_us)

    with Cluster(1) as cluster:
        process = process_of(cluster, main)
        freeze(cluster, process, 500_000)
        process.thaw()
        process.freeze(for_good=True)
        cluster.run_for(5_000)
        assert woke == []
