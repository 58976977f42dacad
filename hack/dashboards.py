"""Write the Grafana dashboards of the chart, one JSON file each, from the tables below.

`hack/dashboards` writes all files, `hack/dashboards --check` fails if one of them is stale. Every
metric is in docs/operations/metrics.md; tests/integration/test_dashboards.py runs every query
against a real Prometheus.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).resolve().parent.parent / "charts" / "tidemark" / "dashboards"
SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDTH = 24
OF_TOPIC = '{topic=~"$topic"}'
OF_POOL = 'and on (topic_id) tidemark_topic_info{pool=~"$pool"}'
LAG = (
    "(max by (topic, topic_id, partition)"
    ' (tidemark_replica_high_watermark_offset{topic=~"$topic"})'
    " - on (topic_id, partition) group_right (topic)"
    ' max by (group, topic_id, partition) (tidemark_group_committed_offset{group=~"$group"}))'
)


@dataclass(frozen=True)
class Panel:
    """A panel; `queries` are (expression, legend), `good` tells a stat where it turns red."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    description: str = ""
    is_stat: bool = False
    red_from: float | None = None
    red_below: float | None = None


def graph(title: str, *queries: tuple[str, str], unit: str = "short", text: str = "") -> Panel:
    return Panel(title, queries, unit, text)


def stat(title: str, query: str, **more: Any) -> Panel:
    return Panel(title, ((query, ""),), is_stat=True, **more)


def p99(family: str, by: str, where: str = "") -> str:
    return f"histogram_quantile(0.99, sum by ({by}, le) (rate({family}_bucket{where}[1m])))"


def first_row() -> list[Panel]:
    """Return the row that Kafka's dashboards begin with."""
    in_sync, least = (
        "tidemark_partition_in_sync_replicas", "tidemark_partition_min_in_sync_replicas"
    )  # fmt: skip
    return [
        stat(
            "Brokers online",
            'sum(tidemark_controller_brokers{pool=~"$pool",state="Active"})',
            red_below=1,
        ),
        stat(
            "Active controllers",
            "sum(tidemark_controller_leads)",
            red_below=1,
            description="One for each installation of the operator.",
        ),
        stat(
            "Unclean election rate",
            'sum(rate(tidemark_partition_leader_elections_total{pool=~"$pool",kind="unclean"}[5m]))',
            red_from=1e-9,
            unit="cps",
            description="Expected: 0. An unclean election may lose committed records.",
        ),
        stat("Online replicas", f"count(tidemark_replica_is_leader {OF_POOL})"),
        stat(
            "Under replicated",
            f"count((({in_sync} < tidemark_partition_replicas)) {OF_POOL}) or vector(0)",
            red_from=1,
            description="Partitions. Expected during a planned restart.",
        ),
        stat(
            "At min ISR",
            f"count((({in_sync} == {least})) {OF_POOL}) or vector(0)",
            description="Partitions that reject acks=all writes if they lose one more replica.",
        ),
        stat(
            "Under min ISR",
            f"count((({in_sync} < {least})) {OF_POOL}) or vector(0)",
            red_from=1,
            description="Partitions that reject acks=all writes.",
        ),
        stat(
            "Offline",
            'count(tidemark_partition_leader_id{pool=~"$pool"} == -1) or vector(0)',
            red_from=1,
            description="Partitions without a leader.",
        ),
    ]


