"""SparkApplications that may be on, and that the operator may no longer look at: nothing is started
beside them, and a condition says what a human has to do."""

from pathlib import Path
from typing import Any

import pytest
from tidemark_operator.api.kinds import (
    CRON_JOB,
    JOB,
    REPLICATION_AUDIT,
    SCHEDULED_SPARK_APPLICATION,
    SPARK_APPLICATION,
    ResourceKind,
)
from tidemark_operator.reconcile.audit.reconciler import APPLICATIONS_INTERVAL_MS
from tidemark_operator.store.object_store import Forbidden, NotFound, OutcomeUnknown

from tests.support.audit_objects import audit_object
from tests.unit.operator.reconcile.audit.audit_world import KEY, AuditCluster, in_world

SPARK = {"serviceAccountName": "spark"}
DAILY = "0 6 * * *"
OUT_OF_REACH = ("False", "OutOfReach")


async def on_spark(world: AuditCluster, **spec: Any) -> None:
    await world.apply(audit_object(spark=SPARK, **spec))
    await world.turn(again_after_ms=APPLICATIONS_INTERVAL_MS)


async def started(world: AuditCluster) -> list[str]:
    """Jobs and CronJobs."""
    return [*await world.names(JOB), *await world.names(CRON_JOB)]


@pytest.mark.parametrize(
    "after",
    [
        {"spark": SPARK, "schedule": DAILY},
        {"spark": SPARK, "schedule": DAILY, "suspend": True},
        {"schedule": DAILY},
        {},
    ],
    ids=["as before", "suspended", "without spark", "a single run"],
)
def test_nothing_is_started_beside_a_schedule_that_is_out_of_reach(
    tmp_path: Path, after: dict[str, Any]
) -> None:
    async def scenario(world: AuditCluster) -> None:
        await on_spark(world, schedule=DAILY)
        world.store.without_spark = Forbidden
        await world.apply(audit_object(**after))
        await world.turn(again_after_ms=APPLICATIONS_INTERVAL_MS)
        assert await started(world) == []
        conditions = await world.conditions()
        assert conditions == {"Ready": OUT_OF_REACH, "SparkApplications": OUT_OF_REACH}
        said = await world.said("SparkApplications")
        assert (
            "kubectl --namespace shop delete scheduledsparkapplications,sparkapplications"
            " --selector tidemark.dev/audit=daily;"
        ) in said
        assert "patch replicationaudits daily --subresource=status" in said

    in_world(tmp_path, scenario)


def test_once_a_human_took_the_condition_away_a_cron_job_takes_over(tmp_path: Path) -> None:
    async def scenario(world: AuditCluster) -> None:
        await on_spark(world, schedule=DAILY)
        world.store.without_spark = Forbidden
        await world.turn(again_after_ms=APPLICATIONS_INTERVAL_MS)
        audit = await world.audit()
        status = {**audit["status"], "conditions": []}
        await world.store.replace_status(REPLICATION_AUDIT, {**audit, "status": status})
        await world.turn()
        assert await started(world) == ["daily"]
        assert (await world.conditions())["SparkApplications"] == ("False", "NotAllowed")

    in_world(tmp_path, scenario)


def test_with_the_right_the_schedule_goes_as_it_should_have(tmp_path: Path) -> None:
    async def scenario(world: AuditCluster) -> None:
        await on_spark(world, schedule=DAILY)
        world.store.without_spark = Forbidden
        await world.apply(audit_object(schedule=DAILY))
        await world.turn(again_after_ms=APPLICATIONS_INTERVAL_MS)
        world.store.without_spark = None
        await world.turn()
        assert await world.names(SCHEDULED_SPARK_APPLICATION) == []
        assert await started(world) == ["daily"]
        assert await world.conditions() == {"Ready": ("True", "Scheduled")}

    in_world(tmp_path, scenario)


def test_with_the_crds_the_schedules_went_too(tmp_path: Path) -> None:
    async def scenario(world: AuditCluster) -> None:
        await on_spark(world, schedule=DAILY)
        world.store.without_spark = NotFound
        await world.turn()
        assert await started(world) == ["daily"]
        assert (await world.conditions())["SparkApplications"] == ("False", "NotInstalled")

    in_world(tmp_path, scenario)


@pytest.mark.parametrize("schedule", [None, DAILY], ids=["once", "scheduled"])
def test_what_was_made_while_the_status_could_not_be_written_is_remembered(
    tmp_path: Path, schedule: str | None
) -> None:
    """A Job of the same name would write the same report."""

    async def scenario(world: AuditCluster) -> None:
        spec: dict[str, Any] = {} if schedule is None else {"schedule": schedule}
        await world.apply(audit_object(spark=SPARK, **spec))
        world.store.lost_status_writes_after = (
            SPARK_APPLICATION if schedule is None else SCHEDULED_SPARK_APPLICATION
        )
        with pytest.raises(OutcomeUnknown):
            await world.reconciler.reconcile(KEY)
        world.store.lost_status_writes_after = None
        world.store.without_spark = Forbidden
        await world.turn(again_after_ms=APPLICATIONS_INTERVAL_MS)
        assert await started(world) == []
        assert (await world.conditions())["Ready"] == OUT_OF_REACH

    in_world(tmp_path, scenario)


@pytest.mark.parametrize("trouble", ["a wrong manifest", "a refused change"])
def test_trouble_of_another_kind_does_not_make_it_forget(tmp_path: Path, trouble: str) -> None:
    async def scenario(world: AuditCluster) -> None:
        await on_spark(world, schedule=DAILY)
        if trouble == "a wrong manifest":
            await world.apply(audit_object(spark=SPARK, schedule=DAILY, window="soon"))
        else:
            world.store.kept = SCHEDULED_SPARK_APPLICATION
            await world.apply(audit_object(schedule=DAILY))
        await world.reconciler.reconcile(KEY)
        assert (await world.conditions())["Ready"][0] == "False"
        world.store.without_spark = Forbidden
        await world.apply(audit_object(schedule=DAILY))
        await world.turn(again_after_ms=APPLICATIONS_INTERVAL_MS)
        assert await started(world) == []

    in_world(tmp_path, scenario)


@pytest.mark.parametrize(
    ("before", "after", "kept", "created"),
    [
        ({"spark": SPARK}, {}, SCHEDULED_SPARK_APPLICATION, CRON_JOB),
        ({}, {"spark": SPARK}, CRON_JOB, SCHEDULED_SPARK_APPLICATION),
    ],
    ids=["to a CronJob", "to a ScheduledSparkApplication"],
)
def test_a_schedule_that_cannot_be_removed_has_no_other_beside_it(
    tmp_path: Path,
    before: dict[str, Any],
    after: dict[str, Any],
    kept: ResourceKind,
    created: ResourceKind,
) -> None:
    async def scenario(world: AuditCluster) -> None:
        await world.apply(audit_object(schedule=DAILY, **before))
        await world.reconciler.reconcile(KEY)
        world.store.kept = kept
        await world.apply(audit_object(schedule=DAILY, **after))
        await world.reconciler.reconcile(KEY)
        assert await world.names(created) == []
        assert (await world.conditions())["Ready"] == ("False", "Refused")

    in_world(tmp_path, scenario)
