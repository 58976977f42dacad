"""Render parts that several sections of the page use: tables, times, spreads. Pure."""

from collections.abc import Iterable, Sequence

from tidemark_chaos.report.results import Spread
from tidemark_chaos.workload_series import Latency


def table(heads: Sequence[str], rows: Iterable[str]) -> str:
    """Return a table; a head that begins with < is of a column of words."""
    cells = "".join(
        f'<th class="l">{head[1:]}</th>' if head.startswith("<") else f"<th>{head}</th>"
        for head in heads
    )
    return (
        f'<div class="wide"><table><thead><tr>{cells}</tr></thead><tbody>{"".join(rows)}'
        "</tbody></table></div>"
    )


def spread_text(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    longest = f"{spread.max_ms:,.0f}"
    return longest if spread.count == 1 else f"{spread.p50_ms:,.0f} / {longest}"


def latency_text(latency: Latency) -> str:
    values = (latency.p50_ms, latency.p99_ms, latency.max_ms)
    if None in values:
        return "-"
    return " / ".join(
        f"{value:,.0f}" if value and value >= 100 else f"{value:.1f}" for value in values
    )


def time_text(value_ms: float | None) -> str:
    if value_ms is None:
        return "-"
    return f"{value_ms / 1000:,.2f} s" if value_ms >= 10_000 else f"{value_ms:,.0f} ms"
