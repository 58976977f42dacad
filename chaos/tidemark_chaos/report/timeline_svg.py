"""Draw an experiment's time line as SVG: faults, leaders, in-sync sets, acknowledgements. Pure.

Each partition has a thin row for each replica (thick: it leads, thin: in sync, nothing: not in
sync) above its acknowledgements. Where a column stands for several bins of 100 ms it shows their
range, so that a short gap stays visible. Colours are classes: the page has them for both themes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from tidemark_chaos.report.results import BIN_MS, ChaosReport, FaultFigures, PartitionRow
from tidemark_chaos.timeline import Change

LEFT, RIGHT = 96.0, 12.0
REPLICA_HEIGHT, RATE_HEIGHT, GAP = 9.0, 34.0, 16.0
FAULT_HEIGHT = 18.0
MAX_PARTITIONS = 12
MAX_COLUMNS = 1100
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200)
COLOURS = 6  # brokers beyond them share colours


@dataclass(frozen=True, slots=True)
class Frame:
    """The window that is drawn, in ms since the faults may begin, and its width in pixels."""

    begin_ms: float
    end_ms: float
    width: float

    def x(self, at_ms: float) -> float:
        inside = min(max(at_ms, self.begin_ms), self.end_ms)
        whole = self.end_ms - self.begin_ms
        return LEFT + (inside - self.begin_ms) / whole * (self.width - LEFT - RIGHT)

    def shows(self, begin_ms: float, end_ms: float) -> bool:
        return begin_ms < self.end_ms and end_ms > self.begin_ms


@dataclass(frozen=True, slots=True)
class _Span:
    """A time in which a partition's leader and in-sync set stayed the same."""

    begin_ms: float
    end_ms: float
    leader: int
    in_sync: tuple[int, ...]


def whole_run(report: ChaosReport, width: float = 1180.0) -> str:
    return _draw(report, Frame(0.0, _length_ms(report), width), shown_partitions(report))


def around_fault(report: ChaosReport, fault: FaultFigures, width: float = 1150.0) -> str:
    """Draw a fault from 1 s before to 2 s after its end, of the partitions that it concerns."""
    ends = [fault.full_isr_ms, fault.healed_ms, fault.first_ack_ms, 1000.0]
    lasted_ms = max(each for each in ends if each is not None)
    begin_ms = max(0.0, fault.at_ms - 1000)
    end_ms = min(_length_ms(report), fault.at_ms + min(lasted_ms + 2000, 60_000))
    return _draw(report, Frame(begin_ms, end_ms, width), shown_partitions(report)[:4])


def shown_partitions(report: ChaosReport) -> list[PartitionRow]:
    """Return the partitions that are drawn: where there are many, those with the longest gaps."""
    worst = sorted(report.partitions, key=lambda row: -row.write_gap_ms)[:MAX_PARTITIONS]
    return sorted(worst, key=lambda row: row.partition)


def _length_ms(report: ChaosReport) -> float:
    bins = max((len(row.per_bin) for row in report.partitions), default=10)
    return max(1, bins - 1) * BIN_MS  # the last one is not a whole one


def _draw(report: ChaosReport, frame: Frame, rows: Sequence[PartitionRow]) -> str:
    parts: list[str] = []
    sent = report.workload.records_per_second * BIN_MS / 1000
    top = 8.0
    parts.append(_label(top + 13, "faults"))
    for lane in _lanes(report, frame):
        parts += _faults(lane, frame, top)
        top += FAULT_HEIGHT + 3
    top += GAP - 3
    for row in rows:
        spans = _spans(report.timeline, row.partition, report.steady_ms, frame.end_ms)
        replicas = sorted({each for span in spans for each in span.in_sync})
        height = len(replicas) * REPLICA_HEIGHT
        name = f"partition {row.partition}"
        parts.append(f'<text x="0" y="{top + 11:g}" class="name">{name}</text>')
        for place, broker_id in enumerate(replicas):
            parts += _replica(spans, broker_id, frame, top + place * REPLICA_HEIGHT)
        parts += _no_leader(spans, frame, top, height)
        top += height + 4
        parts += _rate(row, sent, frame, top)
        top += RATE_HEIGHT + GAP
    bands = list(_bands(report, frame, top - GAP))
    parts += _axis(frame, top - GAP)
    height = top + 22
    return (
        f'<svg viewBox="0 0 {frame.width:g} {height:g}" width="{frame.width:g}"'
        f' height="{height:g}" role="img" aria-label="time line">{"".join(bands + parts)}</svg>'
    )


