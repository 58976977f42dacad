"""Draw the in-sync sets of a pool in a terminal: the words and marks of the live ISR page.

Each partition is a row of replica cells, one column a broker: L leader, S in sync, C catching up, E
eligible leader, F fenced, M missing. What is not well comes first; what does not fit is counted.
Disks and progress are shown where the controller says them. Pure: it returns lines.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from rich.text import Text
from tidemark_client.cluster_status import BrokerRow, ClusterStatus
from tidemark_client.metadata import NO_LEADER, PartitionView, TopicView

from tidemark_cli.terminal_text import visible

MAX_NAME = 32
LEGEND = "L leader  S in sync  C catching up  E eligible leader  F fenced  M missing"
MIN_ROWS = 3


class Health(Enum):
    """How well a partition is, the worst first: a mark, words and a style."""

    OFFLINE = ("✕", "no leader", "bold red")
    BELOW_MIN = ("▲", "below min ISR", "red")
    AT_MIN = ("△", "at min ISR", "yellow")
    UNDER = ("▽", "under-replicated", "yellow")
    MOVING = ("⇄", "moving", "cyan")
    IN_SYNC = ("✓", "in sync", "green")

    @property
    def mark(self) -> str:
        return self.value[0]

    @property
    def words(self) -> str:
        return self.value[1]

    @property
    def style(self) -> str:
        return self.value[2]


RANK = {health: rank for rank, health in enumerate(Health)}


def health_of(view: PartitionView) -> Health:
    """Return how well a partition is; replicas that a move adds are not expected in sync."""
    if view.leader == NO_LEADER:
        return Health.OFFLINE
    in_sync = len(view.in_sync_replicas)
    if in_sync < view.min_insync_replicas:
        return Health.BELOW_MIN
    if in_sync < len(view.replicas) - len(view.adding):
        return Health.AT_MIN if in_sync == view.min_insync_replicas else Health.UNDER
    return Health.MOVING if view.is_moving else Health.IN_SYNC


def cell_of(view: PartitionView, broker_id: int, brokers: dict[int, BrokerRow]) -> str:
    """Return the letter of a replica, or a dot where the broker has none."""
    if broker_id not in view.replicas:
        return "·"
    if broker_id == view.leader:
        return "L"
    if broker_id in view.in_sync_replicas:
        return "S"
    if broker_id in view.eligible_leaders:
        return "E"
    state = brokers[broker_id].state if broker_id in brokers else "Gone"
    return {"Active": "C", "Draining": "C", "Gone": "M"}.get(state, "F")


CELL_STYLES = {
    "L": "bold reverse",
    "S": "green",
    "C": "yellow",
    "E": "magenta",
    "F": "red",
    "M": "bold red",
    "·": "dim",
}


DISK_TEXTS = {
    "Ok": ("", "default"),
    "NearlyFull": (", nearly full", "yellow"),
    "Full": (", full", "bold red"),
}


@dataclass(frozen=True, slots=True)
class Disk:
    free_bytes: int
    size_bytes: int
    state: str


@dataclass(frozen=True, slots=True)
class Progress:
    """A replica that catches up."""

    topic: str
    partition: int
    broker_id: int
    lag_records: int
    records_per_second: float | None
    to_go_ms: int | None


@dataclass(frozen=True, slots=True)
class Figures:
    """What the controller says of disks and of replicas that catch up."""

    disks: Mapping[int, Disk] = field(default_factory=dict)
    catching_up: tuple[Progress, ...] = ()

    def lag_of(self, broker_id: int) -> int:
        return sum(each.lag_records for each in self.catching_up if each.broker_id == broker_id)


NO_FIGURES = Figures()


def read_figures(body: Mapping[str, Any]) -> Figures:
    """Read the controller's GET /v1/isr/figures; what is not understood is not shown."""
    try:
        return Figures(
            {
                int(each["brokerId"]): Disk(
                    int(each["diskFreeBytes"]), int(each["diskSizeBytes"]), str(each["diskState"])
                )
                for each in body["brokers"]
                if "diskSizeBytes" in each
            },
            tuple(
                Progress(
                    str(each["topic"]),
                    int(each["partition"]),
                    int(each["brokerId"]),
                    int(each["lagRecords"]),
                    each["recordsPerSecond"],
                    each["toGoMs"],
                )
                for each in body["catchingUp"]
            ),
        )
    except (KeyError, TypeError, ValueError):
        return NO_FIGURES


