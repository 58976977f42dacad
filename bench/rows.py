"""What is measured: each row's name, unit, and the ratio to Kafka that is wanted of it."""

from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Row:
    """`target` of Tidemark's figure divided by Kafka's (or by that of the row `against`): at least
    that where more is better, else at most. 0: a figure without a target."""

    key: str
    title: str
    unit: str
    target: float = 0.0
    is_more_better: bool = False
    against: str = ""  # another row of Tidemark's own, where Kafka has nothing of the kind


ROWS = (
    Row("produce_default", "produce, 1 KiB, default batching", "records/s", 3, True),
    Row("produce_large", "produce, 1 KiB, batch.size=131072 linger.ms=5", "records/s", 2, True),
    Row("produce_small", "produce, 100 B, default batching", "records/s", 1.5, True),
    Row("cpu_default", "CPU of all brokers, default batching", "us/record"),
    Row("cpu_large", "CPU of all brokers, batch.size=131072", "us/record"),
    Row("cpu_small", "CPU of all brokers, 100 B", "us/record"),
    Row("consume", "consume, 1 KiB, librdkafka", "records/s", 1, True),
    Row("consume_java", "consume, 1 KiB, ConsumerPerformance", "records/s", 1, True),
    Row("latency_p50", "produce at 5,000/s, linger 0: p50", "ms"),
    Row("latency_p99", "produce at 5,000/s, linger 0: p99", "ms", 1 / 4),
    Row("end_to_end_p50", "end to end at 200/s, linger 0: p50", "ms"),
    Row("end_to_end_p99", "end to end at 200/s, linger 0: p99", "ms", 1 / 2),
    Row("end_to_end_rate", "end to end, linger 0: highest rate sustained", "records/s", 1, True),
    Row("memory_idle", "memory of a broker, idle", "MB", 1 / 4),
    Row("memory_loaded", "memory of a broker, after load", "MB", 1 / 4),
    Row("memory_all", "memory of all processes, after load", "MB"),
    Row("start", "three brokers serving, from nothing", "s", 1 / 4),
    Row("gap_kill", "write gap, leader killed (kill -9)", "s", 1 / 20),
    Row("rejoin", "killed broker started until the ISR is full", "s", 1 / 2),
    Row("gap_term", "write gap, leader stopped (SIGTERM)", "s", 1 / 2),
    Row("http", "HTTP produce, 100 x 1 KiB a request", "records/s", 0.5, True, "produce_default"),
)

KAFKA, TIDEMARK = "kafka", "tidemark"
Figures = dict[str, float]  # by the key of a row
Rounds = list[dict[str, Figures]]  # by system


@dataclass(frozen=True, slots=True)
class Compared:
    """One row over all rounds; a ratio is of two figures of the same round."""

    row: Row
    kafka: tuple[float, ...]
    tidemark: tuple[float, ...]
    ratios: tuple[float, ...]

    @property
    def is_met(self) -> bool | None:
        """By the median; None without a target or a figure."""
        if not self.ratios or not self.row.target:
            return None
        found = median(self.ratios)
        return found >= self.row.target if self.row.is_more_better else found <= self.row.target


def compare(rounds: Rounds) -> list[Compared]:
    return [_compare(row, rounds) for row in ROWS]


def _compare(row: Row, rounds: Rounds) -> Compared:
    base_system, base_key = (TIDEMARK, row.against) if row.against else (KAFKA, row.key)
    ratios = []
    for found in rounds:
        base = found.get(base_system, {}).get(base_key)
        figure = found.get(TIDEMARK, {}).get(row.key)
        if base and figure is not None:
            ratios.append(figure / base)
    return Compared(
        row,
        _figures(rounds, base_system, base_key),
        _figures(rounds, TIDEMARK, row.key),
        tuple(ratios),
    )


def _figures(rounds: Rounds, system: str, key: str) -> tuple[float, ...]:
    return tuple(found[system][key] for found in rounds if key in found.get(system, {}))
