"""A run as an SVG: for each partition a lane per broker, leader epochs, watermarks, and the faults.

Filled is who leads, with the leader epoch; pale is who follows; grey is a replica without a role;
nothing is a dead process. The line in a lane is the high watermark, the dotted one the log's end.
Pure: samples and marks in, text out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

LEFT, WIDTH, LANE, GAP, TOP = 90, 1500, 46, 30, 90.0
LEGEND = (
    "filled: leads, with its leader epoch; pale: follows; grey: has no role; nothing: no process.  "
    "Line: high watermark; dotted: log end.  Red: faults, listed below."
)
COLOURS = ("#1f77b4", "#d98218", "#2a9d4a", "#a53fb0", "#c0392b")


@dataclass(frozen=True, slots=True)
class ReplicaSample:
    """One replica at one moment. `role`: leader, follower, idle; dead and frozen go before."""

    role: str
    leader_epoch: int
    high_watermark: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class Sample:
    now_us: int
    replicas: dict[tuple[str, int], ReplicaSample]  # (partition name, broker id)


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at one moment; `lane`: a broker id, or -1 for everybody."""

    now_us: int
    text: str
    lane: int = -1


def picture(title: str, samples: Sequence[Sample], marks: Iterable[Mark]) -> str:
    partitions = sorted({key[0] for sample in samples for key in sample.replicas})
    brokers = sorted({key[1] for sample in samples for key in sample.replicas})
    end_us = max((sample.now_us for sample in samples), default=1) or 1
    drawing = _Drawing(end_us)
    top = TOP
    for partition in partitions:
        drawing.text(LEFT, top - 6, partition, "heading")
        most = max(
            (r.log_end_offset for s in samples for k, r in s.replicas.items() if k[0] == partition),
            default=1,
        )
        for broker in brokers:
            drawing.lane(top, broker, [(s.now_us, s.replicas.get((partition, broker)))
                                       for s in samples], max(1, most))  # fmt: skip
            top += LANE + 6
        top += GAP
    bottom = drawing.marks(marks, top)
    drawing.axis(TOP - 10, top - GAP)
    return drawing.document(title, bottom + 20)


class _Drawing:
    def __init__(self, end_us: int) -> None:
        self._end_us = end_us
        self._parts: list[str] = []

    def x(self, now_us: int) -> float:
        return LEFT + WIDTH * now_us / self._end_us

    def text(self, x: float, y: float, text: str, kind: str) -> None:
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>')

    def lane(
        self,
        top: float,
        broker: int,
        states: Sequence[tuple[int, ReplicaSample | None]],
        most: int,
    ) -> None:
        colour = COLOURS[broker % len(COLOURS)]
        self.text(8, top + LANE / 2 + 4, f"broker {broker}", "label")
        self._parts.append(
            f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{LANE}" class="lane"/>'
        )
        for begin, until, role, epoch in _stretches(states):
            self._stretch(top, colour, (begin, until), role, epoch)
        for kind, take in (("watermark", _watermark), ("end", _log_end)):
            for points in _unbroken(states):
                line = " ".join(
                    f"{self.x(now_us):.1f},{top + LANE - 3 - (LANE - 6) * take(found) / most:.1f}"
                    for now_us, found in points
                )
                self._parts.append(f'<polyline points="{line}" class="{kind}"/>')

    def _stretch(
        self, top: float, colour: str, span: tuple[int, int], role: str, epoch: int
    ) -> None:
        x, width = self.x(span[0]), self.x(span[1]) - self.x(span[0])
        opacity = {"leader": 0.55, "follower": 0.13}.get(role, 0.06)
        fill = colour if role in ("leader", "follower") else "#000"
        self._parts.append(
            f'<rect x="{x:.1f}" y="{top}" width="{max(width, 0.5):.1f}" height="{LANE}"'
            f' fill="{fill}" fill-opacity="{opacity}"/>'
        )
        if role == "leader":
            self.text(x + 2, top + 12, str(epoch), "epoch")

    def marks(self, marks: Iterable[Mark], top: float) -> float:
        """Lines through all lanes, numbered; their texts below."""
        row = 0
        for number, mark in enumerate(marks, 1):
            x = self.x(mark.now_us)
            self._parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 16:.1f}" y2="{top - GAP:.1f}"'
                ' class="mark"/>'
            )
            self.text(x + 1, TOP - 18 - 10 * (number % 3), str(number), "number")
            self.text(
                LEFT, top + 16 * row, f"{number}. {mark.now_us / 1e6:.3f} s  {mark.text}", "note"
            )
            row += 1
        return top + 16 * row

    def axis(self, top: float, bottom: float) -> None:
        seconds = self._end_us / 1e6
        step = 1 if seconds <= 30 else 5
        for second in range(0, int(seconds) + 1, step):
            x = self.x(second * 1_000_000)
            self._parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom:.1f}" class="second"/>'
            )
            self.text(x + 2, bottom + 12, f"{second} s", "note")

    def document(self, title: str, height: float) -> str:
        style = (
            "text{font-family:sans-serif;font-size:11px}.heading{font-size:14px;font-weight:bold}"
            ".epoch{fill:#000;font-weight:bold}.number{font-size:9px;fill:#b00}"
            ".lane{fill:none;stroke:#999;stroke-width:.5}.mark{stroke:#b00;stroke-width:.7}"
            ".second{stroke:#ccc;stroke-width:.4}"
            ".watermark{fill:none;stroke:#000;stroke-width:1.2}"
            ".end{fill:none;stroke:#000;stroke-width:.8;stroke-dasharray:2 2}"
        )
        body = "\n".join(self._parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}"'
            f' height="{height:.0f}"><style>{style}</style>\n'
            f'<rect width="100%" height="100%" fill="#fff"/>'
            f'<text x="8" y="18" class="heading">{escape(title)}</text>\n'
            f'<text x="8" y="34" class="note">{LEGEND}</text>\n{body}\n</svg>\n'
        )


def _watermark(found: ReplicaSample) -> int:
    return found.high_watermark


def _log_end(found: ReplicaSample) -> int:
    return found.log_end_offset


def _stretches(
    states: Sequence[tuple[int, ReplicaSample | None]],
) -> Iterable[tuple[int, int, str, int]]:
    """(begin, end, role, leader epoch) while both stay the same; nothing for a dead process."""
    current: tuple[str, int] | None = None
    begin = last = 0
    for now_us, found in states:
        role = None if found is None else (found.role, found.leader_epoch)
        if role != current:
            if current is not None:
                yield begin, now_us, *current
            current, begin = role, now_us
        last = now_us
    if current is not None:
        yield begin, last, *current


def _unbroken(
    states: Sequence[tuple[int, ReplicaSample | None]],
) -> Iterable[list[tuple[int, ReplicaSample]]]:
    run: list[tuple[int, ReplicaSample]] = []
    for now_us, found in states:
        if found is not None:
            run.append((now_us, found))
        elif run:
            yield run
            run = []
    if run:
        yield run