OVERVIEW = [
    first_row(),
    [
        graph(
            "Records appended per second",
            (
                "sum by (topic) ((rate(tidemark_replica_log_end_offset[1m])"
                " and on (topic_id, partition, broker) tidemark_replica_is_leader == 1)"
                f" {OF_POOL})",
                "{{topic}}",
            ),
            unit="cps",
        ),
        graph(
            "Bytes on the Kafka port",
            ('sum(rate(tidemark_kafka_request_bytes_total{api="Produce"}[1m]))', "produced"),
            (
                'sum(rate(tidemark_kafka_response_bytes_total{api="FetchConsumer"}[1m]))',
                "fetched by consumers",
            ),
            (
                'sum(rate(tidemark_kafka_response_bytes_total{api="FetchFollower"}[1m]))',
                "fetched by followers",
            ),
            unit="Bps",
        ),
    ],
    [
        graph(
            "Brokers by state",
            ('sum by (state) (tidemark_controller_brokers{pool=~"$pool"})', "{{state}}"),
        ),
        graph(
            "Elections",
            (
                "sum by (kind)"
                ' (increase(tidemark_partition_leader_elections_total{pool=~"$pool"}[5m]))',
                "{{kind}}",
            ),
        ),
        graph(
            "ISR changes",
            (
                f"sum by (reason) (increase(tidemark_partition_isr_shrinks_total[5m]) {OF_POOL})",
                "shrinks, {{reason}}",
            ),
            (f"sum(increase(tidemark_partition_isr_expands_total[5m]) {OF_POOL})", "expands"),
        ),
    ],
    [
        graph(
            "Disk used",
            (
                '1 - tidemark_broker_disk_free_bytes{pool=~"$pool"}'
                ' / tidemark_broker_disk_size_bytes{pool=~"$pool"}',
                "broker {{broker}}",
            ),
            unit="percentunit",
        ),
        graph(
            "Planned restarts",
            ('sum by (broker) (tidemark_broker_planned_restart{pool=~"$pool"})', "{{broker}}"),
            text="Under-replication during a planned restart is expected.",
        ),
        graph(
            "Time until certificates end",
            (
                "min by (pool)"
                ' (tidemark_broker_certificate_expiry_timestamp_seconds{pool=~"$pool"}) - time()',
                "certificates of brokers, {{pool}}",
            ),
            (
                'tidemark_pool_authority_expiry_timestamp_seconds{pool=~"$pool"} - time()',
                "authority, {{pool}}",
            ),
            (
                "min by (pool)"
                ' (tidemark_broker_client_authority_expiry_timestamp_seconds{pool=~"$pool"})'
                " - time()",
                "authorities of clients, {{pool}}",
            ),
            unit="s",
            text="Only pools with TLS.",
        ),
        graph(
            "Longest delay of event loops",
            ('max by (broker) (tidemark_broker_loop_lag_max_seconds{pool=~"$pool"})', "{{broker}}"),
            ("max(tidemark_controller_loop_lag_max_seconds)", "operator"),
            unit="s",
        ),
    ],
    [
        stat(
            "Records lost, known to the operator",
            'sum(tidemark_partition_recovery_lost_committed_records{pool=~"$pool"}) or vector(0)',
            red_from=1,
            description="Lower bound of lost committed records. Expected: 0.",
        ),
        stat(
            "Records lost, gaps of leaders",
            "sum(max by (topic_id, partition) (tidemark_partition_election_committed_gap_records"
            f" {OF_POOL})) or vector(0)",
            red_from=1,
            description="Lower bound of lost committed records. Expected: 0.",
        ),
        Panel(
            "Last audit",
            (
                (
                    "max by (audit, verdict) (tidemark_audit_verdict == 1)"
                    ' or label_replace(vector(0), "verdict", "no audit has run", "", "")',
                    "{{audit}} {{verdict}}",
                ),
            ),
            is_stat=True,
        ),
    ],
]

