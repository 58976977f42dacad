"""Ambushes of what a disk is trusted with: bits that flip in what no start has read yet, cuts
that a lost kernel gives back, syncs that failed before a clean stop; and profiles made of them.

Each makes the events that a guard of the storage is there for in their order: by chance they meet
once in thousands of seeds. For mutants and hunting, as those of `triggered_faults.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tidemark_broker.kafka_wire.records.record_batch import read_header
from tidemark_broker.log.checkpoint_formats import (
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    MalformedFile,
    decode_offsets,
)
from tidemark_broker.log.synced_prefix import SYNCED_SUFFIX, decode_synced_prefix
from tidemark_broker.replication.partition import Partition
from tidemark_protocol.ids import NO_EPOCH, Offset
from tidemark_protocol.record_batch_writer import HEADER_BYTES

from tests.simulation.clients.clients import PassingReader, Surroundings
from tests.simulation.engine.broker_process import DATA_DIRECTORY, BrokerSlot
from tests.simulation.engine.disk import SimulatedFile
from tests.simulation.engine.disk_image import DiskImage, FileNode
from tests.simulation.engine.simulated_cluster import Cluster
from tests.simulation.faults.fault_plan import Arguments
from tests.simulation.faults.faults import broker_of, fault, let_up, lose_all_power, lose_power
from tests.simulation.faults.triggered_faults import ALL_IN_SYNC, LOOK_EVERY_US, when

WAIT_US = 10_000_000
SHORT_US = 50_000
HIGH_LENGTH_BYTE = 9  # of a batch: a bit there makes it longer than any file here


# ---- bits that flip between two lives, where the next one reads


@fault
def flip_in_tail(cluster: Cluster, number: int, part: str, end: str) -> None:
    """A bit flips in a committed batch past the recovery point of a broker that was killed, or that
    stopped in order. `part`: of the batch, its `length` or its `body`."""
    slot = broker_of(cluster, number)
    _flip_between_lives(cluster, slot, part, end, lambda node: let_up(slot))


@fault
def flip_in_tail_and_kill(cluster: Cluster, number: int) -> None:
    """And the start that reads it, and cuts, is killed before it could say so (S1)."""
    slot = broker_of(cluster, number)

    def kill() -> None:
        if slot.process is not None:
            cluster.coverage["killed between recovery and registration"] += 1
            slot.process.kill()

    def go_on(node: FileNode) -> None:
        size_bytes = len(node.data)
        let_up(slot)
        when(cluster, lambda: len(node.data) < size_bytes, kill, WAIT_US)

    _flip_between_lives(cluster, slot, "body", "kill", go_on)


@dataclass(frozen=True, slots=True)
class _Tail:
    """Of a replica as it was when its process ended."""

    topic: str
    partition: int
    high_watermark: int
    path: Path  # of its active segment
    node: FileNode

    @staticmethod
    def of(replica: Partition) -> "_Tail":
        segment = replica.log.segments[-1]
        assert isinstance(segment.file, SimulatedFile)
        return _Tail(
            replica.topic,
            replica.partition,
            replica.high_watermark,
            segment.path,
            segment.file.node,
        )

    def batches(self, from_offset: int) -> list[tuple[FileNode, int]]:
        """(file, position) of each from there on that is committed."""
        found, position = [], 0
        while position < len(self.node.data):
            header = read_header(self.node.data, position)
            if header.base_offset >= from_offset and header.next_offset <= self.high_watermark:
                found.append((self.node, position))
            position += header.size_bytes
        return found


def _flip_between_lives(
    cluster: Cluster, slot: BrokerSlot, part: str, end: str, go_on: Callable[[FileNode], None]
) -> None:
    """Which goes on with the file in which a bit flipped."""
    if slot.process is None or slot.partitions is None or slot.is_held_down:
        return
    tails = [_Tail.of(replica) for replica in slot.partitions.replicas]
    slot.is_held_down = True
    if end == "stop":
        slot.process.terminate()
    else:
        slot.process.kill()

    def flip() -> None:
        image = slot.machine.volume.image
        batches = [
            batch
            for tail in tails
            # After a clean stop the last ones are all that a start looks at.
            for batch in (
                tail.batches(0)[-1:] if end == "stop" else tail.batches(_verified_from(image, tail))
            )
        ]
        cluster.coverage[f"flipped in a tail: {part if batches else 'nothing'}"] += 1
        if not batches:
            let_up(slot)
            return
        node, position = cluster.random.choice(batches)
        _flip(cluster, node, position, part)
        go_on(node)

    when(cluster, lambda: slot.process is None, flip, WAIT_US)


def _verified_from(image: DiskImage, tail: _Tail) -> int:
    """What was synced before it, as the volume says, is taken as it is."""
    known = _offsets(image, RECOVERY_POINTS).get((tail.topic, tail.partition), 0)
    try:
        part = decode_synced_prefix(bytes(image.file(tail.path.with_suffix(SYNCED_SUFFIX)).data))
    except FileNotFoundError:
        return known
    return max(known, part.next_offset)


def _offsets(image: DiskImage, name: str) -> dict[tuple[str, int], Offset]:
    try:
        return decode_offsets(bytes(image.file(DATA_DIRECTORY / name).data))
    except (FileNotFoundError, MalformedFile):
        return {}


def _flip(cluster: Cluster, node: FileNode, position: int, part: str) -> int:
    """Where."""
    if part == "length":
        at = position + HIGH_LENGTH_BYTE
    else:
        size_bytes = read_header(node.data, position).size_bytes
        at = position + cluster.random.randrange(HEADER_BYTES, size_bytes)
    node.data[at] ^= 1 << cluster.random.randrange(8)
    node.flipped_positions.add(at)
    cluster.note("fault", f"bit flipped at {at} of {len(node.data)}")
    return at


@fault
def flip_and_read(cluster: Cluster, number: int, end: str) -> None:
    """A bit flips in a committed batch under a running broker, and a reader asks it for that very
    batch. `end`: "" or what becomes of the process soon after: `kill`, `stop`."""
    _corruption_and_read(cluster, number, end, "flipped where a reader looks")


@fault
def spoil_and_read(cluster: Cluster, number: int, end: str) -> None:
    """The same of a sector: until all is well again its drive cannot read it, and then reads
    something else."""
    _corruption_and_read(cluster, number, end, "unreadable where a reader looks")


@fault
def miss_and_read(cluster: Cluster, number: int, end: str) -> None:
    """Until its replica is known as damaged a sector cannot be read, and then again as it was.
    `end`: `power` too, of all brokers."""
    _corruption_and_read(cluster, number, end, "unreadable once where a reader looks")


def _corruption_and_read(cluster: Cluster, number: int, end: str, how: str) -> None:
    slot = broker_of(cluster, number)
    if slot.partitions is None:
        return
    committed = [
        (replica, node, position)
        for replica in slot.partitions.replicas
        for node, position in _Tail.of(replica).batches(0)
        if replica.topic == "orders"
    ]
    if not committed:
        return
    replica, node, position = cluster.random.choice(committed)
    cluster.coverage[how] += 1
    at = position + HEADER_BYTES
    if how != "unreadable once where a reader looks":
        at = _flip(cluster, node, position, "body")
    if how != "flipped where a reader looks":
        node.bad_positions.add(at)
    offset = read_header(node.data, position).base_offset

    def make(around: Surroundings, chance: Random) -> PassingReader:
        return PassingReader(around, chance, slot.broker_id, replica.partition, offset)

    cluster.call_client(make)
    process = slot.process
    assert process is not None
    strikes: dict[str, Callable[[], None]] = {
        "kill": process.kill,
        "stop": process.terminate,
        "power": lambda: lose_all_power(cluster, SHORT_US),
    }

    def strike() -> None:
        if how == "unreadable once where a reader looks":
            node.bad_positions.discard(at)
        if end:
            _soon(cluster, strikes[end])

    when(cluster, lambda: replica.corruption is not None, strike, WAIT_US)


def _soon(cluster: Cluster, act: Callable[[], None]) -> None:
    cluster.timeline.after(cluster.random.randint(1_000, SHORT_US), act)


# ---- syncs that failed, and what later syncs are worth


@fault
def fail_sync_stop_and_strike(cluster: Cluster, number: int, live_us: int) -> None:
    """A sync fails, and the broker ends. The next life has the same pages in memory; it stops in
    order, and then the power fails (S8)."""
    slot = broker_of(cluster, number)
    volume, process = slot.machine.volume, slot.process
    lost_before = volume.syncs_lost
    volume.lose_write_backs(1, of=lambda path: path.endswith(".log"))

    def has_next_epoch() -> bool:
        is_next = volume.syncs_lost > lost_before and slot.process not in (None, process)
        return is_next and slot.partitions is not None and slot.partitions.broker_epoch != NO_EPOCH

    def stop() -> None:
        if cluster.is_healed or slot.process is None:
            return
        slot.is_held_down = True
        slot.process.terminate()
        when(cluster, lambda: slot.process is None, strike, WAIT_US)

    def strike() -> None:
        cluster.coverage["power lost after a stop after a lost sync"] += 1
        slot.is_held_down = False
        lose_power(cluster, number, SHORT_US)

    when(cluster, has_next_epoch, lambda: cluster.timeline.after(live_us, stop), WAIT_US)


# ---- cuts, and what a lost kernel makes of them


@dataclass(frozen=True, slots=True)
class _Truncation:
    number: int  # of the broker
    replica: Partition
    to_offset: int
    recovery_point: int  # as it was before


class _Truncations:
    """What brokers cut from now on, looked at again and again."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[Any, tuple[int, int]] = {}  # replica: (truncated records, recovery point)
        self.found: list[_Truncation] = []
        self.look()

    def look(self) -> None:
        for number, slot in enumerate(self._cluster.brokers.values()):
            for replica in () if slot.partitions is None else slot.partitions.replicas:
                cut = replica.snapshot(0).truncated_records
                before = self._known.get(replica, (0, 0))
                self._known[replica] = (cut, int(replica.log.recovery_point))
                if cut > before[0]:
                    end_offset = int(replica.log.log_end_offset)
                    self.found.append(_Truncation(number, replica, end_offset, before[1]))


