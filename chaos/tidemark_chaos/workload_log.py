"""Write a workload run's events, one JSON object a line, and read them back.

The log is the only source of the verdict: what was acknowledged, and when. `operations` joins a run
and the read of the whole log after it into the history that `history_checker.check` judges. Records
of other runs are left out: they have no sequence here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from tidemark_chaos.history_checker import ACKS_ALL, Kind, Operation, Outcome

ACKNOWLEDGED = "acknowledged"
REFUSED = "refused"
UNKNOWN = "unknown"
FOREIGN = -1  # sequence of a record that another run wrote


class Started(msgspec.Struct, frozen=True, tag="started", tag_field="event", omit_defaults=True):
    t_ms: float  # Unix time
    run_id: str
    topic: str
    partitions: int
    interval_ms: float
    acks: str = "all"
    group: str = ""  # of the consumers by group


class Produced(msgspec.Struct, frozen=True, tag="produced", tag_field="event", omit_defaults=True):
    """Record the outcome of one record; `t_ms` is when it became known."""

    t_ms: float
    partition: int
    sequence: int
    outcome: str
    latency_ms: float
    offset: int = -1
    error: str = ""
    producer: int = -1  # which idempotent producer of the partition; -1: none
    acks: str = ""  # where they differ from record to record

    @property
    def is_promised(self) -> bool:
        """Return whether an acknowledgement is meant to count: of acks 0 and 1 in a mix, not."""
        return self.acks in ("", "all")


class Read(msgspec.Struct, frozen=True, tag="read", tag_field="event", omit_defaults=True):
    """Records that a consumer saw at offset, offset + 1, ...: their sequences, or FOREIGN."""

    t_ms: float
    partition: int
    offset: int
    sequences: list[int]
    took_ms: float = 0.0
    high_watermark: int = -1  # as the answer told it
    rack: str = ""  # of a consumer that may read from followers


class Stalled(msgspec.Struct, frozen=True, tag="stalled", tag_field="event"):
    """Record that the workload itself got no processor until `t_ms`: no fault of the brokers."""

    t_ms: float
    late_ms: float


class Violation(msgspec.Struct, frozen=True, tag="complaint", tag_field="event"):
    """Record an observation of the consumer that must never occur."""

    t_ms: float
    partition: int
    text: str


class Finished(msgspec.Struct, frozen=True, tag="finished", tag_field="event"):
    t_ms: float
    acknowledged: int
    refused: int
    unknown: int
    read: int
    complaints: int


class GroupRead(
    msgspec.Struct, frozen=True, tag="group-read", tag_field="event", omit_defaults=True
):
    """Record what a member of the consumer group received of a partition."""

    t_ms: float
    member: int
    partition: int
    offsets: list[int]


class GroupCommitted(
    msgspec.Struct, frozen=True, tag="group-committed", tag_field="event", omit_defaults=True
):
    """Record the outcome of a commit; the position is the next offset to read."""

    t_ms: float
    member: int
    partition: int
    position: int
    outcome: str
    error: str = ""


Event = Started | Produced | Read | Stalled | Violation | Finished | GroupRead | GroupCommitted
_DECODER = msgspec.json.Decoder(Event)


def encode_event(event: Event) -> bytes:
    return msgspec.json.encode(event) + b"\n"


def decode_event(line: bytes) -> Event:
    """Decode a line of the log.

    Raises msgspec.DecodeError or ValidationError.
    """
    event: Event = _DECODER.decode(line)
    return event


def record_value(run_id: str, partition: int, sequence: int) -> bytes:
    """Return a value that is unique over all runs and names its run, partition and sequence."""
    return f"{run_id}:{partition}:{sequence}".encode()


def sequence_of(run_id: str, partition: int, value: bytes | None) -> int:
    """Return the sequence of a value of this run in this partition, else FOREIGN."""
    parts = (value or b"").split(b":")
    if len(parts) != 3 or parts[0] != run_id.encode() or not parts[2].isdigit():
        return FOREIGN
    return int(parts[2]) if parts[1] == b"%d" % partition else FOREIGN


@dataclass(slots=True)
class WorkloadLog:
    """Hold a whole run by partition: sequence -> acknowledged offset, and so on."""

    run_id: str = ""
    topic: str = ""
    partitions: int = 0
    group: str = ""
    is_finished: bool = False
    unreadable_lines: int = 0
    acknowledged: dict[int, dict[int, int]] = field(default_factory=dict)
    acknowledged_at_ms: dict[int, list[float]] = field(default_factory=dict)
    refused: dict[int, set[int]] = field(default_factory=dict)
    unknown: dict[int, set[int]] = field(default_factory=dict)
    read: dict[int, dict[int, int]] = field(default_factory=dict)  # offset -> sequence
    complaints: list[str] = field(default_factory=list)
    stalls: list[Stalled] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def acknowledged_count(self) -> int:
        return sum(len(offsets) for offsets in self.acknowledged.values())

    @property
    def unknown_count(self) -> int:
        return sum(len(sequences) for sequences in self.unknown.values())

    def on_event(self, event: Event) -> None:
        match event:
            case Started():
                self.run_id, self.topic = event.run_id, event.topic
                self.partitions, self.group = event.partitions, event.group
            case Produced():
                self._on_produced(event)
            case Read():
                seen = self.read.setdefault(event.partition, {})
                for offset, sequence in enumerate(event.sequences, start=event.offset):
                    if seen.setdefault(offset, sequence) != sequence:  # I7
                        self.complaints.append(
                            f"partition {event.partition}: offset {offset} read as record "
                            f"{seen[offset]} and later as {sequence}"
                        )
            case Stalled():
                self.stalls.append(event)
            case Violation():
                self.complaints.append(f"partition {event.partition}: {event.text}")
            case Finished():
                self.is_finished = True

    def _on_produced(self, event: Produced) -> None:
        match event.outcome:
            case "acknowledged" if not event.is_promised:
                self.acknowledged_at_ms.setdefault(event.partition, []).append(event.t_ms)
            case "acknowledged":
                self.acknowledged.setdefault(event.partition, {})[event.sequence] = event.offset
                self.acknowledged_at_ms.setdefault(event.partition, []).append(event.t_ms)
                self.latencies_ms.append(event.latency_ms)
            case "refused":
                self.refused.setdefault(event.partition, set()).add(event.sequence)
            case _:
                self.unknown.setdefault(event.partition, set()).add(event.sequence)


def read_workload_log(lines: Iterable[bytes], events: list[Event] | None = None) -> WorkloadLog:
    """Lines that are no events (a cut last line) are counted, not trusted. `events` gets them."""
    workload_log = WorkloadLog()
    add_to_workload_log(workload_log, lines, events)
    return workload_log


def add_to_workload_log(
    workload_log: WorkloadLog, lines: Iterable[bytes], events: list[Event] | None = None
) -> None:
    for line in lines:
        if not line.strip():
            continue
        try:
            event = decode_event(line)
        except (msgspec.DecodeError, msgspec.ValidationError):
            workload_log.unreadable_lines += 1
            continue
        workload_log.on_event(event)
        if events is not None:
            events.append(event)


def write_gap_ms(
    acknowledged_at_ms: list[float], window: tuple[float, float] | None = None
) -> float:
    """Return the longest time between two acknowledgements of a partition within a window.

    A gap counts if it overlaps the window; a partition that stays silent counts to the window's
    end.
    """
    times = sorted(acknowledged_at_ms)
    if window is None:
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)
    start_ms, end_ms = window
    if not times or times[-1] < end_ms:
        times.append(end_ms)
    if times[0] > start_ms:
        times.insert(0, start_ms)
    return max(
        (
            later - earlier
            for earlier, later in pairwise(times)
            if later > start_ms and earlier < end_ms
        ),
        default=0.0,
    )


def longest_write_gap_ms(
    workload_log: WorkloadLog, window: tuple[float, float] | None = None
) -> float:
    """Over all partitions of the run."""
    return max(
        (
            write_gap_ms(workload_log.acknowledged_at_ms.get(partition, []), window)
            for partition in range(workload_log.partitions)
        ),
        default=0.0,
    )


def longest_stall_ms(workload_log: WorkloadLog, window: tuple[float, float]) -> float:
    """Return how much of a gap in this window may be the workload's own."""
    start_ms, end_ms = window
    return max(
        (
            stall.late_ms
            for stall in workload_log.stalls
            if stall.t_ms > start_ms and stall.t_ms - stall.late_ms < end_ms
        ),
        default=0.0,
    )