@dataclass(frozen=True, slots=True)
class Row:
    topic: str
    view: PartitionView
    health: Health


def rows_of(topics: Iterable[TopicView]) -> list[Row]:
    """Return the partitions, worst first, then by topic and number."""
    rows = [Row(each.topic, view, health_of(view)) for each in topics for view in each.partitions]
    rows.sort(key=lambda row: (RANK[row.health], row.topic, row.view.partition))
    return rows


def summary(status: ClusterStatus, rows: Sequence[Row]) -> str:
    """Return the pool's health in a sentence."""
    wanted = [row for row in status.brokers if row.state != "Gone"]
    active = sum(row.state == "Active" for row in wanted)
    counts = Counter(row.health for row in rows)
    parts = [f"{counts[health]} {health.words}" for health in Health if counts[health]]
    partitions = ", ".join(parts) or "no partitions"
    return f"{active} of {len(wanted)} brokers active · {partitions}"


def lines_of(
    status: ClusterStatus, figures: Figures = NO_FIGURES, *, width: int, height: int
) -> list[Text]:
    """Return the lines of one pool; `height` bounds them, and more is counted."""
    rows = rows_of(status.topics)
    brokers = {row.broker_id: row for row in status.brokers if row.state != "Gone"}
    replicas = {each for row in rows for each in row.view.replicas}
    ids = sorted(replicas | brokers.keys())
    lines = [Text(summary(status, rows), style="bold"), Text()]
    lines += _broker_lines(brokers, rows, figures, height // 3)
    lines += _progress_lines(figures, width, max(1, height // 6))
    lines.append(Text())
    room = max(MIN_ROWS, height - len(lines) - 3)
    shown = rows if len(rows) <= room else rows[: room - 1]
    if shown:
        lines += _partition_lines(shown, ids, brokers, width)
    if len(shown) < len(rows):
        rest = Counter(row.health for row in rows[len(shown) :])
        more = ", ".join(f"{rest[health]} {health.words}" for health in Health if rest[health])
        lines.append(Text(f"and {len(rows) - len(shown)} more: {more}", style="dim"))
    lines += [Text(), Text(LEGEND, style="dim")]
    return lines


def _broker_lines(
    brokers: dict[int, BrokerRow], rows: Sequence[Row], figures: Figures, room: int
) -> list[Text]:
    leads = Counter(row.view.leader for row in rows)
    in_sync = Counter(each for row in rows for each in row.view.in_sync_replicas)
    replicas = Counter(each for row in rows for each in row.view.replicas)
    more = f"{'LAG':>9}  DISK" if figures.disks else ""
    lines = [Text(f"{'BROKER':<8}{'STATE':<10}{'LEADS':>7}{'IN SYNC':>12}{more}", style="dim")]
    ranked = sorted(brokers.values(), key=lambda row: (row.state == "Active", row.broker_id))
    for row in ranked[: max(MIN_ROWS, room)]:
        kept = f"{in_sync[row.broker_id]}/{replicas[row.broker_id]}"
        line = Text(f"{row.broker_id:<8}")
        line.append(f"{row.state:<10}", style="green" if row.state == "Active" else "bold red")
        line.append(f"{leads[row.broker_id]:>7}{kept:>12}", style="default")
        if figures.disks:
            line.append(f"{short(figures.lag_of(row.broker_id)):>9}  ", style="default")
            line.append(*disk_text(figures.disks.get(row.broker_id)))
        lines.append(line)
    if len(ranked) > max(MIN_ROWS, room):
        lines.append(Text(f"and {len(ranked) - max(MIN_ROWS, room)} more", style="dim"))
    return lines


def disk_text(disk: Disk | None) -> tuple[str, str]:
    """Return what is free, and its style."""
    if disk is None:
        return "not reported", "dim"
    words, style = DISK_TEXTS.get(disk.state, ("", "default"))
    return f"{bytes_text(disk.free_bytes)} of {bytes_text(disk.size_bytes)} free{words}", style


def _progress_lines(figures: Figures, width: int, room: int) -> list[Text]:
    """Return a line for each replica that catches up, the most behind first."""
    ranked = sorted(figures.catching_up, key=lambda each: -each.lag_records)
    if not ranked:
        return []
    lines = [Text(), Text("CATCHING UP", style="dim")]
    for each in ranked[:room]:
        line = Text(f"{_short(visible(each.topic))}-{each.partition} on broker {each.broker_id}: ")
        line.append(progress_text(each), style="yellow")
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    if len(ranked) > room:
        lines.append(Text(f"and {len(ranked) - room} more", style="dim"))
    return lines


def progress_text(progress: Progress) -> str:
    parts = [f"{short(progress.lag_records)} behind"]
    if progress.records_per_second is not None:
        parts.append(f"{short(progress.records_per_second)}/s")
        if progress.to_go_ms is not None:
            parts.append(f"{seconds_text(progress.to_go_ms)} to go")
        elif progress.lag_records:
            parts.append("does not come closer")
    return ", ".join(parts)


def short(number: float) -> str:
    """Return 950, 12.3k or 4.1M."""
    for unit, divisor in (("", 1.0), ("k", 1e3), ("M", 1e6)):
        if number < 999.5 * divisor:
            return f"{number / divisor:.{1 if unit and number < 99.95 * divisor else 0}f}{unit}"
    return f"{number / 1e9:.1f}G"


def bytes_text(number: float) -> str:
    """Return 950 B or 12.3 GB."""
    units = ("B", "kB", "MB", "GB", "TB", "PB")
    power = 0
    while number >= 999.5 and power < len(units) - 1:
        number, power = number / 1000, power + 1
    return f"{number:.{1 if power and number < 99.95 else 0}f} {units[power]}"


def seconds_text(ms: int) -> str:
    """Return 4.2 s, 50 s or 7 min."""
    if ms < 10_000:
        return f"{ms / 1000:.1f} s"
    return f"{ms // 1000} s" if ms < 120_000 else f"{ms // 60_000} min"


def _partition_lines(
    rows: Sequence[Row], ids: Sequence[int], brokers: dict[int, BrokerRow], width: int
) -> list[Text]:
    names = [_short(visible(row.topic)) for row in rows]
    name_width = max(len("TOPIC"), *map(len, names)) + 2
    cells = [max(len(str(each)), 1) + 1 for each in ids]
    fixed = 2 + name_width + 11 + 7 + 5
    has_columns = fixed + sum(cells) + len(Health.UNDER.words) < width
    head = f"{'':2}{'TOPIC':<{name_width}}{'PARTITION':<11}{'EPOCH':<7}{'MIN':<5}"
    if has_columns:
        head += "".join(f"{each:<{room}}" for each, room in zip(ids, cells, strict=True))
    else:
        head += "REPLICAS  "
    lines = [Text(head + "STATE", style="dim")]
    for name, row in zip(names, rows, strict=True):
        view = row.view
        line = Text(f"{row.health.mark} ", style=row.health.style)
        line.append(f"{name:<{name_width}}{view.partition:<11}", style="default")
        line.append(f"{view.leader_epoch:<7}{view.min_insync_replicas:<5}", style="default")
        # With many brokers one column each does not fit: replicas in the order of assignment.
        for each, room in zip(ids, cells, strict=True) if has_columns else ():
            letter = cell_of(view, each, brokers)
            line.append(f"{letter:<{room}}", style=CELL_STYLES[letter])
        if not has_columns:
            for each in view.replicas:
                letter = cell_of(view, each, brokers)
                line.append(f"{each}{letter} ", style=CELL_STYLES[letter])
        lines.append(line.append(row.health.words, style=row.health.style))
    return lines


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"