@fault
def strike_who_wrote_down(cluster: Cluster, wait_us: int) -> None:
    """A broker's power fails once it cut its log, and has written down a watermark past the cut,
    over what it fetched in the place of the old records (S29)."""
    _strike(cluster, wait_us, "struck after a watermark past a cut", _has_written_down)


def _has_written_down(cluster: Cluster, cut: _Truncation) -> bool:
    offsets = _offsets(broker_of(cluster, cut.number).machine.volume.image, HIGH_WATERMARKS)
    return offsets.get((cut.replica.topic, cut.replica.partition), 0) > cut.to_offset


@fault
def strike_who_trusts_a_sync(cluster: Cluster, wait_us: int) -> None:
    """A broker's power fails once something was committed in the place of what it cut, and its log
    is not as long again as what it had synced before (S11)."""
    _strike(cluster, wait_us, "struck before it was as long as before a cut", _has_less_than_before)


def _has_less_than_before(cluster: Cluster, cut: _Truncation) -> bool:
    replica = cut.replica
    end_offset = replica.log.log_end_offset
    return cut.to_offset < replica.high_watermark <= end_offset <= cut.recovery_point


def _strike(
    cluster: Cluster, wait_us: int, counted: str, is_moment: Callable[[Cluster, _Truncation], bool]
) -> None:
    ends_us = cluster.now_us + wait_us
    cuts = _Truncations(cluster)

    def look() -> None:
        if cluster.is_healed or cluster.now_us >= ends_us:
            return
        cuts.look()
        for cut in cuts.found:
            if is_moment(cluster, cut):
                cluster.coverage[counted] += 1
                lose_power(cluster, cut.number, SHORT_US)
                return
        cluster.timeline.after(LOOK_EVERY_US, look)

    look()


