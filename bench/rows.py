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
    highest_rate: str = ""  # the row of it, where this one has a figure for each rate


ROWS = (
    Row("produce_default", "produce, 1 KiB, default batching", "records/s", 3, True),
    Row("produce_large", "produce, 1 KiB, batch.size=131072 linger.ms=5", "records/s", 2, True),
    Row("produce_small", "produce, 100 B, default batching", "records/s", 1.5, True),
    Row("cpu_default", "CPU of all brokers, default batching", "us/record"),
    Row("cpu_large", "CPU of all brokers, batch.size=131072", "us/record"),
    Row("cpu_small", "CPU of all brokers, 100 B", "us/record"),
    Row("consume", "consume, 1 KiB, librdkafka", "records/s", 1, True),
    Row("consume_java", "consume, 1 KiB, ConsumerPerformance", "records/s", 1, True),
    Row("latency_p50", "produce, linger 0: p50", "ms", highest_rate="latency_rate"),
    Row("latency_p99", "produce, linger 0: p99", "ms", 1 / 4, highest_rate="latency_rate"),
    Row("latency_rate", "produce, linger 0: highest rate sustained", "records/s", 1, True),
    Row("end_to_end_p50", "end to end, linger 0: p50", "ms", highest_rate="end_to_end_rate"),
    Row("end_to_end_p99", "end to end, linger 0: p99", "ms", 1 / 2, highest_rate="end_to_end_rate"),
    Row("end_to_end_rate", "end to end, linger 0: highest rate sustained", "records/s", 1, True),
    Row("memory_idle", "memory of a broker, idle", "MB", 1 / 4),
    Row("memory_loaded", "memory of a broker, after load", "MB", 1 / 4),
    Row("memory_all", "memory of all processes, after load", "MB"),
    Row("start", "three brokers serving, from nothing", "s", 1 / 4),
    Row("gap_kill", "write gap, leader killed (kill -9)", "s", 1 / 20),
    Row("rejoin", "killed broker started until the ISR is full", "s", 1 / 2),
    Row("gap_term", "write gap, leader stopped (SIGTERM)", "s", 1 / 2),
    Row("http", "HTTP produce, 100 x 1 KiB a request", "records/s", 0.5, True, "produce_default"),
    Row("cli_produce", "tidemark produce, 20,000 lines", "lines/s", 1 / 3, True, "kcat_produce"),
    Row(
        "cli_produce_many",
        "tidemark produce, 500,000 lines x size",
        "lines/s",
        1 / 3,
        True,
        "kcat_produce_many",
    ),
    Row(
        "cli_consume", "tidemark consume, 125,873 records", "records/s", 1 / 3, True, "kcat_consume"
    ),
)

KAFKA, TIDEMARK = "kafka", "tidemark"
Figures = dict[str, float]  # by the key of a row
Rounds = list[dict[str, Figures]]  # by system


@dataclass(frozen=True, slots=True)
class Failure:
    """A group of rows without figures of one system in one round, and why."""

    number: int  # of the round, from 1
    system: str
    group: str
    message: str


@dataclass(frozen=True, slots=True)
class Compared:
    """One row over all rounds; a ratio is of two figures of the same round."""

    row: Row
    kafka: tuple[float, ...]
    tidemark: tuple[float, ...]
    ratios: tuple[float, ...]
    rates: tuple[int, ...] = ()  # that the figures were taken at, where the row has several

    @property
    def title(self) -> str:
        if not self.rates:
            return self.row.title
        return f"{self.row.title} at {', '.join(f'{rate:,}' for rate in self.rates)}/s"

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
    if row.highest_rate:
        return _compare_at_rates(row, rounds)
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


def key_at(key: str, rate: int) -> str:
    return f"{key}@{rate}"


def rate_for_both(row: Row, found: dict[str, Figures]) -> int | None:
    """The highest rate that all systems of the round sustain at most half loaded: a latency near
    the rate where one of them falls behind is a fact about that rate. None: there is none."""
    highest = min((figures.get(row.highest_rate, 0.0) for figures in found.values()), default=0.0)
    common = set.intersection(*(_rates(row, figures) for figures in found.values() or ({},)))
    return max((rate for rate in common if rate <= highest / 2), default=min(common, default=None))


def _rates(row: Row, figures: Figures) -> set[int]:
    prefix = key_at(row.key, 0).removesuffix("0")
    return {int(key.removeprefix(prefix)) for key in figures if key.startswith(prefix)}


def _compare_at_rates(row: Row, rounds: Rounds) -> Compared:
    figures: dict[str, list[float]] = {KAFKA: [], TIDEMARK: []}
    ratios: list[float] = []
    rates: set[int] = set()
    for found in rounds:
        rate = rate_for_both(row, found)
        if rate is None:
            continue
        rates.add(rate)
        for system, of_system in found.items():
            figures[system].append(of_system[key_at(row.key, rate)])
        if len(found) == 2 and figures[KAFKA][-1]:
            ratios.append(figures[TIDEMARK][-1] / figures[KAFKA][-1])
    return Compared(
        row,
        tuple(figures[KAFKA]),
        tuple(figures[TIDEMARK]),
        tuple(ratios),
        tuple(sorted(rates)),
    )


def _figures(rounds: Rounds, system: str, key: str) -> tuple[float, ...]:
    return tuple(found[system][key] for found in rounds if key in found.get(system, {}))