def _label(y: float, text: str, name: str = "dim") -> str:
    x = LEFT - 8
    return f'<text x="{x:g}" y="{y:g}" class="{name}" text-anchor="end">{escape(text)}</text>'


def _end_ms(fault: FaultFigures) -> float:
    ends = (fault.full_isr_ms, fault.healed_ms, fault.first_ack_ms)
    return fault.at_ms + max((each for each in ends if each is not None), default=0.0)


def _bands(report: ChaosReport, frame: Frame, bottom: float) -> Iterator[str]:
    """Shade each fault from its begin to its end, through all rows."""
    for fault in report.faults:
        end_ms = max(_end_ms(fault), fault.at_ms + 1)
        if fault.skipped or not frame.shows(fault.at_ms, end_ms):
            continue
        x = frame.x(fault.at_ms)
        width = max(1.5, frame.x(end_ms) - x)
        yield (
            f'<rect x="{x:.1f}" y="8" width="{width:.1f}" height="{bottom - 8:.1f}" class="band"/>'
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="{bottom:.1f}" class="begin"/>'
        )


def _lanes(report: ChaosReport, frame: Frame) -> list[list[FaultFigures]]:
    """Return the faults that are drawn, so that none of a lane overlap."""
    lanes: list[list[FaultFigures]] = []
    for fault in report.faults:
        if fault.skipped or not frame.shows(fault.at_ms - 1, fault.at_ms + _held_ms(fault) + 1):
            continue
        for lane in lanes:
            if lane[-1].at_ms + _held_ms(lane[-1]) <= fault.at_ms:
                lane.append(fault)
                break
        else:
            lanes.append([fault])
    return lanes


def _held_ms(fault: FaultFigures) -> float:
    return fault.healed_ms or 0.0


def _faults(lane: Sequence[FaultFigures], frame: Frame, top: float) -> Iterator[str]:
    """Draw the faults of one lane; a label that has no room is a number, or left out."""
    following = [frame.x(fault.at_ms) for fault in lane[1:]] + [frame.width]
    for fault, next_x in zip(lane, following, strict=True):
        x = frame.x(fault.at_ms)
        end = max(x + 3.0, frame.x(fault.at_ms + _held_ms(fault)))
        title = f"fault {fault.number} at {fault.at_ms / 1000:.2f} s: {fault.text}"
        yield (
            f'<g><title>{escape(title)}</title><rect x="{x:.1f}" y="{top:g}"'
            f' width="{end - x:.1f}" height="{FAULT_HEIGHT:g}" class="fault" rx="2"/></g>'
        )
        number = str(fault.number)
        for text in (f"{number} {fault.kind} {fault.role}", f"{number} {fault.kind}", number):
            if end + 4 + 6.4 * len(text) < next_x:
                place = f'x="{end + 4:.1f}" y="{top + 13:g}"'
                yield f'<text {place} class="tag">{escape(text)}</text>'
                break
        else:
            if end - x > 6.4 * len(number) + 3:
                yield f'<text x="{x + 3:.1f}" y="{top + 13:g}" class="in">{number}</text>'


def _spans(
    timeline: Sequence[Change], partition: int, steady_ms: float, end_ms: float
) -> list[_Span]:
    found: list[_Span] = []
    open_from, leader = 0.0, -1
    in_sync: tuple[int, ...] = ()
    of_partition = [
        each for each in timeline if each.partition == partition and each.what in ("leader", "isr")
    ]
    for change in of_partition:
        at_ms = max(0.0, change.t_ms - steady_ms)
        if at_ms > open_from:
            found.append(_Span(open_from, at_ms, leader, in_sync))
        open_from, leader, in_sync = at_ms, change.leader, change.in_sync
    found.append(_Span(open_from, max(end_ms, open_from), leader, in_sync))
    return found


