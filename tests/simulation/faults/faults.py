"""What can go wrong, by name: each fault acts on the world, and undoes itself after its time.

A fault is data, so that a plan can be printed, replayed and shrunk. `heal` ends all that is still
going on. Which faults come when is drawn in fault_plan.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.simulation.clients.desired_topics import DesiredTopic
from tests.simulation.engine.broker_process import BrokerSlot
from tests.simulation.engine.clock import MILLION
from tests.simulation.engine.controller_process import ControllerSlot
from tests.simulation.engine.messages import MessageFaults
from tests.simulation.engine.network import LinkDelay
from tests.simulation.engine.processes import Machine, SimulatedProcess
from tests.simulation.engine.simulated_cluster import Cluster
from tests.simulation.engine.store import StoreFaults

REST_AFTER_MOVE_US = 3_000_000

Argument = int | str | float


@dataclass(frozen=True, slots=True)
class Fault:
    at_us: int
    kind: str
    arguments: tuple[Argument, ...] = ()

    def __str__(self) -> str:
        return f"{self.at_us / 1e6:.6f} {self.kind}{self.arguments}"


MAX_PARTITIONS = 4

Act = Callable[..., None]
ACTS: dict[str, Act] = {}


def schedule(cluster: Cluster, plan: "tuple[Fault, ...] | list[Fault]") -> None:
    for fault in plan:
        cluster.timeline.at(fault.at_us, apply, cluster, fault)


def apply(cluster: Cluster, fault: Fault) -> None:
    if cluster.is_healed:
        return
    cluster.coverage[f"fault {fault.kind}"] += 1
    cluster.note("fault", f"{fault.kind} {' '.join(map(str, fault.arguments))}".rstrip())
    ACTS[fault.kind](cluster, *fault.arguments)


def fault(act: Act) -> Act:
    """Known to plans by its name from here on."""
    ACTS[act.__name__] = act
    return act


def broker_of(cluster: Cluster, number: int) -> BrokerSlot:
    return tuple(cluster.brokers.values())[number]


def _controller(cluster: Cluster, number: int) -> ControllerSlot:
    return cluster.controllers[number]


def _machines(cluster: Cluster) -> list[Machine]:
    slots: list[BrokerSlot | ControllerSlot] = [*cluster.brokers.values(), *cluster.controllers]
    return [slot.machine for slot in slots]


# ---- processes


@fault
def kill_broker(cluster: Cluster, number: int) -> None:
    process = broker_of(cluster, number).process
    if process is not None:
        process.kill()


@fault
def kill_broker_in_call(cluster: Cluster, number: int, calls: int) -> None:
    """In the middle of the so-manieth call to its disk from now; a write may be cut short."""
    slot = broker_of(cluster, number)
    process = slot.process
    if process is not None:
        slot.machine.volume.crash_in(calls, process.kill, cuts_writes=True)


@fault
def freeze_broker(cluster: Cluster, number: int, for_us: int) -> None:
    process = broker_of(cluster, number).process
    if process is not None:
        freeze(cluster, process, for_us)


def freeze(cluster: Cluster, process: SimulatedProcess, for_us: int) -> None:
    process.freeze()
    cluster.timeline.after(for_us, process.thaw)


@fault
def stutter_broker(cluster: Cluster, number: int, most_us: int, for_us: int) -> None:
    """Short freezes, one after the other: a machine with too little processor."""
    slot = broker_of(cluster, number)
    ends_us = cluster.now_us + for_us

    def pause() -> None:
        if cluster.is_healed or cluster.now_us >= ends_us:
            return
        length_us = cluster.random.randint(1, most_us)
        if slot.process is not None:
            freeze(cluster, slot.process, length_us)
        cluster.timeline.after(length_us + cluster.random.randint(1, most_us), pause)

    pause()


@fault
def stop_broker(cluster: Cluster, number: int, down_us: int) -> None:
    """SIGTERM; the pod stays away for a while."""
    slot = broker_of(cluster, number)
    if slot.process is not None:
        slot.is_held_down = True
        slot.process.terminate()
        cluster.timeline.after(down_us, let_up, slot)


def let_up(slot: BrokerSlot | ControllerSlot) -> None:
    slot.is_held_down = False
    slot.start()


@fault
def roll_brokers(cluster: Cluster, apart_us: int) -> None:
    """A rolling restart, as careless as a drain of one node after the other."""
    for index in range(len(cluster.brokers)):
        cluster.timeline.after(index * apart_us, _terminate, cluster, index)


def _terminate(cluster: Cluster, number: int) -> None:
    process = broker_of(cluster, number).process
    if process is not None and not cluster.is_healed:
        process.terminate()


@fault
def delete_pod_by_force(cluster: Cluster, number: int, old_lives_us: int) -> None:
    """The successor starts on the same volume while the old process lives on."""
    slot = broker_of(cluster, number)
    old = slot.process
    slot.delete_pod_by_force()
    if old is not None:
        cluster.timeline.after(old_lives_us, old.kill)


# ---- machines


@fault
def lose_power(cluster: Cluster, number: int, off_us: int) -> None:
    _cut_power(cluster, broker_of(cluster, number), off_us)


@fault
def lose_power_in_call(cluster: Cluster, number: int, calls: int, off_us: int) -> None:
    slot = broker_of(cluster, number)
    slot.machine.volume.crash_in(calls, lambda: _cut_power(cluster, slot, off_us))


@fault
def lose_all_power(cluster: Cluster, off_us: int) -> None:
    """Of all brokers' machines; they boot one after the other."""
    for slot in cluster.brokers.values():
        _cut_power(cluster, slot, off_us + cluster.random.randrange(1_000_000))