# Of a mix, whose records name their own.
NUMBER_OF_ACKS = {"": ACKS_ALL, "all": ACKS_ALL, "mixed": ACKS_ALL, "1": 1, "0": 0}
_OUTCOMES = {ACKNOWLEDGED: Outcome.OK, REFUSED: Outcome.FAIL}


def operations(
    events: Iterable[Event], found: Mapping[int, Mapping[int, int]], *, at_ms: float
) -> Iterator[Operation]:
    """Yield operations in the order of completion.

    `found`: partition -> offset -> sequence, read at `at_ms`.
    """
    acks = ""
    for event in events:
        if isinstance(event, Started):
            acks = event.acks
        elif isinstance(event, Produced):
            yield _send(event, NUMBER_OF_ACKS[event.acks or acks])
        elif isinstance(event, Read):
            shown = enumerate(event.sequences, start=event.offset)
            own = [pair for pair in shown if pair[1] != FOREIGN]
            if own:
                yield _poll(event, own)
    for partition in sorted(found):
        shown_at_end = [pair for pair in sorted(found[partition].items()) if pair[1] != FOREIGN]
        yield Operation(
            process=f"verify-{partition}",
            kind=Kind.POLL,
            outcome=Outcome.OK,
            partition=str(partition),
            values=tuple(sequence for _, sequence in shown_at_end),
            offsets=tuple(offset for offset, _ in shown_at_end),
            invoked_us=_us(at_ms),
            completed_us=_us(at_ms),
            is_reset=True,
            is_final=True,
            log_start_offset=min(found[partition], default=0),
            high_watermark=max(found[partition], default=-1) + 1,
        )


def _send(event: Produced, acks: int) -> Operation:
    return Operation(
        process=f"producer-{event.partition}-{event.producer}",
        kind=Kind.SEND,
        outcome=_OUTCOMES.get(event.outcome, Outcome.INFO),
        partition=str(event.partition),
        values=(event.sequence,),
        offsets=(event.offset,) if event.outcome == ACKNOWLEDGED else (),
        invoked_us=_us(event.t_ms - event.latency_ms),
        completed_us=_us(event.t_ms),
        acks=acks,
        is_idempotent=event.producer >= 0,
    )


def _poll(event: Read, shown: list[tuple[int, int]]) -> Operation:
    return Operation(
        process=f"consumer-{event.rack}-{event.partition}",
        kind=Kind.POLL,
        outcome=Outcome.OK,
        partition=str(event.partition),
        values=tuple(sequence for _, sequence in shown),
        offsets=tuple(offset for offset, _ in shown),
        invoked_us=_us(event.t_ms - event.took_ms),
        completed_us=_us(event.t_ms),
        high_watermark=event.high_watermark,
    )


def _us(t_ms: float) -> int:
    return round(t_ms * 1000)