DISK_TRIGGERED_FAULTS: dict[str, Arguments] = {
    "flip_in_tail": lambda d: (
        d.broker,
        *d.chance.choice((("length", "kill"), ("body", "kill"), ("length", "stop"))),
    ),
    "flip_in_tail_and_kill": lambda d: (d.broker,),
    "flip_and_read": lambda d: (d.broker, d.chance.choice(("", "kill", "stop"))),
    "spoil_and_read": lambda d: (d.broker, d.chance.choice(("", "kill", "stop"))),
    "miss_and_read": lambda d: (d.broker, d.chance.choice(("", "kill", "power"))),
    "fail_sync_stop_and_strike": lambda d: (d.broker, d.us(200, 1_500)),
    "strike_who_wrote_down": lambda d: (8_000_000,),
    "strike_who_trusts_a_sync": lambda d: (8_000_000,),
}

DISK_PROFILES: dict[str, dict[str, int]] = {
    "tails flip": {"flip_in_tail": 4},
    "synced tails flip": {"flip_in_tail": 4},
    "starts are cut short": {"flip_in_tail_and_kill": 3},
    "synced starts are cut short": {"flip_in_tail_and_kill": 3},
    "damage is met": {"flip_and_read": 4},
    "sectors fail": {"spoil_and_read": 4},
    "reads fail once": {"miss_and_read": 4},
    "syncs lie before a stop": {"fail_sync_stop_and_strike": 3},
    "cuts come back": {"strike_who_wrote_down": 2, "kill_leader": 5, "slow_followers": 5},
    "cuts are trusted": {"strike_who_trusts_a_sync": 2, "kill_leader": 6, "slow_followers": 6},
    "segments roll": {"short_power_loss": 6, "lose_power_in_call": 3},
}

# Of Shape, beside what the seed drew.
DISK_SHAPES: dict[str, dict[str, Any]] = {
    "tails flip": ALL_IN_SYNC,
    "synced tails flip": {**ALL_IN_SYNC, "flush": "Always"},
    "starts are cut short": ALL_IN_SYNC,
    "synced starts are cut short": {**ALL_IN_SYNC, "flush": "Always"},
    "syncs lie before a stop": ALL_IN_SYNC,
    "cuts come back": {"flush": "Os"},
    "cuts are trusted": {"flush": "Always"},
    "segments roll": {
        "flush": "Always",
        "record_bytes": 400,
        "config": (("segment.bytes", "16384"),),
    },
}