def _cut_power(cluster: Cluster, slot: BrokerSlot, off_us: int) -> None:
    if not slot.machine.is_up:
        return
    cluster.coverage["power losses"] += 1
    for path, lost in slot.machine.lose_power().items():
        cluster.coverage[
            f"power loss: data {lost}" if not lost[0].isdigit() else "entries lost"
        ] += 1
        cluster.note(slot.machine.name, f"power lost: {path} {lost}")
    cluster.timeline.after(off_us, _boot, slot)


def _boot(slot: BrokerSlot | ControllerSlot) -> None:
    if not slot.machine.is_up:
        slot.machine.boot()
        slot.start()


@fault
def clock_rate(cluster: Cluster, number: int, rate_ppm: int, for_us: int) -> None:
    """Of any machine, controllers' too."""
    machine = _machines(cluster)[number]
    machine.set_clock_rate(rate_ppm)
    cluster.timeline.after(for_us, machine.set_clock_rate, MILLION)


@fault
def clock_jump(cluster: Cluster, number: int, by_us: int) -> None:
    """The wall clock; monotonic time does not jump."""
    _machines(cluster)[number].clock.wall_offset_us += by_us


# ---- disks


@fault
def flip_bit(cluster: Cluster, number: int) -> None:
    """In a segment of a log."""
    volume = broker_of(cluster, number).machine.volume
    found = volume.flip_bit(lambda path: path.endswith(".log"))
    volume.is_unreliable = volume.is_unreliable or bool(found)
    cluster.note(broker_of(cluster, number).machine.name, f"bit flipped: {found or 'nowhere'}")


@fault
def slow_disk(cluster: Cluster, number: int, call_us: int, for_us: int) -> None:
    volume = broker_of(cluster, number).machine.volume
    volume.slow_call_us = call_us
    volume.slow_until_us = cluster.now_us + for_us


@fault
def full_disk(cluster: Cluster, number: int, space_bytes: int, for_us: int) -> None:
    volume = broker_of(cluster, number).machine.volume
    volume.space_bytes = space_bytes
    cluster.timeline.after(for_us, setattr, volume, "space_bytes", None)


@fault
def fail_disk(cluster: Cluster, number: int, kind: str, calls: int) -> None:
    """EIO of the next reads, writes or syncs."""
    broker_of(cluster, number).machine.volume.io_failure[kind] = calls


@fault
def lose_write_back(cluster: Cluster, number: int) -> None:
    """The next sync with something to write fails, and its pages count as clean (S8)."""
    broker_of(cluster, number).machine.volume.lose_write_backs(1)


