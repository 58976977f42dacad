"""Planned restarts, clock skew and elections: what the operator tells the audit."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tidemark_operator.broker_runtime.broker_runtime import PoolCertificates
from tidemark_operator.controller.core.observations import (
    PLANNED_RESTART_LIMIT_MS,
    ClockSkews,
    in_sync_changes,
)
from tidemark_operator.controller.metrics import exposition
from tidemark_operator.manager.certificate_metrics import CertificateCollector
from tidemark_operator.manager.loop_lag import LoopLagCollector
from tidemark_operator.manager.rejections import RejectionsCollector
from tidemark_operator.reconcile.metrics import ReconcileCollector
from tidemark_operator.reconcile.work_queue import WorkQueue
from tidemark_protocol.connection_rejections import ConnectionRejections
from tidemark_protocol.controller_messages import IsrProposal
from tidemark_protocol.ids import BrokerId, ControllerEpoch
from tidemark_protocol.loop_lag import LoopLag
from tidemark_protocol.partition_state import Member

from tests.support.command_player import slice_of
from tests.support.controller_harness import (
    ORDERS,
    POOL,
    WALL_CLOCK_MS,
    FakeBroker,
    Harness,
    evaluate,
)
from tests.support.controller_values import partition
from tests.support.metric_docs import documented_families
from tests.support.promtool import faults_of_metrics
from tests.support.waiting import HANG_SECONDS
from tests.unit.operator.controller.test_stopping import stop


def run(scenario: Callable[[Harness], Awaitable[None]]) -> None:
    async def whole() -> None:
        await scenario(await Harness().start(3))

    asyncio.run(asyncio.wait_for(whole(), HANG_SECONDS))


async def samples(harness: Harness, name: str, label: str, **chosen: str) -> dict[str, float]:
    """Of one family, by one of its labels."""
    text = (await exposition(harness.service)).decode()
    return {
        sample.labels[label]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"tidemark_{name}" and sample.labels.items() >= chosen.items()
    }


async def planned(harness: Harness) -> dict[str, float]:
    return await samples(harness, "broker_planned_restart", "broker")


async def elections(harness: Harness) -> dict[str, float]:
    return await samples(harness, "partition_leader_elections_total", "kind")


async def start_again(harness: Harness, number: int, *, is_clean: bool = True) -> FakeBroker:
    previous = harness.brokers[number]
    broker = FakeBroker(harness, BrokerId(number), f"{number}-b")
    harness.brokers[number] = broker
    await broker.register(clean_stop_epoch=previous.epoch if is_clean else -1)
    await broker.catch_up()
    return broker


async def all_in_sync(harness: Harness) -> None:
    state = harness.partition()
    leader = harness.brokers[state.leader]
    in_sync = tuple(Member(each.broker_id, each.epoch) for each in harness.brokers)
    response = await leader.alter(
        IsrProposal(ORDERS, 0, state.leader_epoch, state.partition_epoch, in_sync)
    )
    assert not response.error
    for broker in harness.brokers:
        await broker.catch_up()


# ---- planned restarts


def test_an_orderly_stop_is_planned_until_the_broker_is_in_sync_again() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create()
        reported = [await planned(harness)]
        await stop(harness, harness.brokers[0])
        await evaluate()
        await harness.advance(500, *harness.brokers[1:])
        reported.append(await planned(harness))
        await start_again(harness, 0)
        await harness.advance(500, *harness.brokers)
        reported.append(await planned(harness))  # it serves, and is not in sync yet
        await all_in_sync(harness)
        await harness.advance(100, *harness.brokers)
        reported.append(await planned(harness))
        assert [each["0"] for each in reported] == [0, 1, 1, 0]
        assert [each["1"] for each in reported] == [0, 0, 0, 0]

    run(scenario)


def test_a_kill_is_not_planned_nor_what_follows_one() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create()
        await harness.kill(harness.brokers[0])
        await harness.advance(500, *harness.brokers[1:])
        assert (await planned(harness))["0"] == 0
        await start_again(harness, 0, is_clean=False)
        assert (await planned(harness))["0"] == 0

    run(scenario)


def test_a_planned_restart_is_counted_once_and_stays_counted() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create()
        counts = [await samples(harness, "broker_planned_restarts_total", "broker")]
        await stop(harness, harness.brokers[0])
        await evaluate()
        await start_again(harness, 0)
        counts.append(await samples(harness, "broker_planned_restarts_total", "broker"))
        await harness.kill(harness.brokers[0])
        await harness.advance(500, *harness.brokers[1:])
        counts.append(await samples(harness, "broker_planned_restarts_total", "broker"))
        assert [(each["0"], each["1"]) for each in counts] == [(0, 0), (1, 0), (1, 0)]

    run(scenario)


def test_a_kill_while_it_catches_up_ends_what_was_planned() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create()
        await stop(harness, harness.brokers[0])
        await evaluate()
        again = await start_again(harness, 0)
        assert (await planned(harness))["0"] == 1
        await harness.kill(again)
        await harness.advance(500, *harness.brokers[1:])
        assert (await planned(harness))["0"] == 0

    run(scenario)


def test_a_broker_that_does_not_come_back_is_missing_after_a_while() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create()
        await stop(harness, harness.brokers[0])
        await evaluate()
        harness.clock.ms += PLANNED_RESTART_LIMIT_MS - 1000
        await harness.tick()
        before = await planned(harness)
        harness.clock.ms += 2000
        await harness.tick()
        assert (before["0"], (await planned(harness))["0"]) == (1, 0)

    run(scenario)


def test_another_controller_knows_a_planned_restart_by_its_proof() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create()
        await stop(harness, harness.brokers[0])
        await evaluate()
        await harness.service.step_down()
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        for broker in harness.brokers[1:]:
            await broker.catch_up()
        await start_again(harness, 0)
        assert (await planned(harness))["0"] == 1

    run(scenario)


# ---- elections


def test_elections_are_counted_by_what_brought_them() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create()
        counted = [await elections(harness)]
        await stop(harness, harness.brokers[0])  # its leader gives way in order
        await evaluate()
        counted.append(await elections(harness))
        await harness.kill(harness.brokers[1])
        await harness.advance(200, harness.brokers[2])
        counted.append(await elections(harness))
        assert [
            tuple(each[kind] for kind in ("clean", "unclean", "planned")) for each in counted
        ] == [
            (0, 0, 0),
            (0, 0, 1),
            (1, 0, 1),
        ]

    run(scenario)


def test_each_election_is_logged_with_its_kind(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create()
        await harness.kill(harness.brokers[0])
        await harness.advance(200, *harness.brokers[1:])

    caplog.set_level("INFO")
    run(scenario)
    (line,) = [record for record in caplog.records if record.getMessage() == "leaders elected"]
    assert vars(line)["topic"] == "orders"
    (elected,) = vars(line)["partitions"]
    assert (elected["partition"], elected["previous_leader"], elected["kind"]) == (0, 0, "clean")
    assert elected["leader"] in (1, 2) and elected["leader_epoch"] == 1


def test_a_leader_that_is_back_before_it_was_missed_was_not_replaced_by_plan() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create()
        assert harness.partition().leader == 0
        await start_again(harness, 0, is_clean=False)
        await harness.advance(200, *harness.brokers)
        assert (await elections(harness)) == {"clean": 1, "unclean": 0, "planned": 0}

    run(scenario)


def test_an_unclean_election_is_counted_and_its_cost_is_told_by_partition() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create(replicas=2, **{"unclean.leader.election.enable": "true"})
        state = harness.partition()
        others = [broker for broker in harness.brokers if broker.broker_id not in state.replicas]
        first, last = (harness.brokers[number] for number in state.replicas)
        await harness.kill(last)
        await harness.advance(200, first, *others)
        await harness.kill(first)
        await harness.advance(200, *others)
        # What stood in no in-sync set comes back unclean and alone.
        again = await start_again(harness, last.broker_id, is_clean=False)
        await harness.advance(1000, again, *others)
        assert harness.partition().leader == last.broker_id
        assert (await elections(harness))["unclean"] == 1
        assert await samples(harness, "partition_recovery_epoch", "cause") == {
            "Unclean": harness.partition().leader_epoch
        }
        assert list(await samples(harness, "partition_recovery_lost_records", "cause")) == [
            "Unclean"
        ]

    run(scenario)


# ---- clocks


def test_a_brokers_clock_is_compared_with_ours() -> None:
    async def scenario(harness: Harness) -> None:
        for broker, ahead_ms in zip(harness.brokers, (0, 5000, -1500), strict=True):
            sent_at_ms = WALL_CLOCK_MS + harness.clock.ms + ahead_ms
            broker.poll = broker.heartbeat(sent_at_ms=sent_at_ms)
            await evaluate()
        skews = await samples(harness, "broker_clock_skew_seconds", "broker")
        assert skews == {"0": 0, "1": 5, "2": -1.5}

    run(scenario)


def test_a_message_that_was_slow_is_no_clock_that_is_behind() -> None:
    skews = ClockSkews()
    for now_ms, reading in enumerate((-3, -250, -1, -4000)):
        skews.note(BrokerId(1), reading, 500 * now_ms)
    assert skews.of(BrokerId(1)) == -1


def test_a_clock_that_was_set_is_seen_within_two_minutes() -> None:
    skews = ClockSkews()
    for now_ms in range(0, 300_000, 500):
        skews.note(BrokerId(1), -2 if now_ms < 150_000 else -7000, now_ms)
        if now_ms == 100_000:
            assert skews.of(BrokerId(1)) == -2
    assert skews.of(BrokerId(1)) == -7000
    assert skews.of(BrokerId(2)) is None


# ---- the page and the text


def test_the_durable_state_of_each_partition_is_told_with_nobody_to_lead_it() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create(partitions=2)
        for broker in harness.brokers:
            await harness.kill(broker)
        await harness.advance(200)
        assert await samples(harness, "partition_leader_id", "partition") == {"0": -1, "1": -1}
        named = {"pool": POOL, "topic": "orders", "topic_id": ORDERS}
        epochs = await samples(harness, "partition_durable_leader_epoch", "partition", **named)
        assert epochs == {str(n): harness.partition(n).leader_epoch for n in (0, 1)}
        assert await samples(harness, "topic_replication_factor", "topic", **named) == {"orders": 3}

    run(scenario)


def test_the_page_of_metrics_and_the_operator_agree_and_promtool_is_content() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create()
        harness.brokers[0].poll = harness.brokers[0].heartbeat(sent_at_ms=WALL_CLOCK_MS)
        await evaluate()
        rejections = ConnectionRejections(lambda: 0)
        rejections.note("192.0.2.1", "no token", "expected one", protocol="http")
        text = (
            await exposition(
                harness.service,
                LoopLagCollector(LoopLag()),
                ReconcileCollector(WorkQueue()),
                RejectionsCollector(rejections),
                CertificateCollector(lambda: (1.0, 1.0), lambda: {"p": PoolCertificates("a", 1)}),
            )
        ).decode()
        types = [line.split(" ")[2:] for line in text.splitlines() if line.startswith("# TYPE ")]
        exported = dict(types)
        documented = {
            family.name: family.kinds
            for family in documented_families()
            if family.section == "The operator"
        }
        assert set(exported) == set(documented)
        assert all(exported[name] in kinds for name, kinds in documented.items())
        assert faults_of_metrics(text) == ""

    run(scenario)


def test_a_standby_tells_that_it_stands_by_and_nothing_else() -> None:
    async def scenario(harness: Harness) -> None:
        await harness.create()
        await harness.service.step_down()
        text = (await exposition(harness.service)).decode()
        series = {line.split()[0] for line in text.splitlines() if not line.startswith("#")}
        families = ("tidemark_controller_leads", "tidemark_controller_epoch")
        assert series == {f'{name}{{installation="local"}}' for name in families}

    run(scenario)


def test_changes_of_an_isr_name_who_left_and_who_joined() -> None:
    before = slice_of(partition("0@7 1@7", leader="0@7"))
    after = slice_of(partition("0@8 2@7", leader="0@7"))
    (change,) = in_sync_changes(before, after)
    assert (change.partition, change.isr, change.left, change.joined) == (0, (0, 2), (1,), (2,))
    renewed = slice_of(partition("0@8 1@8", leader="0@7"))
    assert in_sync_changes(before, renewed) == in_sync_changes(None, after) == []
