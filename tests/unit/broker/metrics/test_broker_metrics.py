"""/metrics of a broker: names, labels and values that the audit reads, by profile."""

import asyncio
import gzip
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tidemark_broker.coordinator.core.requests import GroupOffset
from tidemark_broker.metrics.broker_metrics import MetricsProfile, render_group_offsets
from tidemark_broker.replication.core.replica_digest import BoundaryDigest
from tidemark_broker.replication.partition_snapshot import (
    FollowerSnapshot,
    PartitionSnapshot,
    ShrinkReason,
)
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import Member, PartitionState

from bench import metrics_scrape
from tests.support.metric_docs import documented_families
from tests.support.promtool import faults_of_metrics
from tests.support.waiting import HANG_SECONDS
from tests.unit.broker.http.fake_broker import ORDERS_ID, FakeBroker, fake_broker

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
REPLICA = {("topic", "orders"), ("topic_id", ORDERS_ID), ("partition", "1"), ("broker", "0")}
STATE = PartitionState(
    partition=1,
    replicas=(BrokerId(0), BrokerId(1), BrokerId(2)),
    leader=BrokerId(0),
    leader_broker_epoch=BrokerEpoch(12),
    leader_epoch=LeaderEpoch(4),
    in_sync_replicas=(Member(BrokerId(0), BrokerEpoch(12)), Member(BrokerId(1), BrokerEpoch(3))),
    eligible_leaders=(),
    partition_epoch=PartitionEpoch(9),
    min_insync_replicas=2,
)


def a_truncation(**changes: Any) -> PartitionSnapshot:
    given: dict[str, Any] = {
        "topic": "orders",
        "topic_id": ORDERS_ID,
        "partition": 1,
        "is_leader": True,
        "leader_epoch": LeaderEpoch(4),
        "epoch_start_offset": Offset(90),
        "log_start_offset": Offset(10),
        "high_watermark": Offset(99),
        "log_end_offset": Offset(101),
        "size_bytes": 4096,
        "state": STATE,
        "replica_lag_max_ms": 10_000,
        "followers": (
            FollowerSnapshot(BrokerId(1), 2, 40, True),
            FollowerSnapshot(BrokerId(2), 101, -1, False),
        ),
        "isr_shrinks": ((ShrinkReason.LAG, 3), (ShrinkReason.FENCED, 0), (ShrinkReason.PLANNED, 1)),
        "isr_expands": 2,
        "truncated_records": 5,
        "committed_truncated_records": 3,
        "election_gap_records": 7,
        "largest_append_records": 500,
        "producer_ids": 2,
        "duplicate_batches": 1,
    }
    return PartitionSnapshot(**(given | changes))


def scraped_text(broker: FakeBroker) -> str:
    async def bounded() -> str:
        async with asyncio.timeout(HANG_SECONDS):
            response = await broker.client.get("/metrics")
        assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        return response.body.decode()

    return asyncio.run(bounded())


def scrape(broker: FakeBroker) -> Samples:
    samples: Samples = {}
    for family in text_string_to_metric_families(scraped_text(broker)):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples
            samples[key] = sample.value
    return samples


def test_a_led_partition_is_exported_under_the_audits_names_and_labels() -> None:
    broker = fake_broker()
    broker.partitions.truncations = (a_truncation(),)
    samples = scrape(broker)
    expected = {
        "partition_replicas": 3,
        "partition_in_sync_replicas": 2,
        "partition_min_in_sync_replicas": 2,
        "partition_reassigning": 0,
        "partition_replica_lag_max_seconds": 10,
        "partition_isr_expands_total": 2,
        "partition_election_committed_gap_records": 7,
        "partition_largest_append_records": 500,
        "replica_log_start_offset": 10,
        "replica_log_end_offset": 101,
        "replica_high_watermark_offset": 99,
        "replica_leader_epoch": 4,
        "replica_leader_epoch_start_offset": 90,
        "replica_is_leader": 1,
        "replica_size_bytes": 4096,
        "replica_truncated_records_total": 5,
        "replica_committed_truncated_records_total": 3,
        "replica_producer_ids": 2,
        "replica_duplicate_batches_total": 1,
    }
    found = {name: samples[f"tidemark_{name}", frozenset(REPLICA)] for name in expected}
    assert found == expected


def test_each_follower_is_seen_by_its_leader() -> None:
    broker = fake_broker()
    broker.partitions.truncations = (a_truncation(),)
    samples = scrape(broker)
    followers = {
        (name, follower): samples[
            f"tidemark_follower_{name}", frozenset(REPLICA | {("follower", follower)})
        ]
        for name in ("lag_records", "caught_up_age_seconds", "in_sync")
        for follower in ("1", "2")
    }
    assert followers == {
        ("lag_records", "1"): 2,
        ("caught_up_age_seconds", "1"): 0.04,
        ("in_sync", "1"): 1,
        ("lag_records", "2"): 101,
        ("caught_up_age_seconds", "2"): -1,
        ("in_sync", "2"): 0,
    }