# ---- network


@fault
def block_link(cluster: Cluster, source: str, destination: str, for_us: int) -> None:
    """One direction."""
    cluster.network.block(source, destination)
    cluster.timeline.after(for_us, cluster.network.unblock, source, destination)


@fault
def isolate(cluster: Cluster, name: str, direction: str, for_us: int) -> None:
    """A machine from all others: `in`, `out` or `both`."""
    for other in _machines(cluster):
        if other.name == name:
            continue
        for source, destination in [(other.name, name)] * (direction != "out") + [
            (name, other.name)
        ] * (direction != "in"):
            block_link(cluster, source, destination, for_us)


@fault
def slow_link(cluster: Cluster, source: str, destination: str, most_us: int, for_us: int) -> None:
    link = (source, destination)
    cluster.network.delays[link] = LinkDelay(cluster.network.usual_delay.least_us, most_us)
    cluster.timeline.after(for_us, cluster.network.delays.pop, link, None)


@fault
def reset_connections(cluster: Cluster, name: str) -> None:
    """All of a machine's, as a stateful firewall that restarts would."""
    for machine in _machines(cluster):
        if machine.name == name:
            for process in tuple(machine.processes):
                for transport in tuple(process.sockets):
                    cluster.network.reset(transport)


@fault
def bad_messages(
    cluster: Cluster, lost: float, doubled: float, late: float, response_lost: float, for_us: int
) -> None:
    """Requests to controllers."""
    faults = cluster.controller_faults
    faults.request_lost, faults.request_doubled = lost, doubled
    faults.request_late, faults.response_lost = late, response_lost
    cluster.timeline.after(for_us, _good_messages, cluster)


def _good_messages(cluster: Cluster) -> None:
    good = MessageFaults()
    faults = cluster.controller_faults
    faults.request_lost, faults.request_doubled = good.request_lost, good.request_doubled
    faults.request_late, faults.response_lost = good.request_late, good.response_lost


# ---- controllers and the API server


@fault
def kill_controller(cluster: Cluster, number: int) -> None:
    process = _controller(cluster, number).process
    if process is not None:
        process.kill()


@fault
def stop_controller(cluster: Cluster, number: int) -> None:
    process = _controller(cluster, number).process
    if process is not None:
        process.terminate()


@fault
def freeze_controller(cluster: Cluster, number: int, for_us: int) -> None:
    """Long enough, and its successor leads when it thaws: two controllers at once."""
    process = _controller(cluster, number).process
    if process is not None:
        freeze(cluster, process, for_us)


@fault
def lose_controller_power(cluster: Cluster, number: int, off_us: int) -> None:
    """Its node falls silent: nothing refuses brokers that wait for its answers."""
    slot = _controller(cluster, number)
    if slot.machine.is_up:
        slot.machine.lose_power()
        cluster.timeline.after(off_us, _boot, slot)


@fault
def part_from_store(cluster: Cluster, number: int, loses: str, for_us: int) -> None:
    """One operator alone from the API server; brokers reach it all the while."""
    name = _controller(cluster, number).name
    cluster.store.out_of_reach[name] = loses
    cluster.timeline.after(for_us, cluster.store.out_of_reach.pop, name, None)


@fault
def api_outage(cluster: Cluster, for_us: int) -> None:
    cluster.store.is_down = True
    cluster.timeline.after(for_us, setattr, cluster.store, "is_down", False)


@fault
def bad_store(
    cluster: Cluster, conflict: float, lost: float, response_lost: float, most_us: int, for_us: int
) -> None:
    usual = cluster.store.faults
    cluster.store.faults = StoreFaults(conflict, lost, response_lost, usual.least_delay_us, most_us)
    cluster.timeline.after(for_us, setattr, cluster.store, "faults", StoreFaults())


# ---- what users do


@fault
def configure_topic(cluster: Cluster, topic: str, name: str, value: str) -> None:
    for desired_topic in cluster.topics:
        if desired_topic.topic == topic and desired_topic.is_wanted:
            desired_topic.config = {**desired_topic.config, name: value}