TOPIC = [
    [
        stat("Partitions", 'sum(tidemark_topic_partitions{topic=~"$topic"})'),
        stat("Replication factor", 'min(tidemark_topic_replication_factor{topic=~"$topic"})'),
        stat(
            "Without a leader",
            'count(tidemark_partition_leader_id{topic=~"$topic"} == -1) or vector(0)',
            red_from=1,
        ),
        stat(
            "Reject acks=all",
            'count(tidemark_partition_in_sync_replicas{topic=~"$topic"}'
            " < tidemark_partition_min_in_sync_replicas) or vector(0)",
            red_from=1,
        ),
        stat("Bytes stored", 'sum(tidemark_replica_size_bytes{topic=~"$topic"})', unit="bytes"),
    ],
    [
        graph(
            "Records appended per second",
            (
                f"sum by (topic, partition) (rate(tidemark_replica_log_end_offset{OF_TOPIC}[1m])"
                " and on (topic_id, partition, broker) tidemark_replica_is_leader == 1)",
                "{{topic}}-{{partition}}",
            ),
            unit="cps",
        ),
        graph(
            "Leader of each partition",
            (
                'max by (topic, partition) (tidemark_partition_leader_id{topic=~"$topic"})',
                "{{topic}}-{{partition}}",
            ),
            text="Broker ID; -1: none.",
        ),
    ],
    [
        graph(
            "In-sync replicas",
            (
                'min by (topic, partition) (tidemark_partition_in_sync_replicas{topic=~"$topic"})',
                "{{topic}}-{{partition}}",
            ),
            (
                'max by (topic) (tidemark_partition_min_in_sync_replicas{topic=~"$topic"})',
                "min.insync.replicas of {{topic}}",
            ),
        ),
        graph(
            "ISR shrinks",
            (
                "sum by (topic, reason)"
                ' (increase(tidemark_partition_isr_shrinks_total{topic=~"$topic"}[5m]))',
                "{{topic}}, {{reason}}",
            ),
        ),
    ],
    [
        graph(
            "Lag of followers",
            (
                f"max by (topic, partition, follower) (tidemark_follower_lag_records{OF_TOPIC})",
                "{{topic}}-{{partition}} on {{follower}}",
            ),
            text="Records behind the leader's log end.",
        ),
        graph(
            "Followers not caught up for",
            (
                'max by (follower) (tidemark_follower_caught_up_age_seconds{topic=~"$topic"})',
                "follower {{follower}}",
            ),
            unit="s",
        ),
    ],
    [
        graph(
            "Elections",
            (
                "sum by (topic, kind)"
                ' (increase(tidemark_partition_leader_elections_total{topic=~"$topic"}[5m]))',
                "{{topic}}, {{kind}}",
            ),
        ),
        graph(
            "Leader epoch",
            (
                f"max by (topic, partition) (tidemark_partition_durable_leader_epoch{OF_TOPIC})",
                "{{topic}}-{{partition}}",
            ),
        ),
        graph(
            "Lag of consumer groups",
            (f"sum by (group, topic) {LAG}", "{{group}} in {{topic}}"),
            text="Records between the committed offset and the high watermark.",
        ),
    ],
    [
        graph(
            "Offsets",
            (
                'max by (topic, partition) (tidemark_replica_log_start_offset{topic=~"$topic"})',
                "{{topic}}-{{partition}} start",
            ),
            (
                f"max by (topic, partition) (tidemark_replica_high_watermark_offset{OF_TOPIC})",
                "{{topic}}-{{partition}} high watermark",
            ),
        ),
        graph(
            "Bytes stored by broker",
            ('sum by (broker) (tidemark_replica_size_bytes{topic=~"$topic"})', "{{broker}}"),
            unit="bytes",
        ),
    ],
]