def _replica(spans: Sequence[_Span], broker_id: int, frame: Frame, top: float) -> Iterator[str]:
    middle = top + REPLICA_HEIGHT / 2
    yield _label(middle + 3, str(broker_id), "small")
    yield (
        f'<line x1="{LEFT:g}" x2="{frame.width - RIGHT:g}" y1="{middle:.1f}" y2="{middle:.1f}"'
        ' class="rail"/>'
    )
    for span in spans:
        if broker_id not in span.in_sync or not frame.shows(span.begin_ms, span.end_ms):
            continue
        height = 7.0 if span.leader == broker_id else 2.0
        role = "leads" if span.leader == broker_id else "in sync"
        x, end = frame.x(span.begin_ms), frame.x(span.end_ms)
        times = f"{span.begin_ms / 1000:.2f} to {span.end_ms / 1000:.2f} s"
        yield (
            f"<g><title>broker {broker_id} {role}, {times}</title>"
            f'<rect x="{x:.1f}" y="{middle - height / 2:.1f}" width="{max(0.8, end - x):.1f}"'
            f' height="{height:g}" class="b{broker_id % COLOURS}"/></g>'
        )


def _no_leader(spans: Sequence[_Span], frame: Frame, top: float, height: float) -> Iterator[str]:
    for span in spans:
        if span.leader >= 0 or not frame.shows(span.begin_ms, span.end_ms):
            continue
        x, end = frame.x(span.begin_ms), frame.x(span.end_ms)
        yield (
            f'<rect x="{x:.1f}" y="{top:.1f}" width="{max(1.2, end - x):.1f}"'
            f' height="{height:.1f}" class="noleader"/>'
        )


def _rate(row: PartitionRow, sent: float, frame: Frame, top: float) -> Iterator[str]:
    """Draw acknowledgements per 100 ms: the range of each column, and none at all in red.

    The scale ends at three times what is sent: what a fault held back comes in a burst.
    """
    first, last = int(frame.begin_ms / BIN_MS), int(frame.end_ms / BIN_MS)
    bins = row.per_bin[first:last]
    scale = max(1.0, min(max(row.per_bin, default=1), 3 * sent))
    bottom = top + RATE_HEIGHT
    yield _label(
        top + 9, f"{scale:.0f}{'+' if max(row.per_bin, default=0) > scale else ''}", "small"
    )
    yield _label(bottom, "acks / 100 ms", "small")
    rail = f'x1="{LEFT:g}" x2="{frame.width - RIGHT:g}" y1="{bottom:.1f}" y2="{bottom:.1f}"'
    yield f'<line {rail} class="rail"/>'
    if not bins:
        return
    group = -(-len(bins) // MAX_COLUMNS)
    columns = [bins[place : place + group] for place in range(0, len(bins), group)]
    for name, pick in (("most", max), ("least", min)):
        points = [f"{frame.x(first * BIN_MS):.1f},{bottom:.1f}"]
        end_x = LEFT
        for place, column in enumerate(columns):
            begin_ms = (first + place * group) * BIN_MS
            y = bottom - min(1.0, pick(column) / scale) * RATE_HEIGHT
            end_x = frame.x(begin_ms + len(column) * BIN_MS)
            points += [f"{frame.x(begin_ms):.1f},{y:.1f}", f"{end_x:.1f},{y:.1f}"]
        points.append(f"{end_x:.1f},{bottom:.1f}")
        yield f'<polygon points="{" ".join(points)}" class="{name}"/>'
    for begin, end in _empty(columns):
        x = frame.x((first + begin * group) * BIN_MS)
        width = max(1.5, frame.x((first + end * group) * BIN_MS) - x)
        place_of = f'x="{x:.1f}" y="{bottom - 2:.1f}" width="{width:.1f}"'
        yield f'<rect {place_of} height="4" class="none"/>'


def _empty(columns: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each run of columns with a bin without an acknowledgement."""
    begin: int | None = None
    for place, column in enumerate((*columns, (1,))):
        if min(column) == 0:
            begin = place if begin is None else begin
        elif begin is not None:
            yield begin, place
            begin = None


def _axis(frame: Frame, y: float) -> Iterator[str]:
    whole_s = (frame.end_ms - frame.begin_ms) / 1000
    step = next((tick for tick in TICKS if whole_s / tick <= 14), TICKS[-1])
    number = int(-(-frame.begin_ms / 1000 // step))
    while number * step * 1000 <= frame.end_ms:
        at_s = number * step
        x = frame.x(at_s * 1000)
        yield (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="{y + 4:.1f}" class="tick"/>'
            f'<text x="{x:.1f}" y="{y + 17:.1f}" class="dim" text-anchor="middle">{at_s:g} s</text>'
        )
        number += 1
