"""Work that takes virtual time: loops stand still for it, threads and others go on."""

import asyncio
from pathlib import Path

import pytest
from tidemark_operator.controller.core.metadata_image import MetadataImage
from tidemark_protocol.ids import ControllerEpoch

from tests.simulation.checks.lease_checks import LeaseChecker
from tests.simulation.checks.violations import Violation
from tests.simulation.engine.costs import Costs, charge, charged_decisions
from tests.simulation.engine.processes import SimulatedProcess
from tests.simulation.engine.simulated_cluster import Cluster, ClusterOptions

EPOCHS = (ControllerEpoch(1), ControllerEpoch(2))


def cluster_of(costs: Costs | None) -> Cluster:
    return Cluster(1, ClusterOptions(costs=costs))


def process_in(cluster: Cluster) -> SimulatedProcess:
    return cluster.spawn("p", cluster.new_machine("m"), "10.8.0.1")


@pytest.mark.parametrize(("costs", "late_us"), [(None, 0), (Costs(), 700_000)])
def test_a_callback_that_works_long_makes_the_next_ones_late(
    costs: Costs | None, late_us: int
) -> None:
    woken_us: list[int] = []

    async def main() -> None:
        asyncio.get_running_loop().call_later(0.3, charge, 1_000_000)
        await asyncio.sleep(0.6)
        woken_us.append(cluster.now_us)

    with cluster_of(costs) as cluster:
        process_in(cluster).start(main)
        cluster.run_for(3_000)
    assert woken_us[0] - 600_000 == pytest.approx(late_us, abs=2_000)


def test_a_thread_goes_on_while_its_process_works() -> None:
    beats_us: list[int] = []

    async def beat() -> None:
        while True:
            await asyncio.sleep(0.1)
            beats_us.append(cluster.now_us)

    async def main() -> None:
        thread = asyncio.create_task(process.run_thread("beats", beat()))
        await asyncio.sleep(0.5)
        charge(1_000_000)
        await asyncio.sleep(0)
        thread.cancel()
        await asyncio.gather(thread, return_exceptions=True)

    with cluster_of(Costs()) as cluster:
        process = process_in(cluster)
        process.start(main)
        cluster.run_for(3_000)
    assert len(beats_us) in (14, 15)  # until it was cancelled, after the work
    assert process.exit_code == 0


def test_a_frozen_process_freezes_with_its_threads() -> None:
    beats_us: list[int] = []

    async def beat() -> None:
        while True:
            await asyncio.sleep(0.1)
            beats_us.append(cluster.now_us)

    async def main() -> None:
        await process.run_thread("beats", beat())

    with cluster_of(None) as cluster:
        process = process_in(cluster)
        process.start(main)
        cluster.run_for(250)
        process.freeze()
        cluster.run_for(5_000)
        assert len(beats_us) == 2
        process.thaw()
        cluster.run_for(100)
        assert len(beats_us) > 2
        process.kill()
        count = len(beats_us)
        cluster.run_for(1_000)
        assert len(beats_us) == count


def test_what_ends_a_thread_ends_its_process() -> None:
    async def fail() -> None:
        raise ValueError("no more")

    async def main() -> None:
        await process.run_thread("fails", fail())

    with cluster_of(None) as cluster:
        process = process_in(cluster)
        process.start(main)
        cluster.run_for(100)
        assert [str(crash.error) for crash in cluster.crashes] == ["no more"]
        assert process.exit_code == 70


def test_a_job_that_syncs_ends_that_much_later() -> None:
    took_us: list[int] = []

    def write() -> None:
        process.disk.make_directory(Path("/data"))
        process.disk.sync_directory(Path("/"))

    async def main() -> None:
        for _ in range(2):
            began_us = cluster.now_us
            await asyncio.to_thread(write) if not took_us else await asyncio.to_thread(int)
            took_us.append(cluster.now_us - began_us)

    with cluster_of(Costs(sync_us=500_000)) as cluster:
        process = process_in(cluster)
        process.start(main)
        cluster.run_for(3_000)
    assert took_us[0] > 500_000 > took_us[1]


def test_what_is_charged_for_is_as_it_was_after_a_run() -> None:
    original = vars(MetadataImage)["set_partitions"]
    with charged_decisions(Costs()):
        assert vars(MetadataImage)["set_partitions"] is not original
    assert vars(MetadataImage)["set_partitions"] is original


def test_a_lease_that_is_lost_for_work_alone_is_lost_in_vain() -> None:
    first, second = EPOCHS
    for befell in ((), ("make_bulk", "starve_controller")):
        checker = LeaseChecker()
        checker.on_lease(first, 1, befell=befell)
        with pytest.raises(Violation, match="lease"):
            checker.on_lease(second, 2, befell=befell)
    for excuse in (("make_bulk", "freeze_controller"), None):
        checker = LeaseChecker()
        checker.on_lease(first, 1, befell=excuse)
        checker.on_lease(second, 2, befell=excuse)