@fault
def grow_topic(cluster: Cluster, topic: str) -> None:
    for desired_topic in cluster.topics:
        if (
            desired_topic.topic == topic
            and desired_topic.is_wanted
            and desired_topic.partitions < MAX_PARTITIONS
        ):
            desired_topic.partitions += 1


@fault
def move_partition(cluster: Cluster, topic: str, number: int, first_broker: int) -> None:
    """To the brokers from that one on: to others, or only in another order of preference. The data
    of a deleted topic that is retained moves too."""
    ids = tuple(cluster.brokers)
    for desired_topic in cluster.topics:
        if desired_topic.topic == topic and not desired_topic.is_deleted:
            target = [
                ids[(first_broker + n) % len(ids)] for n in range(desired_topic.replication_factor)
            ]
            desired_topic.moves[number % desired_topic.partitions] = tuple(target)


@fault
def retain_topic(cluster: Cluster, topic: str, for_us: int) -> None:
    """Delete the Topic object with deletionPolicy Retain, and apply it again later.

    Moves of its data are complete by then, since a move takes longer than most retentions, and
    the data has been at rest for a while, which the checkers look at.
    """
    for desired_topic in cluster.topics:
        if desired_topic.topic == topic and desired_topic.is_wanted:
            desired_topic.is_retained = True
            cluster.timeline.after(for_us, _apply_once_moved, cluster, desired_topic)


def _apply_once_moved(cluster: Cluster, desired_topic: DesiredTopic) -> None:
    if desired_topic.moves and desired_topic.is_retained:
        cluster.timeline.after(REST_AFTER_MOVE_US, _apply_once_moved, cluster, desired_topic)
    else:
        desired_topic.is_retained = False


@fault
def recreate_topic(cluster: Cluster, topic: str) -> None:
    """Deleted and applied again under its name: another topic id."""
    for desired_topic in tuple(cluster.topics):
        if desired_topic.topic == topic and desired_topic.is_wanted:
            desired_topic.is_deleted = True
            cluster.create_topic(
                topic,
                partitions=desired_topic.partitions,
                replication_factor=desired_topic.replication_factor,
                commit_rule=desired_topic.commit_rule,
                flush=desired_topic.flush,
                config=dict(desired_topic.config),
            )


# ---- the end of all of it


def heal(cluster: Cluster) -> None:
    """Nothing is broken from now on; what died is started, what is planned does not happen."""
    cluster.healed_us = cluster.now_us
    cluster.note("fault", "healed")
    network = cluster.network
    network.blocked.clear()
    network.rejected.clear()
    network.delays.clear()
    network.held_up.clear()
    cluster.cut_off_since_us.clear()
    cluster.store.is_down = False
    if cluster.identities is not None:
        cluster.identities.is_away = False
    cluster.store.out_of_reach.clear()
    cluster.store.faults = StoreFaults()
    cluster.move_bytes_per_second = 0
    _good_messages(cluster)
    for machine in _machines(cluster):
        _heal_machine(machine)
    for desired_topic in cluster.topics:
        desired_topic.is_retained = False
    for name in tuple(cluster.lost_slices):
        cluster.put_back_lost(name)
    if cluster.coverage["slices put back"]:
        # Whoever restores objects under a running operator restarts it, as operations.md says: it
        # reads a slice again when it writes it, or when it takes over.
        for slot in cluster.controllers:
            if slot.process is not None:
                slot.process.kill()
    network.send_stalled_again()
    slots: list[Any] = [*cluster.controllers, *cluster.brokers.values()]
    for slot in slots:
        if slot.process is not None:
            slot.process.thaw()
        let_up(slot)
    for broker in cluster.brokers.values():
        for process in tuple(broker.previous):
            process.kill()


def _heal_machine(machine: Machine) -> None:
    machine.set_clock_rate(MILLION)
    volume = machine.volume
    volume.slow_until_us = volume.slow_call_us = volume.hangs_until_us = 0
    volume.space_bytes = None
    volume.io_failure.clear()
    volume.mend_sectors()
    volume.lose_write_backs(0)
    volume.forget_crash()
    if not machine.is_up:
        machine.boot()
