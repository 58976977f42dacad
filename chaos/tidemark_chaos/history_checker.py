"""Check a history of client calls against the promises of a replicated log.

The anomalies are those of jepsen.tests.kafka that apply without transactions, and the rules that
Redpanda's chaos suite checks while it runs. `check` takes completed operations of any number of
partitions and returns named anomalies; it sorts, and else passes over them a few times.

Only acks=all promises that a record stays; a record of acks 0 or 1 may be lost until somebody read
it. After an unclean election a partition is judged only below the new leader's start offset
(invariants.md). The simulator and the harness of real processes both use this module.
"""

import bisect
import enum
import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

MAX_SAMPLES = 8

ACKS_ALL = -1

# Anomalies that are worth a number but break no promise.
REPORTED_ONLY = frozenset({"duplicate-without-idempotence", "lost-unpromised"})


class Kind(enum.Enum):
    SEND = "send"
    POLL = "poll"


class Outcome(enum.Enum):
    """FAIL: certainly did not happen. INFO: may have happened, or may yet."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Operation:
    """Record one client call.

    A send without a response is INFO, with `completed_us` at the end.

    `values` are unique per partition over the whole history, whoever sends. `offsets` are those of
    `values`; empty for a send whose offsets were not returned. A process is one client in one life;
    its polls follow each other, its sends may overlap.
    """

    process: str
    kind: Kind
    outcome: Outcome
    partition: str
    values: tuple[int, ...]
    offsets: tuple[int, ...]
    invoked_us: int
    completed_us: int
    acks: int = ACKS_ALL
    is_idempotent: bool = False
    is_reset: bool = False  # a poll from a position of its own, not from where the last one ended
    is_final: bool = False  # of a read of the whole log, after everything
    log_start_offset: int = 0  # as the poll's answer told it: what is below may be gone
    high_watermark: int = -1  # as the poll's answer told it; -1: not told


@dataclass(frozen=True, slots=True)
class SuspendedGuarantee:
    """Promises that do not hold for one partition."""

    from_offset: int | None = None  # unclean election: the new leader's start offset
    is_compacted: bool = False  # records may be gone from anywhere
    is_deleted: bool = False  # its topic is gone: nobody could read to the end


@dataclass(frozen=True, slots=True)
class Anomaly:
    name: str
    count: int
    samples: tuple[str, ...]  # the worst first


@dataclass(frozen=True, slots=True)
class Verdict:
    anomalies: tuple[Anomaly, ...]  # by name
    operations: dict[str, int]  # "send ok": how many
    worst_realtime_lag_us: int  # a poll that had not yet seen what was long known
    longest_send_gap_us: int  # between two acknowledgements of one partition

    @property
    def failures(self) -> tuple[Anomaly, ...]:
        return tuple(entry for entry in self.anomalies if entry.name not in REPORTED_ONLY)

    @property
    def is_clean(self) -> bool:
        return not self.failures

    def count(self, name: str) -> int:
        return next((entry.count for entry in self.anomalies if entry.name == name), 0)


NOTHING_SUSPENDED = SuspendedGuarantee()


def check(
    operations: Iterable[Operation], suspensions: Mapping[str, SuspendedGuarantee] | None = None
) -> Verdict:
    """`operations` in the order of their completion."""
    counts: Counter[str] = Counter()
    partitions: dict[str, _PartitionHistory] = {}
    findings = _Findings()
    for operation in operations:
        counts[f"{operation.kind.value} {operation.outcome.value}"] += 1
        found = partitions.get(operation.partition)
        if found is None:
            suspended = (suspensions or {}).get(operation.partition, NOTHING_SUSPENDED)
            found = _PartitionHistory(operation.partition, suspended, findings)
            partitions[operation.partition] = found
        found.add(operation)
    lag_us = gap_us = 0
    for name in sorted(partitions):
        lag_us = max(lag_us, partitions[name].conclude())
        gap_us = max(gap_us, partitions[name].longest_send_gap_us)
    return Verdict(findings.anomalies(), dict(sorted(counts.items())), lag_us, gap_us)


class _Findings:
    """Counts per anomaly, and the worst few of each."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._worst: dict[str, list[tuple[int, int, str]]] = {}

    def add(self, name: str, text: str, *, badness: int = 0) -> None:
        self._counts[name] += 1
        worst = self._worst.setdefault(name, [])
        entry = (badness, -self._counts[name], text)  # among equals the first is kept
        if len(worst) < MAX_SAMPLES:
            heapq.heappush(worst, entry)
        elif entry > worst[0]:
            heapq.heapreplace(worst, entry)

    def anomalies(self) -> tuple[Anomaly, ...]:
        return tuple(
            Anomaly(
                name,
                self._counts[name],
                tuple(text for *_, text in sorted(self._worst[name], reverse=True)),
            )
            for name in sorted(self._counts)
        )


