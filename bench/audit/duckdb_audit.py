"""The audit's numbers by SQL: what DuckDB needs for the answers that `tidemark audit` gives.

    python -m bench.audit.duckdb_audit SAMPLES.parquet ANSWERS_DIRECTORY

Written for speed as somebody who knows both would: one pivot of what a broker said of a partition
in one scrape, windows over that, and the kernel's own histogram bins instead of exact quantiles (a
sorted list of all lags) or sketches (wrong for lag, which has two humps). It leaves out what the
audit does beside: duplicates and samples out of order, reasons of ISR changes, planned restarts,
which follower is missing, findings and a report.
"""

import sys
from pathlib import Path

import duckdb

CAP_MS = 37_500  # how long a sample stands: 2.5 intervals
BAND_MS = 60_000
MOST_BANDS = 96

_CUTS = """
CREATE TEMP TABLE cuts AS
SELECT topic, partition, broker, timestamp_ms AS ts,
    max(value) FILTER (metric = 'tidemark_partition_in_sync_replicas') AS in_sync,
    max(value) FILTER (metric = 'tidemark_partition_replicas') AS replicas,
    max(value) FILTER (metric = 'tidemark_partition_min_in_sync_replicas') AS min_in_sync,
    max(value) FILTER (metric = 'tidemark_replica_is_leader') AS leads,
    max(value) FILTER (metric = 'tidemark_replica_leader_epoch') AS epoch,
    max(value) FILTER (metric = 'tidemark_replica_leader_epoch_start_offset') AS epoch_start,
    max(value) FILTER (metric = 'tidemark_replica_high_watermark_offset') AS watermark,
    max(value) FILTER (metric = 'tidemark_replica_committed_truncated_records_total') AS cut
FROM samples
WHERE metric IN (
    'tidemark_partition_in_sync_replicas', 'tidemark_partition_replicas',
    'tidemark_partition_min_in_sync_replicas', 'tidemark_replica_is_leader',
    'tidemark_replica_leader_epoch', 'tidemark_replica_leader_epoch_start_offset',
    'tidemark_replica_high_watermark_offset', 'tidemark_replica_committed_truncated_records_total')
GROUP BY ALL
"""

# A leader's scrape stands until any leader's next one, at most CAP_MS; the rest is unobserved.
_STATES = f"""
CREATE TEMP TABLE states AS
WITH said AS (
    SELECT *,
        least(coalesce(lead(ts) OVER following, (SELECT last FROM span)), ts + {CAP_MS}) AS until,
        lag(in_sync) OVER following AS in_sync_before,
        lag(epoch) OVER following AS epoch_before
    FROM cuts WHERE in_sync IS NOT NULL
    WINDOW following AS (PARTITION BY topic, partition ORDER BY ts))
SELECT *, CASE WHEN in_sync < min_in_sync THEN 'under-min-isr'
    WHEN in_sync < replicas THEN 'under-replicated' ELSE 'healthy' END AS state
FROM said
"""

