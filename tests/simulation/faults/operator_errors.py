"""Faults that no machine has by itself: what people and backups do to volumes and objects.

Profiles of their own have them (`triggered_faults.py`). Only a slice that is put back suspends a
promise: what it says is from long ago (`SliceChecker.restored`); volumes, files and Leases suspend
nothing.
"""

import copy

from tidemark_operator.api.kinds import LEASE, PARTITION_SLICE
from tidemark_operator.controller.core.deleted_topics import is_tombstone

from tests.simulation.engine.broker_process import DATA_DIRECTORY, BrokerSlot
from tests.simulation.engine.disk_image import DiskImage
from tests.simulation.engine.simulated_cluster import Cluster
from tests.simulation.faults.faults import broker_of, fault, let_up

REMOVAL_LOOK_US = 10_000


@fault
def lose_volume(cluster: Cluster, number: int) -> None:
    """The disk is gone: a new pod gets an empty one."""
    _replace_volume(cluster, broker_of(cluster, number), DiskImage())


@fault
def snapshot_volume(cluster: Cluster, number: int) -> None:
    """As a storage system takes one: what a power cut at this moment might leave."""
    slot = broker_of(cluster, number)
    slot.snapshot = copy.deepcopy(slot.machine.volume.image)
    slot.snapshot.lose_power(cluster.random)


@fault
def restore_volume(cluster: Cluster, number: int) -> None:
    """From the last snapshot, into a new claim of the same name (S7)."""
    slot = broker_of(cluster, number)
    if slot.snapshot is not None:
        _replace_volume(cluster, slot, copy.deepcopy(slot.snapshot))


def _replace_volume(cluster: Cluster, slot: BrokerSlot, image: DiskImage) -> None:
    for process in tuple(slot.machine.processes):
        process.kill()
    slot.machine.volume.image = image
    slot.new_claim()
    cluster.coverage["volumes replaced"] += 1
    slot.start()


@fault
def lose_replica(cluster: Cluster, number: int, which: int) -> None:
    """The broker is stopped in order, and then one partition's files are removed (S9)."""
    slot = broker_of(cluster, number)
    if slot.process is None or slot.is_held_down:
        return
    slot.is_held_down = True
    slot.process.terminate()

    def remove() -> None:
        if cluster.is_healed:
            return
        if slot.process is not None:
            cluster.timeline.after(REMOVAL_LOOK_US, remove)
            return
        directory = slot.machine.volume.image.directory(DATA_DIRECTORY)
        names = [name for name in sorted(directory.entries) if name.rpartition("-")[2].isdigit()]
        if names:
            name = names[which % len(names)]
            directory.change({name: None})
            directory.sync()
            cluster.coverage["replicas' files removed"] += 1
            cluster.note(slot.machine.name, f"{name} removed by hand")
        let_up(slot)

    remove()


@fault
def delete_lease(cluster: Cluster) -> None:
    """By hand, or with its namespace's backup (S16)."""
    cluster.store.delete(LEASE, cluster.namespace, "tidemark-controller")


@fault
def delete_slice(cluster: Cluster) -> None:
    """By hand (S12)."""
    names = [item["metadata"]["name"] for item in cluster.store.objects(PARTITION_SLICE)]
    if names:
        cluster.store.delete(PARTITION_SLICE, cluster.namespace, cluster.random.choice(names))


@fault
def back_up_slices(cluster: Cluster) -> None:
    cluster.backup = cluster.store.objects(PARTITION_SLICE)


@fault
def restore_slices(cluster: Cluster) -> None:
    """Each as it was at the last backup, under running brokers (S17)."""
    for item in cluster.backup:
        cluster.put_back(item)


@fault
def lose_slice(cluster: Cluster, for_us: int) -> None:
    """Deleted by hand, and after a while put back from the last backup, or as it was (S12)."""
    present = cluster.store.objects(PARTITION_SLICE)
    slices = [item for item in present if not is_tombstone(item)]
    if not slices:
        return
    name = cluster.random.choice(slices)["metadata"]["name"]
    saved = [item for item in (*slices, *cluster.backup) if item["metadata"]["name"] == name]
    cluster.lost_slices[name] = saved[-1]
    cluster.store.delete(PARTITION_SLICE, cluster.namespace, name)
    cluster.timeline.after(for_us, cluster.put_back_lost, name)