def test_every_reason_of_a_shrink_has_its_counter_from_the_beginning() -> None:
    broker = fake_broker()
    broker.partitions.truncations = (a_truncation(),)
    samples = scrape(broker)
    name = "tidemark_partition_isr_shrinks_total"
    reasons = {
        reason: samples[name, frozenset(REPLICA | {("reason", reason)})]
        for reason in ("lag", "fenced", "planned")
    }
    assert reasons == {"lag": 3, "fenced": 0, "planned": 1}


def test_a_replica_that_a_move_adds_is_not_one_that_is_missing() -> None:
    moving = PartitionState(
        **{name: getattr(STATE, name) for name in PartitionState.__slots__}
        | {
            "replicas": (BrokerId(3), BrokerId(0), BrokerId(1), BrokerId(2)),
            "adding_replicas": (BrokerId(3),),
            "removing_replicas": (BrokerId(2),),
        }
    )
    broker = fake_broker()
    broker.partitions.truncations = (a_truncation(state=moving),)
    samples = scrape(broker)
    assert samples["tidemark_partition_replicas", frozenset(REPLICA)] == 3
    assert samples["tidemark_partition_reassigning", frozenset(REPLICA)] == 1


def test_a_follower_says_nothing_of_the_partition_only_of_its_replica() -> None:
    broker = fake_broker()
    broker.partitions.truncations = (a_truncation(is_leader=False, followers=()),)
    names = {name for name, _ in scrape(broker)}
    assert "tidemark_replica_log_end_offset" in names
    assert not any(name.startswith("tidemark_partition_") for name in names)
    assert not any(name.startswith("tidemark_follower_") for name in names)


def test_digests_are_shown_in_the_full_profile_only() -> None:
    cut = a_truncation(digest=BoundaryDigest(Offset(96), 2**48 - 1))
    shown = {}
    for profile in MetricsProfile:
        broker = fake_broker(metrics_profile=profile)
        broker.partitions.truncations = (cut,)
        samples = scrape(broker)
        shown[profile.value] = (
            samples.get(("tidemark_replica_digest_offset", frozenset(REPLICA))),
            samples.get(("tidemark_replica_digest", frozenset(REPLICA))),
        )
    assert shown == {
        "minimal": (None, None),
        "audit": (None, None),
        "full": (96, 2**48 - 1),  # a float64 holds it exactly
    }


def test_requests_the_broker_and_the_process_are_counted() -> None:
    broker = fake_broker()
    asyncio.run(broker.client.post("/topics/orders", {"records": [{"value": 1}]}))
    samples = scrape(broker)
    counted = frozenset({("route", "produce_topic"), ("status", "200")})
    assert samples["tidemark_http_requests_total", counted] == 1
    inf = frozenset({("route", "produce_topic"), ("le", "+Inf")})
    assert samples["tidemark_http_request_duration_seconds_bucket", inf] == 1
    assert samples["tidemark_fsyncs_total", frozenset()] == 17
    named = {("broker", "0"), ("pool", "shop/default")}
    assert samples["tidemark_broker_epoch", frozenset(named)] == 12
    info = next(labels for name, labels in samples if name == "tidemark_broker_info")
    assert {("rack", "rack-0"), ("metrics_profile", "audit"), *named} < info
    assert samples["process_resident_memory_bytes", frozenset()] > 1_000_000


@pytest.mark.parametrize("profile", MetricsProfile)
def test_a_replica_that_is_kept_without_its_topic_says_that_alone(profile: MetricsProfile) -> None:
    """The operator says nothing of it, and it has no leader: an audit would call that an outage."""
    broker = fake_broker(metrics_profile=profile)
    broker.partitions.truncations = (
        a_truncation(),
        a_truncation(topic="kept", topic_id=TopicId("kept-id")),
    )
    broker.partitions.metadata.retained[TopicId("kept-id")] = None
    found = {name for name, labels in scrape(broker) if ("topic", "kept") in labels}
    expected = {"tidemark_replica_is_retained", "tidemark_replica_size_bytes"}
    assert found == expected - (
        {"tidemark_replica_size_bytes"} if profile.value == "minimal" else set()
    )


@pytest.mark.parametrize("profile", MetricsProfile)
def test_the_page_of_metrics_and_the_broker_agree(profile: MetricsProfile) -> None:
    broker = fake_broker(metrics_profile=profile, ends_s=(1.0, 1.0))
    broker.partitions.truncations = (a_truncation(),)
    text = scraped_text(broker)
    exported = dict(
        line.removeprefix("# TYPE ").split(" ")
        for line in text.splitlines()
        if line.startswith("# TYPE ")
    )
    documented = {
        family.name: family.kinds
        for family in documented_families()
        if "operator" not in family.section and profile.includes(MetricsProfile(family.profile))
    }
    assert set(exported) == set(documented)
    assert [name for name, kind in exported.items() if kind not in documented[name]] == [
        name
        for name in exported
        if name.startswith("process_")  # its row names no type
    ]


