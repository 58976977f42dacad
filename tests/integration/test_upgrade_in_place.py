"""A cluster of the former release takes the code of this tree, broker by broker, under load."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from tidemark_chaos.environments import child_processes
from tidemark_chaos.environments.processes import ProcessesEnvironment
from tidemark_chaos.verification import VerifyReport

from tests.support.local_cluster import ORDERS
from tests.support.releases import REPOSITORY, Interpreter, unpack_previous_release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

BROKER_IDS = (0, 1, 2)


class UpgradedEnvironment(ProcessesEnvironment):
    def __init__(self, interpreter: Interpreter, directory: Path) -> None:
        events = directory / "load.ndjson"
        super().__init__(topic="orders", manifest=ORDERS, events=events, interval_ms=5.0)
        self._interpreter = interpreter

    def cluster_command(self, first_port: int, data: Path) -> list[str]:
        _, *arguments = super().cluster_command(first_port, data)
        return [str(self._interpreter.path), *arguments]

    async def replace_broker(self, broker_id: int) -> None:
        """End a broker in order and wait until its successor is in sync everywhere."""
        before = await self.pid_of(broker_id)
        assert before is not None
        os.kill(before, signal.SIGTERM)

        async def is_replaced() -> bool:
            return await self.pid_of(broker_id) not in (None, before)

        await self.until(is_replaced, f"a successor of broker {broker_id}")
        await self.until(self._is_in_sync, "all replicas in sync again")

    async def replace_all(self) -> None:
        """End the operator with its brokers, and start all of them on the same data."""
        await child_processes.stop(self._cluster)
        assert self._port_range is not None
        self._cluster = await child_processes.start(
            self.cluster_command(self._port_range.first, self._directory / "data"),
            log=self._log("cluster-after"),
        )
        await self.until(self._is_answering, "a response of the controller")
        await self.until(self._is_in_sync, "all replicas in sync again")

    async def until_acknowledged_after(self, t_ms: float) -> None:
        async def is_acknowledged() -> bool:
            workload_log = await self.workload_log()
            return all(
                workload_log.acknowledged_at_ms.get(partition, [0.0])[-1] > t_ms
                for partition in range(workload_log.partitions)
            )

        await self.until(is_acknowledged, "acknowledgements from every partition")


async def upgrade(environment: UpgradedEnvironment, interpreter: Interpreter) -> VerifyReport:
    try:
        await environment.set_up(lambda _: None)
        await environment.start_workload()
        interpreter.run_from(REPOSITORY)
        for broker_id in BROKER_IDS:
            await environment.replace_broker(broker_id)
            await environment.until_acknowledged_after(time.time() * 1000)
        await environment.replace_all()
        await environment.until_acknowledged_after(time.time() * 1000)
        await environment.stop_workload()
        return await environment.verify()
    finally:
        await environment.tear_down()


def test_a_cluster_of_the_former_release_is_upgraded_under_load(tmp_path: Path) -> None:
    previous = unpack_previous_release(tmp_path / "former")
    interpreter = Interpreter(tmp_path / "python")
    interpreter.run_from(previous)
    assert interpreter.location_of("tidemark_broker").is_relative_to(previous)

    report = asyncio.run(upgrade(UpgradedEnvironment(interpreter, tmp_path), interpreter))

    assert interpreter.location_of("tidemark_broker").is_relative_to(REPOSITORY)
    verdict = report.verdict
    assert (verdict.lost, verdict.duplicated, verdict.refused_found) == (0, 0, 0)
    assert report.is_good
    assert verdict.acknowledged > 100