_HERE = '{instance=~"$instance"}'
BROKER = [
    [
        stat("Partitions led", f"sum(tidemark_replica_is_leader{_HERE})"),
        stat("Replicas", f"count(tidemark_replica_is_leader{_HERE})"),
        stat("Broker epoch", f"max(tidemark_broker_epoch{_HERE})"),
        stat("Disk free", f"min(tidemark_broker_disk_free_bytes{_HERE} >= 0)", unit="bytes"),
        stat("Running for", f"time() - max(process_start_time_seconds{_HERE})", unit="s"),
        stat(
            "Corrupt batches",
            'sum(tidemark_crc_failures_total{instance=~"$instance",where!="produce"})',
            red_from=1,
        ),
    ],
    [
        graph(
            "Requests of the Kafka port",
            (f"sum by (api) (rate(tidemark_kafka_requests_total{_HERE}[1m]))", "{{api}}"),
            unit="reqps",
        ),
        graph(
            "Latency of the Kafka port, p99",
            (p99("tidemark_kafka_request_duration_seconds", "api", _HERE), "{{api}}"),
            unit="s",
            text="A Fetch waits for records, a Produce with acks=all for followers.",
        ),
    ],
    [
        graph(
            "Bytes of the Kafka port",
            (f"sum by (api) (rate(tidemark_kafka_request_bytes_total{_HERE}[1m]))", "{{api}} in"),
            (f"sum by (api) (rate(tidemark_kafka_response_bytes_total{_HERE}[1m]))", "{{api}} out"),
            unit="Bps",
        ),
        graph(
            "Partitions led",
            (f"sum by (broker) (tidemark_replica_is_leader{_HERE})", "broker {{broker}}"),
        ),
    ],
    [
        graph(
            "HTTP requests",
            (f"sum by (route) (rate(tidemark_http_requests_total{_HERE}[1m]))", "{{route}}"),
            (f"sum(tidemark_http_requests_in_flight{_HERE})", "in flight"),
            unit="reqps",
        ),
        graph(
            "HTTP latency, p99",
            (p99("tidemark_http_request_duration_seconds", "route", _HERE), "{{route}}"),
            unit="s",
        ),
    ],
    [
        graph(
            "CPU",
            (f"rate(process_cpu_seconds_total{_HERE}[1m])", "{{instance}}"),
            unit="percentunit",
        ),
        graph("Memory", (f"process_resident_memory_bytes{_HERE}", "{{instance}}"), unit="bytes"),
        graph("Open files", (f"process_open_fds{_HERE}", "{{instance}}")),
    ],
    [
        graph(
            "Longest delay of the event loop",
            (f"tidemark_broker_loop_lag_max_seconds{_HERE}", "broker {{broker}}"),
            unit="s",
        ),
        graph("Syncs", (f"rate(tidemark_fsyncs_total{_HERE}[1m])", "{{instance}}"), unit="ops"),
        graph("Clock skew", ("tidemark_broker_clock_skew_seconds", "broker {{broker}}"), unit="s"),
    ],
    [
        graph(
            "Disk free",
            (f"tidemark_broker_disk_free_bytes{_HERE}", "broker {{broker}}"),
            unit="bytes",
        ),
        graph(
            "Bytes of logs",
            (f"sum by (broker) (tidemark_replica_size_bytes{_HERE})", "broker {{broker}}"),
            unit="bytes",
        ),
        graph(
            "Producer IDs",
            (f"sum by (broker) (tidemark_replica_producer_ids{_HERE})", "broker {{broker}}"),
        ),
    ],
]

