"""Run the kernel in this process: for what fits one core, and to check Spark by."""

from dataclasses import replace

import pyarrow as pa

from tidemark_audit.aggregation.merge import merge
from tidemark_audit.aggregation.summaries import EMPTY
from tidemark_audit.analysis.context import Intervals
from tidemark_audit.analysis.partition import analysis_of
from tidemark_audit.engines.engine import (
    Observed,
    Progress,
    Request,
    family_counts,
    is_without_topic,
    make_context,
    observed,
    window_of,
)
from tidemark_audit.engines.planning import scrape_intervals, summarize_slice

PENDING_BYTES = 256 << 20  # of summaries, before they are merged on the way


class LocalEngine:
    name = "local"

    def observe(self, request: Request, progress: Progress) -> Observed:
        merged = self.summaries(request, progress)
        counts = family_counts(merged)
        window = window_of(request, counts)
        intervals = (
            scrape_intervals(merged)
            if request.interval_ms is None
            else Intervals(request.interval_ms, request.interval_ms)
        )
        small = is_without_topic(merged)
        context = make_context(small, window, intervals)
        analysis = list(analysis_of(merged, context))
        if request.what_if is None:
            return observed(counts, small, analysis, context)
        what_if = analysis_of(merged, replace(context, what_if=request.what_if))
        return observed(counts, small, analysis, context, list(what_if))

    def summaries(self, request: Request, progress: Progress) -> pa.Table:
        pending: list[pa.Table] = [EMPTY]
        for done, part in enumerate(request.slices):
            progress(done, len(request.slices))
            for batch in summarize_slice(part, request.window, request.settings):
                pending.append(pa.Table.from_batches([batch]))
            if sum(table.nbytes for table in pending) > PENDING_BYTES:
                pending = [merge(pa.concat_tables(pending), request.settings)]
        progress(len(request.slices), len(request.slices))
        return merge(pa.concat_tables(pending), request.settings)