@dataclass(slots=True)
class _Seen:
    """Hold what is known of one value of one partition."""

    writer: Operation | None = None
    sent_to: int | None = None  # the acknowledged offset
    offsets: list[int] = field(default_factory=list)  # as known for certain, in order of discovery
    is_read: bool = False


class _PartitionHistory:
    """First everything is taken in; `conclude` then compares it."""

    def __init__(self, partition: str, suspension: SuspendedGuarantee, findings: _Findings) -> None:
        self._name = partition
        self._suspension = suspension
        self._findings = findings
        self._sends: list[Operation] = []
        self._polls: list[Operation] = []
        self._values: dict[int, _Seen] = {}
        self._log: dict[int, list[int]] = {}  # version order: offset -> the values it showed
        self._known_at_us: dict[int, int] = {}  # offset -> when somebody first knew of it
        self._log_start_offset = 0
        self.longest_send_gap_us = 0

    def add(self, operation: Operation) -> None:
        if operation.kind is Kind.SEND:
            self._sends.append(operation)
        else:
            self._polls.append(operation)
            self._log_start_offset = max(self._log_start_offset, operation.log_start_offset)

    def conclude(self) -> int:
        """Find all anomalies and return the worst realtime lag of a poll, in microseconds."""
        self._take_sends()
        self._take_polls()
        self._find_values_out_of_place()
        self._find_lost_writes()
        self._find_rereads()
        self._find_acknowledged_below()
        self._find_sends_out_of_order()
        self._find_polls_out_of_order()
        return self._worst_realtime_lag_us()

    # ---- taking in

    def _is_checked(self, offset: int) -> bool:
        limit = self._suspension.from_offset
        return limit is None or offset < limit

    def _may_be_gone(self, offset: int) -> bool:
        return self._suspension.is_compacted or offset < self._log_start_offset

    def _found(self, name: str, text: str, *, badness: int = 0) -> None:
        self._findings.add(name, f"{self._name}: {text}", badness=badness)

    def _take_sends(self) -> None:
        last_us: int | None = None
        for send in self._sends:
            for index, value in enumerate(send.values):
                seen = self._values.setdefault(value, _Seen())
                if seen.writer is not None:
                    self._found("value-sent-twice", f"{value}: the history itself is wrong")
                seen.writer = send
                if send.outcome is Outcome.OK and send.offsets:
                    seen.sent_to = send.offsets[index]
                    # What acks=all told is certain; acks=1 only told where it once was.
                    if send.acks == ACKS_ALL:
                        self._place(value, send.offsets[index], send.completed_us)
            if send.outcome is Outcome.OK:
                if last_us is not None:
                    gap_us = send.completed_us - last_us
                    self.longest_send_gap_us = max(self.longest_send_gap_us, gap_us)
                last_us = send.completed_us

    def _take_polls(self) -> None:
        """Add the records of all polls: a record that a consumer read must be correct."""
        for poll in self._polls:
            for value, offset in zip(poll.values, poll.offsets, strict=True):
                seen = self._values.setdefault(value, _Seen())
                seen.is_read = True
                self._place(value, offset, poll.completed_us)
                if -1 < poll.high_watermark <= offset:
                    self._found(
                        "read-above-watermark",
                        f"{poll.process} read offset {offset} at watermark {poll.high_watermark}",
                    )

    def _place(self, value: int, offset: int, known_us: int) -> None:
        if not self._is_checked(offset):
            return
        at_offset = self._log.setdefault(offset, [])
        if value not in at_offset:
            at_offset.append(value)
        seen = self._values[value]
        if offset not in seen.offsets:
            seen.offsets.append(offset)
        known = self._known_at_us.get(offset)
        if known is None or known_us < known:
            self._known_at_us[offset] = known_us

    # ---- comparing

    def _find_values_out_of_place(self) -> None:
        for offset, values in self._log.items():
            if len(values) > 1:
                self._found("inconsistent-offsets", f"offset {offset} holds each of {values}")
        for value, seen in self._values.items():
            writer = seen.writer
            if seen.is_read and writer is None:
                self._found(
                    "unknown-value", f"{value} at {seen.offsets} was not sent by any producer"
                )
            if seen.is_read and writer is not None and writer.outcome is Outcome.FAIL:
                # G1a without transactions: refused means certainly not written.
                self._found("refused-read", f"{value} was rejected, but read at {seen.offsets}")
            if len(seen.offsets) > 1:
                is_broken = writer is not None and writer.is_idempotent
                name = "duplicate" if is_broken else "duplicate-without-idempotence"
                self._found(name, f"{value} is at offsets {seen.offsets}")

    def _find_lost_writes(self) -> None:
        """Find lost writes: others read past them, or a final read shows something else."""
        bound = max(
            (seen.offsets[0] for seen in self._values.values() if seen.is_read and seen.offsets),
            default=-1,
        )
        final_end = max(
            (max(poll.high_watermark, *poll.offsets, 0) for poll in self._polls if poll.is_final),
            default=-1,
        )
        # What was acknowledged while the last of the final reads was under way, it need not show.
        final_us = max((poll.invoked_us for poll in self._polls if poll.is_final), default=-1)
        for value, seen in self._values.items():
            offset, writer = seen.sent_to, seen.writer
            if seen.is_read or writer is None or offset is None or not self._is_checked(offset):
                continue
            if self._may_be_gone(offset):
                continue
            text = f"{value}, acknowledged at offset {offset} to {writer.process}"
            if writer.acks != ACKS_ALL:
                self._found("lost-unpromised", f"{text} with acks={writer.acks}")
            elif offset <= bound or offset < final_end or writer.completed_us < final_us:
                self._found("lost-write", text)
            elif not self._suspension.is_deleted and final_us < 0:
                self._found("unseen", f"{text}, not read by any consumer")

    def _find_rereads(self) -> None:
        """I7: what was read or acknowledged at an offset is there in the read of the whole log."""
        shown: dict[int, int] = {}
        finals = [poll for poll in self._polls if poll.is_final]
        if not finals:
            return
        for poll in finals:
            shown.update(zip(poll.offsets, poll.values, strict=True))
        final_us = max(poll.invoked_us for poll in finals)
        final_end = max(max(poll.high_watermark, *poll.offsets, 0) for poll in finals)
        for offset, values in self._log.items():
            if offset in shown or self._may_be_gone(offset):
                continue
            if offset >= final_end and self._known_at_us[offset] >= final_us:
                continue  # first seen while the last of the final reads was under way
            # An acknowledged one that nobody ever read is a lost write, found above.
            if any(self._values[value].is_read for value in values):
                self._found("vanished", f"{values} at offset {offset} is missing at the end")

    def _find_acknowledged_below(self) -> None:
        """Find offsets that are not above the highest one acknowledged when their write began."""
        acknowledged = [
            send
            for send in self._sends
            if send.outcome is Outcome.OK
            and send.acks == ACKS_ALL
            and send.offsets
            and self._is_checked(send.offsets[-1])
        ]
        by_completion = sorted(acknowledged, key=lambda send: send.completed_us)
        highest, position = -1, 0
        for send in sorted(acknowledged, key=lambda send: send.invoked_us):
            while (
                position < len(by_completion)
                and by_completion[position].completed_us < send.invoked_us
            ):
                highest = max(highest, by_completion[position].offsets[-1])
                position += 1
            if send.offsets[0] <= highest:
                self._found(
                    "acknowledged-below",
                    f"{send.values} of {send.process} at {send.offsets}, while {highest} was"
                    " acknowledged before it began",
                    badness=highest - send.offsets[0],
                )

    def _find_sends_out_of_order(self) -> None:
        """Find records of one process that the log holds in another order.

        With idempotence the order is that in which sends began, else that of sends that do not
        overlap. Only acks=all counts: other records may be lost, and their offsets assigned again.
        """
        last: dict[str, Operation] = {}
        for send in sorted(self._sends, key=lambda send: send.invoked_us):
            if send.outcome is not Outcome.OK or send.acks != ACKS_ALL or not send.offsets:
                continue
            if not all(map(self._is_checked, send.offsets)):
                continue
            self._check_rising("int-nonmonotonic-send", send)
            before = last.get(send.process)
            is_ordered = before is not None and (
                (send.is_idempotent and before.is_idempotent)
                or before.completed_us < send.invoked_us
            )
            if before is not None and is_ordered and send.offsets[0] <= before.offsets[-1]:
                self._found(
                    "nonmonotonic-send",
                    f"{send.process} sent {before.values} to {before.offsets}, then {send.values}"
                    f" to {send.offsets}",
                    badness=before.offsets[-1] - send.offsets[0],
                )
            last[send.process] = send

    def _check_rising(self, name: str, operation: Operation) -> None:
        offsets = operation.offsets
        for index in range(1, len(offsets)):
            if offsets[index] <= offsets[index - 1]:
                self._found(name, f"{operation.process} got offsets {list(offsets)}")
                return

    def _find_polls_out_of_order(self) -> None:
        ordered = sorted(self._log)
        last: dict[str, int] = {}
        starts: dict[str, int] = {}  # told since then: the next leader's log may start earlier
        for poll in self._polls:
            offsets = [offset for offset in poll.offsets if self._is_checked(offset)]
            start = max(poll.log_start_offset, starts.pop(poll.process, 0))
            if not offsets:
                starts[poll.process] = start
                if poll.is_reset:
                    last.pop(poll.process, None)
                continue
            self._check_rising("int-nonmonotonic-poll", poll)
            for before, after in itertools.pairwise(offsets):
                self._check_skip(
                    "int-poll-skip", poll, ordered, (before, after), poll.log_start_offset
                )
            before_poll = None if poll.is_reset else last.get(poll.process)
            if before_poll is not None and before_poll >= offsets[0]:
                self._found(
                    "nonmonotonic-poll",
                    f"{poll.process} read offset {before_poll}, then {offsets[0]}",
                    badness=before_poll - offsets[0],
                )
            elif before_poll is not None:
                self._check_skip("poll-skip", poll, ordered, (before_poll, offsets[0]), start)
            if poll.outcome is Outcome.OK:
                last[poll.process] = offsets[-1]

    def _check_skip(
        self, name: str, poll: Operation, ordered: list[int], step: tuple[int, int], start: int
    ) -> None:
        """Check that a poll skipped no record; `ordered` are the offsets of known records.

        Retention may have deleted those below `start`.
        """
        before, after = step
        first = max(before + 1, start)
        skipped = bisect.bisect_left(ordered, after) - bisect.bisect_left(ordered, first)
        if skipped <= 0 or self._suspension.is_compacted:
            return
        self._found(
            name,
            f"{poll.process} went from offset {before} to {after} past {skipped} records",
            badness=skipped,
        )

    def _worst_realtime_lag_us(self) -> int:
        """Return the worst realtime lag of a poll.

        That is how long the offset after its last one was known when it began.
        """
        worst_us = 0
        ordered = sorted(self._log)
        following = dict(itertools.pairwise(ordered))
        for poll in self._polls:
            if poll.outcome is not Outcome.OK or not poll.offsets or poll.is_reset:
                continue
            missed = following.get(poll.offsets[-1])
            if missed is not None:
                worst_us = max(worst_us, poll.invoked_us - self._known_at_us[missed])
        return worst_us