OPERATOR = [
    [
        stat("Active controllers", "sum(tidemark_controller_leads)", red_below=1),
        stat("Controller epoch", "max(tidemark_controller_epoch)"),
        stat("Partitions", "sum(tidemark_controller_partitions)"),
        stat("Without a leader", "sum(tidemark_controller_leaderless_partitions)", red_from=1),
        stat(
            "Under replicated", "sum(tidemark_controller_under_replicated_partitions)", red_from=1
        ),
        stat(
            "Longest pass that runs now",
            "max(time() - tidemark_reconcile_in_progress_start_time_seconds) or vector(0)",
            unit="s",
            red_from=600,
            description="A pass that neither ends nor fails blocks its object.",
        ),
    ],
    [
        graph(
            "Reconcile passes",
            ("sum by (kind) (rate(tidemark_reconcile_passes_total[1m]))", "{{kind}}"),
            unit="cps",
        ),
        graph(
            "Failed passes",
            ("sum by (kind) (increase(tidemark_reconcile_errors_total[5m]))", "{{kind}}"),
        ),
    ],
    [
        graph(
            "Duration of passes, p99",
            (p99("tidemark_reconcile_duration_seconds", "kind"), "{{kind}}"),
            unit="s",
        ),
        graph("Objects that wait", ("sum by (kind) (tidemark_reconcile_queue_length)", "{{kind}}")),
    ],
    [
        graph(
            "Delay of the event loop",
            ("max by (instance) (tidemark_controller_loop_lag_seconds)", "{{instance}}"),
            (
                "max by (instance) (tidemark_controller_loop_lag_max_seconds)",
                "{{instance}}, longest",
            ),
            unit="s",
            text="The Lease is given up once the loop has not turned for 10 s.",
        ),
        graph(
            "Brokers by state",
            ("sum by (pool, state) (tidemark_controller_brokers)", "{{pool}} {{state}}"),
        ),
    ],
    [
        graph(
            "Planned restarts",
            (
                "sum by (pool, broker) (increase(tidemark_broker_planned_restarts_total[5m]))",
                "{{pool}} broker {{broker}}",
            ),
        ),
        graph(
            "Leader elections",
            ("sum by (kind) (increase(tidemark_partition_leader_elections_total[5m]))", "{{kind}}"),
        ),
    ],
]

CLIENTS = [
    [
        stat("Groups", "sum(tidemark_groups)"),
        stat("Members", "sum(tidemark_group_members)"),
        stat("Largest lag", f"max{LAG}", description="Records of one partition."),
        stat(
            "Errors per second",
            "sum(rate(tidemark_kafka_request_errors_total[5m])) or vector(0)",
            unit="cps",
        ),
        stat("HTTP requests in flight", "sum(tidemark_http_requests_in_flight)"),
    ],
    [
        graph("Lag by group", (f"sum by (group, topic) {LAG}", "{{group}} in {{topic}}")),
        graph(
            "Largest lags of partitions",
            (f"topk(10, {LAG})", "{{group}} in {{topic}}-{{partition}}"),
        ),
    ],
    [
        graph(
            "Committed offsets per second",
            (
                "sum by (group, topic)"
                ' (rate(tidemark_group_committed_offset{group=~"$group",topic=~"$topic"}[1m]))',
                "{{group}} in {{topic}}",
            ),
            unit="cps",
            text="Records that the group has done with.",
        ),
        graph(
            "Lag where coordinator and leader are one broker",
            (
                "sum by (group, topic)"
                ' (tidemark_group_lag_records{group=~"$group",topic=~"$topic"})',
                "{{group}} in {{topic}}",
            ),
        ),
    ],
    [
        graph("Groups by state", ("sum by (state) (tidemark_groups)", "{{state}}")),
        graph("Rebalances", ("sum(increase(tidemark_group_rebalances_total[5m]))", "rebalances")),
        graph(
            "Offset commits",
            ("sum(rate(tidemark_group_offset_commits_total[1m]))", "commits"),
            unit="cps",
        ),
    ],
    [
        graph(
            "Requests of the Kafka port",
            ("sum by (api) (rate(tidemark_kafka_requests_total[1m]))", "{{api}}"),
            unit="reqps",
        ),
        graph(
            "Errors of the Kafka port",
            (
                "sum by (api, error) (rate(tidemark_kafka_request_errors_total[1m]))",
                "{{api}} {{error}}",
            ),
            unit="cps",
        ),
    ],
    [
        graph(
            "Latency of Produce",
            *(
                (
                    f"histogram_quantile({quantile}, sum by (le) (rate("
                    'tidemark_kafka_request_duration_seconds_bucket{api="Produce"}[1m])))',
                    f"p{100 * quantile:g}",
                )
                for quantile in (0.5, 0.95, 0.99)
            ),
            unit="s",
        ),
        graph(
            "HTTP requests",
            (
                "sum by (route, status) (rate(tidemark_http_requests_total[1m]))",
                "{{route}} {{status}}",
            ),
            unit="reqps",
        ),
        graph(
            "HTTP latency, p99",
            (p99("tidemark_http_request_duration_seconds", "route"), "{{route}}"),
            unit="s",
        ),
    ],
]