_ANSWERS = {
    "sli": """
SELECT topic, partition,
    sum(until - ts) FILTER (state = 'healthy') AS healthy_ms,
    coalesce(sum(until - ts) FILTER (state = 'under-replicated'), 0) AS degraded_ms,
    coalesce(sum(until - ts) FILTER (state = 'under-min-isr'), 0) AS under_min_isr_ms,
    (SELECT last - first FROM span) - sum(until - ts) AS unobserved_ms,
    coalesce(sum(until - ts) FILTER (in_sync = 1 AND replicas > 1), 0) AS one_from_loss_ms,
    coalesce(sum(until - ts) FILTER (in_sync = min_in_sync AND replicas > min_in_sync), 0)
        AS one_from_stall_ms
FROM states GROUP BY ALL""",
    # Gaps and islands: a stretch begins where the state is new or nothing stood before it.
    "intervals": """
WITH marked AS (
    SELECT topic, partition, ts, until, state,
        (lag(state) OVER following IS DISTINCT FROM state
            OR lag(until) OVER following < ts)::INT AS begins
    FROM states WINDOW following AS (PARTITION BY topic, partition ORDER BY ts)),
numbered AS (
    SELECT *, sum(begins) OVER (PARTITION BY topic, partition ORDER BY ts) AS island FROM marked)
SELECT topic, partition, state, min(ts) AS start_ms, max(until) AS end_ms
FROM numbered GROUP BY topic, partition, state, island HAVING state <> 'healthy'""",
    "isr_changes": """
SELECT topic, partition, ts AS at_ms, in_sync_before::INT AS before, in_sync::INT AS after
FROM states WHERE in_sync <> in_sync_before""",
    "elections": """
SELECT topic, partition, ts AS at_ms, broker, epoch::INT AS epoch
FROM states WHERE epoch > epoch_before""",
    # A histogram of a follower holds zeros for the scrapes at which it led itself.
    "lag": """
WITH bins AS (
    SELECT metric, topic, partition, follower, broker, max(value) AS largest, count(*) AS samples,
        CASE WHEN value <= 1e-6 THEN 0
            ELSE ceil(ln(value / 1e-6) / ln(1.02) - 1e-9) END::INT AS bin
    FROM samples
    WHERE metric IN ('tidemark_follower_lag_records', 'tidemark_follower_caught_up_age_seconds')
    GROUP BY ALL),
per_leader AS (
    SELECT topic, partition, broker, metric, follower, sum(samples) AS samples
    FROM bins GROUP BY ALL),
looks AS (
    SELECT topic, partition, sum(most) AS looks FROM (
        SELECT topic, partition, broker, max(samples) AS most FROM per_leader GROUP BY ALL)
    GROUP BY ALL),
per_follower AS (
    SELECT metric, topic, partition, follower, bin, sum(samples) AS samples,
        max(largest) AS largest FROM bins GROUP BY ALL),
padded AS (
    SELECT metric, topic, partition, follower, bin, samples, largest FROM per_follower
    UNION ALL
    SELECT metric, topic, partition, follower, 0, any_value(looks) - sum(samples), 0
    FROM per_follower JOIN looks USING (topic, partition) GROUP BY ALL),
summed AS (
    SELECT *, sum(samples) OVER upward AS reached, sum(samples) OVER whole AS total,
        max(largest) OVER whole AS maximum
    FROM (SELECT metric, topic, partition, follower, bin, sum(samples) AS samples,
            max(largest) AS largest FROM padded GROUP BY ALL)
    WINDOW upward AS (PARTITION BY metric, topic, partition, follower ORDER BY bin),
        whole AS (PARTITION BY metric, topic, partition, follower))
SELECT metric, topic, partition, follower, any_value(maximum) AS maximum,
    min(bin) FILTER (reached >= ceil(0.5 * total)) AS p50_bin,
    min(bin) FILTER (reached >= ceil(0.99 * total)) AS p99_bin,
    min(bin) FILTER (reached >= ceil(0.999 * total)) AS p999_bin
FROM summed GROUP BY ALL""",
    "bands": f"""
WITH span_of_band AS (
    SELECT {BAND_MS} * ceil((last - first) / {MOST_BANDS * BAND_MS})::BIGINT AS length, first
    FROM span),
banded AS (
    SELECT greatest(timestamp_ms // length * length, first) AS start_ms,
        CASE WHEN value <= 1e-6 THEN 0
            ELSE ceil(ln(value / 1e-6) / ln(1.02) - 1e-9) END::INT AS bin,
        count(*) AS samples, max(value) AS largest
    FROM samples, span_of_band
    WHERE metric = 'tidemark_follower_caught_up_age_seconds' GROUP BY ALL),
summed AS (
    SELECT *, sum(samples) OVER (PARTITION BY start_ms ORDER BY bin) AS reached,
        sum(samples) OVER (PARTITION BY start_ms) AS total FROM banded)
SELECT start_ms, any_value(total) AS samples, max(largest) AS maximum,
    min(bin) FILTER (reached >= ceil(0.5 * total)) AS p50_bin,
    min(bin) FILTER (reached >= ceil(0.9 * total)) AS p90_bin,
    min(bin) FILTER (reached >= ceil(0.99 * total)) AS p99_bin
FROM summed GROUP BY ALL""",
    "truncations": """
WITH stepped AS (
    SELECT *, lag(cut) OVER (PARTITION BY topic, partition, broker ORDER BY ts) AS before FROM cuts)
SELECT topic, partition, broker, ts AS at_ms,
    CASE WHEN cut >= before THEN cut - before ELSE cut END AS records
FROM stepped WHERE cut <> before AND cut > 0""",
    "regresses": """
WITH stepped AS (
    SELECT *, lag(watermark) OVER life AS high, lag(epoch) OVER life AS former,
        lag(leads) OVER life AS led
    FROM cuts WINDOW life AS (PARTITION BY topic, partition, broker ORDER BY ts))
SELECT topic, partition, ts AS at_ms, high - watermark AS records
FROM stepped WHERE watermark < high AND epoch = former AND leads = 1 AND led = 1""",
    "epochs_below": """
WITH starts AS (
    SELECT topic, partition, epoch, arg_min(epoch_start, ts) AS epoch_start, min(ts) AS at_ms
    FROM cuts WHERE leads = 1 GROUP BY ALL),
highest AS (
    SELECT s.topic, s.partition, s.epoch, s.epoch_start, s.at_ms, max(h.watermark) AS high
    FROM starts s JOIN (
        SELECT topic, partition, epoch, max(watermark) AS watermark FROM cuts GROUP BY ALL) h
        ON h.topic = s.topic AND h.partition = s.partition AND h.epoch < s.epoch
    GROUP BY ALL)
SELECT topic, partition, epoch::INT AS epoch, at_ms, high - epoch_start AS records
FROM highest WHERE epoch_start < high""",
    "coverage": """
SELECT topic, partition, count(*) AS samples FROM samples WHERE topic <> '' GROUP BY ALL""",
}


def main() -> int:
    file, responses = Path(sys.argv[1]), Path(sys.argv[2])
    responses.mkdir(parents=True, exist_ok=True)
    database = duckdb.connect()
    database.execute("SET temp_directory = ?", [str(responses)])
    database.execute(f"CREATE VIEW samples AS FROM read_parquet('{file}')")
    database.execute(
        "CREATE TEMP TABLE span AS"
        " SELECT min(timestamp_ms) AS first, max(timestamp_ms) AS last FROM samples"
    )
    database.execute(_CUTS)
    database.execute(_STATES)
    for name, query in _ANSWERS.items():
        database.execute(f"COPY ({query}) TO '{responses / name}.parquet' (FORMAT parquet)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
