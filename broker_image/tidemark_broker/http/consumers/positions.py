"""Keep the positions of a consumer: committed offsets, or where the reset or a seek put them.

Positions belong to one generation: in the next one they are looked up again, because others may
have read on. What has been handed out is what the client may commit. Automatic commits take it only
when the client polls again: before that it may be processing it, or have died. A position that its
client sought, or that a reset gave, needs no such confirmation and has to be committed too: looked
up again it would be another one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.coordinator.core.consumer_protocol import TopicPartition
from tidemark_broker.http.consumers.group_member import CoordinatorLookup, Generation, GroupRejected
from tidemark_broker.http.consumers.peer_connections import BrokerConnections, BrokerUnavailable
from tidemark_broker.kafka_wire.messages.group_offsets import OFFSET_COMMIT_API, OFFSET_FETCH_API
from tidemark_broker.kafka_wire.messages.offsets import EARLIEST, LATEST, LIST_OFFSETS_API
from tidemark_broker.kafka_wire.messages.schema import Values
from tidemark_broker.metadata.metadata_cache import MetadataCache

RESPONSE_TIMEOUT_MS = 6_000  # a commit is answered within five seconds
RESETS = {"earliest": EARLIEST, "latest": LATEST}


class NoCommittedOffset(Exception):
    """An error: there is no committed offset, and `auto.offset.reset` is `none`."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(
            f"partition {partition[0]}-{partition[1]}: the group has no committed offset"
        )
        self.partition = partition


@dataclass(frozen=True, slots=True)
class Commit:
    """The offset of the record to be read next, with its metadata."""

    offset: int
    metadata: str = ""


@dataclass
class Positions:
    metadata: MetadataCache
    peers: BrokerConnections
    coordinator_lookup: CoordinatorLookup
    reset: str  # earliest, latest, none
    generation_id: int = -1
    next_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    handed_out: dict[TopicPartition, int] = field(default_factory=dict)  # and not committed yet
    confirmed: dict[TopicPartition, int] = field(default_factory=dict)  # of that: worked on, too
    put_last: dict[TopicPartition, int] = field(default_factory=dict)  # at these offsets

    def enter(self, generation: Generation) -> None:
        """Forget what belongs to another generation."""
        if self.generation_id != generation.generation_id:
            self.generation_id = generation.generation_id
            self.next_offsets.clear()
            self.handed_out.clear()
            self.confirmed.clear()
            self.put_last.clear()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.next_offsets[partition] = offset
        self.handed_out[partition] = self.confirmed[partition] = offset

    def confirm(self) -> None:
        """Record that the client polled again: it has finished what it received."""
        self.confirmed = dict(self.handed_out)

    def hand_out(self, partition: TopicPartition, offset: int, next_offset: int) -> bool:
        """Record records that are sent; return False if they are no longer the next ones.

        After a seek or in another generation what was read from `offset` on does not come next.
        """
        if self.next_offsets.get(partition) != offset:
            return False
        self.next_offsets[partition] = self.handed_out[partition] = next_offset
        return True

    def in_reading_order(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions; those that were put last at their present offset come last."""

        def is_last(place: TopicPartition) -> bool:
            offset = self.next_offsets.get(place)
            return offset is not None and self.put_last.get(place) == offset

        return sorted(partitions, key=is_last)

    # ---- looking up

    async def look_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Look up the positions of partitions that have none.

        Raises BrokerUnavailable, GroupRejected, NoCommittedOffset.
        """
        missing = [place for place in partitions if place not in self.next_offsets]
        if not missing:
            return
        generation_id = self.generation_id
        committed = await self.committed(missing)
        found = {place: commit.offset for place, commit in committed.items()}
        ends: dict[TopicPartition, int] = {}
        for place in missing:
            if place in found:
                continue
            if self.reset not in RESETS:
                raise NoCommittedOffset(place)
            ends[place] = await self.end_of(place, RESETS[self.reset])
        if generation_id != self.generation_id:
            return
        for place, offset in ends.items():
            if place not in self.next_offsets:  # its client may have gone elsewhere meanwhile
                self.seek(place, offset)
        self.next_offsets = found | self.next_offsets

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Commit]:
        """Return the committed offsets of partitions that have one.

        Raises BrokerUnavailable, GroupRejected.
        """
        requested = {"group_id": self.coordinator_lookup.group_id, "topics": _by_topic(partitions)}
        response = await self.coordinator_lookup.ask(
            OFFSET_FETCH_API, {"groups": (requested,)}, RESPONSE_TIMEOUT_MS
        )
        (found,) = response["groups"]
        if found["error"] != ErrorCode.NONE:
            raise GroupRejected(ErrorCode(found["error"]))
        return {
            (topic["topic"], entry["partition"]): Commit(entry["offset"], entry["metadata"] or "")
            for topic in found["topics"]
            for entry in topic["partitions"]
            if entry["offset"] >= 0
        }

    async def end_of(self, partition: TopicPartition, end: int) -> int:
        """Return the log's EARLIEST or LATEST offset.

        Raises BrokerUnavailable.
        """
        topic, number = partition
        state = self.metadata.partition(topic, number)
        if state is None or not state.has_leader:
            raise BrokerUnavailable(f"partition {topic}-{number}: no leader at the moment")
        link = await self.peers.broker(state.leader)
        requested = {"partition": number, "current_leader_epoch": -1, "timestamp": end}
        response = await link.ask(
            LIST_OFFSETS_API,
            {"replica_id": -1, "topics": ({"topic": topic, "partitions": (requested,)},)},
            RESPONSE_TIMEOUT_MS,
        )
        entry = response["topics"][0]["partitions"][0]
        if entry["error"] != ErrorCode.NONE:
            raise BrokerUnavailable(f"{topic}-{number}: {ErrorCode(entry['error']).name}")
        return max(0, int(entry["offset"]))

    # ---- committing

    async def commit(
        self, generation: Generation, commits: dict[TopicPartition, Commit]
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit offsets; return the error of each.

        Raises BrokerUnavailable: they may be committed or not.
        """
        topics: dict[str, list[Values]] = {}
        for (topic, number), commit in commits.items():
            entry = {"partition": number, "offset": commit.offset, "metadata": commit.metadata}
            topics.setdefault(topic, []).append(entry)
        values = {
            "generation_id": generation.generation_id,
            "member_id": generation.member_id,
            "topics": tuple(
                {"topic": topic, "partitions": tuple(entries)} for topic, entries in topics.items()
            ),
        }
        response = await self.coordinator_lookup.ask(OFFSET_COMMIT_API, values, RESPONSE_TIMEOUT_MS)
        errors = {
            (topic["topic"], entry["partition"]): ErrorCode(entry["error"])
            for topic in response["topics"]
            for entry in topic["partitions"]
        }
        for place, error in errors.items():
            is_newest = self.handed_out.get(place) == commits[place].offset
            if error is not ErrorCode.NONE:
                continue
            self.confirmed.pop(place, None)  # what came before: it is not gone back to
            if is_newest:
                del self.handed_out[place]
        return errors


def _by_topic(partitions: Iterable[TopicPartition]) -> tuple[Values, ...]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return tuple(
        {"topic": topic, "partitions": tuple(numbers)} for topic, numbers in topics.items()
    )
