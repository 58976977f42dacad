"""The table, build/bench.json and the chart."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from bench.chart import chart
from bench.rows import Compared, Failure, Rounds, compare


def print_table(compared: list[Compared], failures: Sequence[Failure] = ()) -> None:
    """Medians of both systems, the ratio of each round as min, median, max, and what failed."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("", "unit", "Kafka", "Tidemark", "ratio", "min", "max", "wanted", ""):
        table.add_column(name, justify="left" if name in ("", "unit") else "right")
    for entry in compared:
        if not entry.tidemark and not entry.kafka:
            continue
        table.add_row(*_cells(entry))
    console = Console(width=140)
    console.print(table)
    for failure in failures:
        console.print(
            f"failed: round {failure.number}, {failure.system}, {failure.group}: {failure.message}",
            markup=False,
            soft_wrap=True,
        )


def _cells(entry: Compared) -> tuple[str, ...]:
    row, ratios = entry.row, entry.ratios
    sign = ">=" if row.is_more_better else "<="
    verdict = {None: "", True: "yes", False: "NO"}[entry.is_met]
    return (
        entry.title,
        row.unit,
        _short(entry.kafka),
        _short(entry.tidemark),
        f"{median(ratios):.3g}" if ratios else "-",
        f"{min(ratios):.3g}" if ratios else "-",
        f"{max(ratios):.3g}" if ratios else "-",
        f"{sign} {row.target:.3g}" if row.target else "",
        verdict,
    )


def _short(figures: tuple[float, ...]) -> str:
    if not figures:
        return "-"
    figure = median(figures)
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


def write(
    directory: Path, rounds: Rounds, about: dict[str, Any], failures: Sequence[Failure] = ()
) -> None:
    compared = compare(rounds)
    directory.mkdir(parents=True, exist_ok=True)
    document = {
        "about": about,
        "rounds": rounds,
        "failures": failures,
        "rows": [
            {
                "key": entry.row.key,
                "title": entry.title,
                "unit": entry.row.unit,
                "target": entry.row.target,
                "is_met": entry.is_met,
                "kafka": entry.kafka,
                "tidemark": entry.tidemark,
                "ratios": entry.ratios,
            }
            for entry in compared
        ],
    }
    encoded = msgspec.json.format(msgspec.json.encode(document), indent=1)
    (directory / "bench.json").write_bytes(encoded)
    (directory / "bench.svg").write_text(chart(compared))
