"""Faults that no machine has by itself: what people and backups do to volumes and objects.

After some of them acknowledged records may be gone, or epochs go back until they are rebuilt, so
judges of a run have to know of them; a plan has them only when asked to (`PlanShape.mistakes`).
"""

import copy

from tidemark_operator.stores.object_store import LEASE, PARTITION_SLICE

from tests.simulator.broker_process import BrokerSlot
from tests.simulator.disk_image import DiskImage
from tests.simulator.faults import broker_of, fault
from tests.simulator.world import World


@fault
def lose_volume(world: World, number: int) -> None:
    """The disk is gone: a new pod gets an empty one."""
    _replace_volume(world, broker_of(world, number), DiskImage())


@fault
def snapshot_volume(world: World, number: int) -> None:
    """As a storage system takes one: what a power cut at this moment might leave."""
    slot = broker_of(world, number)
    slot.snapshot = copy.deepcopy(slot.machine.volume.image)
    slot.snapshot.lose_power(world.random)


@fault
def restore_volume(world: World, number: int) -> None:
    """From the last snapshot, into a new claim of the same name (S7)."""
    slot = broker_of(world, number)
    if slot.snapshot is not None:
        _replace_volume(world, slot, copy.deepcopy(slot.snapshot))


def _replace_volume(world: World, slot: BrokerSlot, image: DiskImage) -> None:
    for process in tuple(slot.machine.processes):
        process.kill()
    slot.machine.volume.image = image
    slot.new_claim()
    world.coverage["volumes replaced"] += 1
    slot.start()


@fault
def delete_lease(world: World) -> None:
    """By hand, or with its namespace's backup (S16)."""
    world.store.delete(LEASE, world.namespace, "tidemark-controller", None)


@fault
def delete_slice(world: World) -> None:
    """By hand (S12)."""
    names = [item["metadata"]["name"] for item in world.store.objects(PARTITION_SLICE)]
    if names:
        world.store.delete(PARTITION_SLICE, world.namespace, world.random.choice(names), None)


@fault
def back_up_slices(world: World) -> None:
    world.backup = world.store.objects(PARTITION_SLICE)


@fault
def restore_slices(world: World) -> None:
    """Each as it was at the last backup, under running brokers (S17)."""
    for item in world.backup:
        metadata = item["metadata"]
        stored = world.store.get(PARTITION_SLICE, metadata["namespace"], metadata["name"])
        if stored is None:
            world.store.create(PARTITION_SLICE, copy.deepcopy(item))
        else:
            version = stored["metadata"]["resourceVersion"]
            older = {**item, "metadata": {**metadata, "resourceVersion": version}}
            world.store.replace(PARTITION_SLICE, older, status_only=False)
