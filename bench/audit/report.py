"""What `make bench-audit` says: a table, build/bench-audit.json, a picture of cost per sample."""

from dataclasses import asdict, dataclass, field
from html import escape
from math import log10
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from bench.audit.processes import Measured

JVM_TARGET_MB = 1000.0
FLAT = 1.25  # memory at the largest size, as a multiple of that at the next smaller one
COLOURS = {"spark": "#2f8f5b", "local": "#2b6cb0", "duckdb": "#c4622d"}
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 760, 380, 70, 60, 50
_RIGHT = 120
_LABEL_HEIGHT = 17


@dataclass(slots=True)
class Size:
    """One number of samples; `runs` of each engine in the order of rounds."""

    samples: int
    file_mb: float
    runs: dict[str, list[Measured]] = field(default_factory=dict)
    answer_rows: int = 0

    def seconds(self, engine: str) -> float:
        return median(run.wall_seconds for run in self.runs[engine])

    def cpu(self, engine: str) -> float:
        return median(run.cpu_seconds for run in self.runs[engine])

    def ratios(self) -> list[float]:
        """Spark's wall time by DuckDB's, round by round."""
        pairs = zip(self.runs.get("spark", []), self.runs.get("duckdb", []), strict=False)
        return [spark.wall_seconds / duckdb.wall_seconds for spark, duckdb in pairs]

    def memory_mb(self, engine: str, *kinds: str) -> float:
        return max(run.anonymous_mb(*kinds) for run in self.runs[engine])

    def jvm_mb(self) -> float:
        return max(run.peaks["jvm"].resident_mb for run in self.runs["spark"])


def print_table(sizes: list[Size], transports: dict[str, float]) -> None:
    columns = (
        "samples", "engine", "wall s", "CPU s", "ns/sample", "CPU ns/sample", "main MB",
        "workers MB", "JVM MB (resident)", "wall by DuckDB's",
    )  # fmt: skip
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right")
    for size in sizes:
        for engine in size.runs:
            jvm = f"{size.jvm_mb():,.0f}" if engine == "spark" else ""
            ratios = ", ".join(f"{ratio:.2f}" for ratio in size.ratios())
            table.add_row(
                f"{size.samples:,}", engine, f"{size.seconds(engine):.2f}",
                f"{size.cpu(engine):.2f}", f"{size.seconds(engine) / size.samples * 1e9:,.0f}",
                f"{size.cpu(engine) / size.samples * 1e9:,.0f}",
                f"{size.memory_mb(engine, 'main'):,.0f}",
                f"{size.memory_mb(engine, 'workers'):,.0f}", jvm,
                ratios if engine == "spark" else "",
            )  # fmt: skip
    console = Console(width=140)
    console.print(table)
    for target, is_met in targets(sizes).items():
        console.print(f"{'yes' if is_met else 'NO '}  {target}", highlight=False)
    for way, figure in transports.items():
        console.print(f"{way}: {figure:,.0f} samples/s from Prometheus", highlight=False)


def targets(sizes: list[Size]) -> dict[str, bool]:
    """Those of issue 7 that the sizes measured can speak of."""
    found: dict[str, bool] = {}
    measured = [size for size in sizes if size.runs.get("spark")]
    for size in measured:
        if size.ratios() and size.samples > 5e7:
            found[f"{size.samples:,} samples: Spark's wall time <= DuckDB's"] = (
                median(size.ratios()) <= 1.0
            )
        found[f"{size.samples:,} samples: JVM <= {JVM_TARGET_MB:,.0f} MB"] = (
            size.jvm_mb() <= JVM_TARGET_MB
        )
    if len(measured) > 1:
        small, large = measured[-2:]
        for what, kinds in (("JVM", ("jvm",)), ("Python workers", ("workers",))):
            found[f"{what}: memory flat from {small.samples:,} to {large.samples:,}"] = (
                large.memory_mb("spark", *kinds) <= FLAT * small.memory_mb("spark", *kinds)
            )
    return found


def write(
    directory: Path, sizes: list[Size], transports: dict[str, float], about: dict[str, Any]
) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    document = {
        "about": about,
        "sizes": [
            {
                "samples": size.samples,
                "file_mb": size.file_mb,
                "equal_answer_rows": size.answer_rows,
                "spark_by_duckdb": size.ratios(),
                "runs": {
                    engine: [
                        {
                            "wall_seconds": run.wall_seconds,
                            "cpu_seconds": run.cpu,
                            "peaks": {kind: asdict(peak) for kind, peak in run.peaks.items()},
                        }
                        for run in runs
                    ]
                    for engine, runs in size.runs.items()
                },
            }
            for size in sizes
        ],
        "targets": targets(sizes),
        "samples_per_second_from_prometheus": transports,
    }
    encoded = msgspec.json.format(msgspec.json.encode(document), indent=1)
    (directory / "bench-audit.json").write_bytes(encoded)
    (directory / "bench-audit.svg").write_text(chart(sizes))


def chart(sizes: list[Size]) -> str:
    """Wall nanoseconds per sample over the number of samples, both logarithmic; an SVG document."""
    lines = {
        engine: [
            (float(size.samples), size.seconds(engine) / size.samples * 1e9)
            for size in sizes
            if size.runs.get(engine)
        ]
        for engine in COLOURS
    }
    points = [point for line in lines.values() for point in line]
    x = _Axis([place for place, _ in points], _LEFT, _WIDTH - _RIGHT)
    y = _Axis([cost for _, cost in points], _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}"'
        f' viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        '<text x="12" y="22" font-size="16" font-weight="bold">The audit of a Parquet export:'
        " cost per sample</text>",
        '<text x="12" y="42" fill="#555">ns of wall time by samples, whole process, median of'
        " rounds</text>",
    ]
    for mark in y.marks():
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y.at(mark):.1f}"'
            f' y2="{y.at(mark):.1f}" stroke="#ddd"/><text x="{_LEFT - 8}"'
            f' y="{y.at(mark) + 4:.1f}" fill="#555" text-anchor="end">{mark:,g}</text>'
        )
    for mark in x.marks():
        parts.append(
            f'<text x="{x.at(mark):.1f}" y="{_HEIGHT - _BOTTOM + 22}" fill="#555"'
            f' text-anchor="middle">10<tspan dy="-5" font-size="9">{log10(mark):.0f}</tspan></text>'
        )
    drawn = {
        engine: [(x.at(place), y.at(cost)) for place, cost in line]
        for engine, line in lines.items()
        if line
    }
    lowest = 0.0
    for engine, places in sorted(drawn.items(), key=lambda each: each[1][-1][1]):
        lowest = max(places[-1][1], lowest + _LABEL_HEIGHT)  # labels do not lie on each other
        parts += _line(engine, places, lines[engine][-1][1], label_y=lowest)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _line(
    engine: str, places: list[tuple[float, float]], last: float, *, label_y: float
) -> list[str]:
    colour = COLOURS[engine]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in places),
        f'<text x="{places[-1][0] + 10:.1f}" y="{label_y + 4:.1f}" fill="{colour}">'
        f"{escape(engine)} {last:,.0f}</text>",
    ]


class _Axis:
    """Logarithmic, in whole powers of ten."""

    def __init__(self, values: list[float], start: float, end: float) -> None:
        logs = [log10(value) for value in values] or [0.0]
        self._low = int(min(logs) // 1)
        self._high = max(-int(-max(logs) // 1), self._low + 1)
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        share = (log10(value) - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)

    def marks(self) -> list[float]:
        return [10.0**power for power in range(self._low, self._high + 1)]