# File: title, variables as (name, label, query), rows.
DASHBOARDS = {
    "overview": (
        "Tidemark overview",
        [("pool", "Pool", "label_values(tidemark_controller_brokers, pool)")],
        OVERVIEW,
    ),
    "topic": (
        "Tidemark topic",
        [
            ("topic", "Topic", "label_values(tidemark_topic_info, topic)"),
            ("group", "Group", "label_values(tidemark_group_committed_offset, group)"),
        ],
        TOPIC,
    ),
    "broker": (
        "Tidemark broker",
        [("instance", "Broker", "label_values(tidemark_broker_info, instance)")],
        BROKER,
    ),
    "operator": ("Tidemark operator", [], OPERATOR),
    "clients": (
        "Tidemark clients and groups",
        [
            ("topic", "Topic", "label_values(tidemark_group_committed_offset, topic)"),
            ("group", "Group", "label_values(tidemark_group_committed_offset, group)"),
        ],
        CLIENTS,
    ),
}


def dashboard(name: str) -> dict[str, Any]:
    title, variables, rows = DASHBOARDS[name]
    panels: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        height = 4 if row[0].is_stat else 8
        # Widths differ by one where 24 columns cannot be shared equally.
        edges = [WIDTH * number // len(row) for number in range(len(row) + 1)]
        for panel, left, right in zip(row, edges, edges[1:], strict=False):
            place = {"x": left, "y": y, "w": right - left, "h": height}
            panels.append(written(panel, len(panels) + 1, place))
        y += height
    return {
        "title": title,
        "uid": f"tidemark-{name}",
        "tags": ["tidemark"],
        "schemaVersion": 38,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "editable": True,
        "links": [
            {
                "title": "Tidemark",
                "type": "dashboards",
                "tags": ["tidemark"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {
            "list": [
                {
                    "name": "source",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                },
                *(variable(*each) for each in variables),
            ]
        },
        "annotations": {
            "list": [
                {
                    "name": "Planned restarts",
                    "datasource": SOURCE,
                    "enable": True,
                    "iconColor": "blue",
                    "expr": "increase(tidemark_broker_planned_restarts_total[1m]) > 0",
                    "titleFormat": "broker {{broker}}",
                }
            ]
        },
        "panels": panels,
    }


def variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def written(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    steps = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps = [*steps, {"color": "red", "value": panel.red_from}]
    elif panel.red_below is not None:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": panel.red_below}]
    if panel.is_stat:
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    options: dict[str, Any] = (
        {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
        if panel.is_stat
        else {"legend": {"displayMode": "list", "placement": "bottom"}}
    )
    return {
        "id": number,
        "type": "stat" if panel.is_stat else "timeseries",
        "title": panel.title,
        "description": panel.description,
        "gridPos": place,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend}
            for at, (query, legend) in enumerate(panel.queries)
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="fail where a file is stale")
    checks = parser.parse_args().check
    files = {f"tidemark-{name}.json": dashboard(name) for name in DASHBOARDS}
    texts = {name: json.dumps(content, indent=2) + "\n" for name, content in files.items()}
    there = {file.name for file in DIRECTORY.glob("*.json")}
    stale = sorted(there - set(texts)) + [
        name
        for name, text in texts.items()
        if name not in there or (DIRECTORY / name).read_text() != text
    ]
    if checks:
        for name in stale:
            print(
                f"charts/tidemark/dashboards/{name} is stale: run hack/dashboards", file=sys.stderr
            )
        return 1 if stale else 0
    for name in there - set(texts):
        (DIRECTORY / name).unlink()
    for name, text in texts.items():
        (DIRECTORY / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
