"""Run one audit from end to end: sources, an engine, objectives; an AuditResult.

In a notebook `run(spark, ["export.parquet"])` is all that is needed.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark_audit.analysis.what_if import WhatIf
from tidemark_audit.assembly import assemble
from tidemark_audit.checkpoint import with_checkpoint
from tidemark_audit.engines.engine import Engine, Observed, Progress, Request
from tidemark_audit.engines.planning import aggregation_settings
from tidemark_audit.results import AuditResult, SourceInfo, WhatIfAnswer
from tidemark_audit.slo import Slo
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.source import Slice, Source, Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


NAMED_PLACES = 3
EVERYTHING = Window()
DEFAULTS = Slo()


def no_progress(done: int, total: int) -> None:
    """Ignore progress."""


def audit(
    engine: Engine,
    sources: Sequence[Source],
    *,
    window: Window = EVERYTHING,
    slo: Slo = DEFAULTS,
    interval_ms: int | None = None,
    progress: Progress = no_progress,
) -> AuditResult:
    """Audit the sources and return the result.

    Raises SourceError, NoSamples, OverlappingSlices; everything else becomes a finding.
    """
    requested = AuditRequest(window, slo, interval_ms)
    return audit_what_if(engine, sources, requested, None, progress=progress)[0]


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """Hold what is judged, and by which objectives."""

    window: Window = Window()
    slo: Slo = Slo()
    interval_ms: int | None = None
    checkpoint: Path | None = None  # a directory of summaries of earlier runs
    unsettled_ms: int = 0  # after the window, left out: its samples may not all be there yet


def audit_what_if(
    engine: Engine,
    sources: Sequence[Source],
    requested: AuditRequest,
    what_if: WhatIf | None,
    *,
    progress: Progress = no_progress,
) -> tuple[AuditResult, AuditResult | None]:
    """Audit, and judge the same summaries under other settings.

    The first result describes both. Raises as `audit`.
    """
    started = time.monotonic()
    settings = aggregation_settings(sources, requested.window, requested.interval_ms)
    window, slices = requested.window.looking_back(), list[Slice]()
    if requested.checkpoint is None:
        slices = [part for source in sources for part in source.slices(window.to_read)]
    else:
        kept, window, settings = with_checkpoint(
            requested.checkpoint, engine, sources, requested.window, settings, progress
        )
        slices += kept
    request = Request(slices, window, settings, requested.interval_ms, what_if)
    observed = engine.observe(request, progress)
    histograms = sum(source.histogram_series() for source in sources)

    def assembled(observed: Observed) -> AuditResult:
        return assemble(
            observed,
            requested.slo,
            engine=engine.name,
            sources=[_all_sources(sources, observed, histograms)],
            wall_seconds=time.monotonic() - started,
            unsettled_ms=requested.unsettled_ms,
        )

    result = assembled(observed)
    if what_if is None:
        return result, None
    would = assembled(replace(observed, partitions=observed.partitions_what_if))
    response = WhatIfAnswer(
        what_if.words(), would.verdict, would.sentence, would.rules, would.sli_by_topic
    )
    return replace(result, what_if=response), would


def _all_sources(sources: Sequence[Source], observed: Observed, histograms: int) -> SourceInfo:
    """Describe several sources as one: their summaries are merged before anything is counted."""
    places = [source.place for source in sources]
    more = len(places) - NAMED_PLACES
    return SourceInfo(
        ", ".join(places[:NAMED_PLACES]) + (f" and {more} more" if more > 0 else ""),
        ", ".join(sorted({source.kind for source in sources})),
        observed.samples,
        observed.series,
        histograms,
    )


def run(
    spark: "SparkSession | None",
    places: Sequence[str],
    *,
    window: Window = EVERYTHING,
    slo: Slo = DEFAULTS,
    interval_ms: int | None = None,
) -> AuditResult:
    """Audits files on an existing session, classic or Connect; without Spark if it is None."""
    engine: Engine
    if spark is None:
        from tidemark_audit.engines.local import LocalEngine

        engine = LocalEngine()
    else:
        from tidemark_audit.engines.spark import SparkEngine

        engine = SparkEngine(spark)
    return audit(engine, sources_at(places), window=window, slo=slo, interval_ms=interval_ms)
