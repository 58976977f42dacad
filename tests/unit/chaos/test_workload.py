"""A load run against fake brokers, and its verdict."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from tidemark_chaos.verification import verify
from tidemark_chaos.workload import MIXED, MIXED_ACKS, WorkloadRun, WorkloadSettings
from tidemark_chaos.workload_log import (
    Event,
    Produced,
    Read,
    WorkloadLog,
    encode_event,
    read_workload_log,
)
from tidemark_client.client import ClientSettings, TidemarkClient

from tests.support.fake_http_broker import TOPIC, FakeCluster, hang_up
from tests.support.waiting import HANG_SECONDS

SETTINGS = WorkloadSettings(TOPIC, 2, "run", interval_ms=1.0, timeout_ms=2000)


def run(experiment: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(experiment, HANG_SECONDS))


async def load(
    client: TidemarkClient,
    records: int,
    near: dict[str, TidemarkClient] | None = None,
    *,
    settings: WorkloadSettings | None = None,
) -> tuple[WorkloadLog, list[Event]]:
    """Runs until this many outcomes are known."""
    events: list[Event] = []
    outcomes = 0

    def write(event: Event) -> None:
        nonlocal outcomes
        events.append(event)
        outcomes += isinstance(event, Produced)  # on a busy machine stalls are told, too
        if outcomes > records:
            load_run.stop()

    load_run = WorkloadRun(client, settings or SETTINGS, write, near_clients=near)
    await load_run.run()
    return read_workload_log(encode_event(event) for event in events), events


def test_a_quiet_run_is_found_whole_on_identical_replicas() -> None:
    async def experiment() -> None:
        async with (
            FakeCluster(partition_count=2) as cluster,
            TidemarkClient(cluster.urls) as client,
        ):
            workload_log, events = await load(client, 40)
            report = await verify(client, workload_log, events, within_seconds=30)
            assert workload_log.is_finished
            assert report.verdict.acknowledged >= 40
            assert report.verdict.found == report.verdict.acknowledged
            assert report.is_good
            read = sum(len(offsets) for offsets in workload_log.read.values())
            assert read == sum(len(log) for log in cluster.logs.values())

    run(experiment())


def test_a_mix_of_acks_sends_each_kind_in_turn() -> None:
    async def experiment() -> None:
        async with (
            FakeCluster(partition_count=2) as cluster,
            TidemarkClient(cluster.urls) as client,
        ):
            settings = replace(SETTINGS, acks=MIXED, producers=4)
            workload_log, events = await load(client, 80, settings=settings)
            sent = [event for event in events if isinstance(event, Produced)]
            for event in sent:
                assert event.acks == MIXED_ACKS[event.sequence % len(MIXED_ACKS)]
                assert (event.producer >= 0) == (event.sequence % len(MIXED_ACKS) == 0)
                assert (event.outcome == "acknowledged") == (event.acks != "0")
            report = await verify(client, workload_log, events, within_seconds=30)
            assert report.is_good
            # Only those of acks=all are promised.
            assert report.verdict.acknowledged == sum(event.acks == "all" for event in sent)

    run(experiment())


def test_a_lost_answer_is_unknown_and_the_run_goes_on() -> None:
    async def experiment() -> None:
        async with (
            FakeCluster(partition_count=2) as cluster,
            TidemarkClient(cluster.urls) as client,
        ):
            cluster.next_responses = [hang_up]
            workload_log, events = await load(client, 20)
            assert workload_log.unknown_count == 1
            assert (await verify(client, workload_log, events, within_seconds=30)).is_good

    run(experiment())


def test_a_record_that_vanished_is_reported_lost() -> None:
    async def experiment() -> None:
        async with (
            FakeCluster(partition_count=2) as cluster,
            TidemarkClient(cluster.urls) as client,
        ):
            workload_log, events = await load(client, 20)
            cluster.logs[0].pop()
            report = await verify(client, workload_log, events, within_seconds=30)
            assert report.verdict.lost == 1
            assert not report.is_good

    run(experiment())


def test_replicas_that_differ_are_told() -> None:
    async def experiment() -> None:
        async with (
            FakeCluster(partition_count=2) as cluster,
            TidemarkClient(cluster.urls) as client,
        ):
            workload_log, events = await load(client, 20)
            cluster.replica_bytes[1, 0] = "other"
            report = await verify(client, workload_log, events, within_seconds=30)
            assert [entry.is_identical for entry in report.replicas] == [False, True]
            assert not report.is_good

    run(experiment())


def test_consumers_near_followers_read_along_too() -> None:
    async def experiment() -> None:
        async with (
            FakeCluster(partition_count=2, nearest={"east": 1}) as cluster,
            TidemarkClient(cluster.urls) as client,
            TidemarkClient(cluster.urls, settings=ClientSettings(rack="east")) as near,
        ):
            workload_log, events = await load(client, 40, {"east": near})
            assert (await verify(client, workload_log, events, within_seconds=30)).is_good
            seen = [event for event in events if isinstance(event, Read) and event.rack == "east"]
            read = sum(len(event.sequences) for event in seen)
            assert read == sum(len(log) for log in cluster.logs.values())

    run(experiment())


def test_a_record_seen_twice_by_a_consumer_breaks_the_history() -> None:
    async def experiment() -> None:
        async with (
            FakeCluster(partition_count=2) as cluster,
            TidemarkClient(cluster.urls) as client,
        ):
            workload_log, events = await load(client, 20)
            first = next(event for event in events if isinstance(event, Read))
            events.append(first)
            report = await verify(client, workload_log, events, within_seconds=30)
            assert [entry.name for entry in report.broken_guarantees] == ["nonmonotonic-poll"]
            assert not report.is_good

    run(experiment())


def test_idempotent_producers_leave_no_outcome_unknown() -> None:
    async def experiment() -> None:
        async with (
            FakeCluster(partition_count=2) as cluster,
            TidemarkClient(cluster.urls) as client,
        ):
            cluster.next_responses = [hang_up, cluster.append_and_hang_up(), hang_up]
            settings = replace(SETTINGS, producers=3)
            workload_log, events = await load(client, 30, settings=settings)
            report = await verify(client, workload_log, events, within_seconds=30)
            assert (workload_log.unknown_count, report.is_good) == (0, True)
            senders = {event.producer for event in events if isinstance(event, Produced)}
            assert senders <= {0, 1, 2}
            assert 0 in senders

    run(experiment())