@pytest.mark.parametrize("profile", MetricsProfile)
def test_promtool_has_nothing_to_say(profile: MetricsProfile) -> None:
    broker = fake_broker(metrics_profile=profile)
    broker.partitions.truncations = (a_truncation(), a_truncation(partition=2, topic='a"odd\\'))
    assert faults_of_metrics(scraped_text(broker)) == ""


def test_a_scraper_that_takes_gzip_gets_the_same_text_packed() -> None:
    broker = fake_broker()
    broker.partitions.truncations = tuple(a_truncation(partition=number) for number in range(100))

    async def packed() -> tuple[dict[str, str], bytes, bytes]:
        response = await broker.client.get("/metrics", **{"accept-encoding": "gzip"})
        plain = await broker.client.get("/metrics")
        return response.headers, response.body, plain.body

    headers, body, plain = asyncio.run(packed())
    assert headers["content-encoding"] == "gzip"
    unpacked = gzip.decompress(body)
    assert [line for line in unpacked.splitlines() if b"{topic=" in line] == [
        line for line in plain.splitlines() if b"{topic=" in line
    ]
    assert len(body) < len(plain) / 10


def test_a_broker_whose_workers_have_ended_is_scraped_still() -> None:
    # They end before the log directory's lock is given back, and HTTP serves until the end.
    broker = fake_broker()
    broker.partitions.truncations = tuple(a_truncation(partition=number) for number in range(200))

    async def stopping() -> str:
        async with asyncio.timeout(HANG_SECONDS):
            assert (await broker.client.get("/topics")).status == 200  # what FastAPI needs is here
            await asyncio.get_running_loop().shutdown_default_executor()
            packed = await broker.client.get("/metrics", **{"accept-encoding": "gzip"})
        return gzip.decompress(packed.body).decode()

    text = asyncio.run(stopping())
    assert "process_open_fds" in text
    assert text.count("tidemark_replica_high_watermark_offset{") == 200


def test_the_bench_of_a_scrape_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asyncio.run(metrics_scrape.measure(40, 1, MetricsProfile.AUDIT, tmp_path))
    reported = capfd.readouterr().out
    assert "40 led partitions, profile audit: " in reported
    assert "loop held during scrapes" in reported
    assert "of 0 turns" not in reported


def test_a_volume_says_how_much_of_it_is_free() -> None:
    samples = scrape(fake_broker())
    named = frozenset({("broker", "0"), ("pool", "shop/default")})
    assert samples["tidemark_broker_disk_free_bytes", named] == 300
    assert samples["tidemark_broker_disk_size_bytes", named] == 1000


def test_a_broker_with_tls_says_when_its_certificate_and_authorities_of_clients_end() -> None:
    named = frozenset({("broker", "0"), ("pool", "shop/default")})
    name = "tidemark_broker_certificate_expiry_timestamp_seconds"
    of_clients = "tidemark_broker_client_authority_expiry_timestamp_seconds"
    assert (name, named) not in scrape(fake_broker())
    with_tls = scrape(fake_broker(ends_s=(1_800_000_000.5, 1_900_000_000.0)))
    assert with_tls[name, named] == 1_800_000_000
    assert with_tls[of_clients, named] == 1_900_000_000


def group_offset(group: str, partition: int, lag_records: int) -> GroupOffset:
    return GroupOffset(group, "orders", ORDERS_ID, partition, 40, lag_records)


def test_lag_is_said_only_by_a_coordinator_that_leads_the_partition() -> None:
    offsets = (group_offset("a", 0, 7), group_offset('b"\n', 1, -1))
    text = "".join(render_group_offsets(offsets, 7, MetricsProfile.AUDIT))
    assert faults_of_metrics(text) == ""
    values = {
        (sample.name, sample.labels.get("group")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert values == {
        ("tidemark_group_committed_offset", "a"): 40,
        ("tidemark_group_committed_offset", 'b"\n'): 40,
        ("tidemark_group_lag_records", "a"): 7,
        ("tidemark_group_offsets_not_exported", None): 5,  # what the bound leaves out
    }


def test_offsets_of_groups_are_written_in_parts_that_hold_the_loop_briefly() -> None:
    offsets = tuple(group_offset("a", number, 1) for number in range(1000))
    parts = tuple(render_group_offsets(offsets, 1000, MetricsProfile.AUDIT))
    assert max(part.count("\n") for part in parts) <= 64
    assert "".join(parts).count("group_lag_records{") == 1000
    assert tuple(render_group_offsets(offsets, 1000, MetricsProfile.MINIMAL)) == ()
