"""Explain to people who asked for an audit why there was nothing to judge."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark_audit.sources.source import Source, SourceError, Window


@dataclass(frozen=True, slots=True)
class Reason:
    found: str
    to_do: str


def reason(sources: Sequence[Source], window: Window, unsettled_ms: int) -> Reason:
    """`unsettled_ms`: how much after the window was left out. Looks at a few samples."""
    end_ms = window.end_ms
    if unsettled_ms and end_ms is not None:
        young = _seen(sources, Window(end_ms, end_ms + unsettled_ms))
        if young is not None:
            settle = f"{unsettled_ms / 60_000:g} min"
            return Reason(
                f"samples from {_clock(young[0])} on, all younger than {settle}: they are"
                " ignored because some may still be missing (--settle)",
                f"audit again in {settle}, or now with --settle 15s",
            )
    found = _seen(sources, Window())
    if found is not None:
        return Reason(
            f"samples from {_clock(found[0])} to {_clock(found[1])}, none in the window"
            f" {_border(window.start_ms)} to {_border(window.end_ms)}",
            "check --start, --end and --window",
        )
    return Reason(
        "no samples of metric families that the audit reads",
        "check that Prometheus scrapes brokers and operator and has tidemark_broker_epoch"
        " (docs/operations/metrics.md)",
    )


def _seen(sources: Sequence[Source], window: Window) -> tuple[int, int] | None:
    """Return the times of a few samples; None where they cannot be read."""
    times = []
    for source in sources:
        try:
            batch = source.first_batch(window)
        except SourceError:
            continue
        if batch is not None and len(batch):
            times += [int(batch.at_ms.min()), int(batch.at_ms.max())]
    return (min(times), max(times)) if times else None


def _border(at_ms: int | None) -> str:
    return "an open end" if at_ms is None else _clock(at_ms)


def _clock(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
