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
from tests.unit.operator.reconcile.audit.audit_world import KEY, AuditCluster, in_cluster

SPARK = {"serviceAccountName": "spark"}
DAILY = "0 6 * * *"
OUT_OF_REACH = ("False", "OutOfReach")


async def on_spark(cluster: AuditCluster, **spec: Any) -> None:
    await cluster.apply(audit_object(spark=SPARK, **spec))
    await cluster.turn(again_after_ms=APPLICATIONS_INTERVAL_MS)


async def started(cluster: AuditCluster) -> list[str]:
    """Jobs and CronJobs."""
    return [*await cluster.names(JOB), *await cluster.names(CRON_JOB)]


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
    async def scenario(cluster: AuditCluster) -> None:
        await on_spark(cluster, schedule=DAILY)
        cluster.store.without_spark = Forbidden
        await cluster.apply(audit_object(**after))
        await cluster.turn(again_after_ms=APPLICATIONS_INTERVAL_MS)
        assert await started(cluster) == []
        conditions = await cluster.conditions()
        assert conditions == {"Ready": OUT_OF_REACH, "SparkApplications": OUT_OF_REACH}
        said = await cluster.said("SparkApplications")
        assert (
            "kubectl --namespace shop delete scheduledsparkapplications,sparkapplications"
            " --selector tidemark.dev/audit=daily;"
        ) in said
        assert "patch replicationaudits daily --subresource=status" in said

    in_cluster(tmp_path, scenario)


def test_once_a_human_took_the_condition_away_a_cron_job_takes_over(tmp_path: Path) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        await on_spark(cluster, schedule=DAILY)
        cluster.store.without_spark = Forbidden
        await cluster.turn(again_after_ms=APPLICATIONS_INTERVAL_MS)
        audit = await cluster.audit()
        status = {**audit["status"], "conditions": []}
        await cluster.store.replace_status(REPLICATION_AUDIT, {**audit, "status": status})
        await cluster.turn()
        assert await started(cluster) == ["daily"]
        assert (await cluster.conditions())["SparkApplications"] == ("False", "NotAllowed")

    in_cluster(tmp_path, scenario)


def test_with_the_right_the_schedule_goes_as_it_should_have(tmp_path: Path) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        await on_spark(cluster, schedule=DAILY)
        cluster.store.without_spark = Forbidden
        await cluster.apply(audit_object(schedule=DAILY))
        await cluster.turn(again_after_ms=APPLICATIONS_INTERVAL_MS)
        cluster.store.without_spark = None
        await cluster.turn()
        assert await cluster.names(SCHEDULED_SPARK_APPLICATION) == []
        assert await started(cluster) == ["daily"]
        assert await cluster.conditions() == {"Ready": ("True", "Scheduled")}

    in_cluster(tmp_path, scenario)


def test_with_the_crds_the_schedules_went_too(tmp_path: Path) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        await on_spark(cluster, schedule=DAILY)
        cluster.store.without_spark = NotFound
        await cluster.turn()
        assert await started(cluster) == ["daily"]
        assert (await cluster.conditions())["SparkApplications"] == ("False", "NotInstalled")

    in_cluster(tmp_path, scenario)


@pytest.mark.parametrize("schedule", [None, DAILY], ids=["once", "scheduled"])
def test_what_was_made_while_the_status_could_not_be_written_is_remembered(
    tmp_path: Path, schedule: str | None
) -> None:
    """A Job of the same name would write the same report."""

    async def scenario(cluster: AuditCluster) -> None:
        spec: dict[str, Any] = {} if schedule is None else {"schedule": schedule}
        await cluster.apply(audit_object(spark=SPARK, **spec))
        cluster.store.lost_status_writes_after = (
            SPARK_APPLICATION if schedule is None else SCHEDULED_SPARK_APPLICATION
        )
        with pytest.raises(OutcomeUnknown):
            await cluster.reconciler.reconcile(KEY)
        cluster.store.lost_status_writes_after = None
        cluster.store.without_spark = Forbidden
        await cluster.turn(again_after_ms=APPLICATIONS_INTERVAL_MS)
        assert await started(cluster) == []
        assert (await cluster.conditions())["Ready"] == OUT_OF_REACH

    in_cluster(tmp_path, scenario)


@pytest.mark.parametrize("trouble", ["a wrong manifest", "a refused change"])
def test_trouble_of_another_kind_does_not_make_it_forget(tmp_path: Path, trouble: str) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        await on_spark(cluster, schedule=DAILY)
        if trouble == "a wrong manifest":
            await cluster.apply(audit_object(spark=SPARK, schedule=DAILY, window="soon"))
        else:
            cluster.store.kept = SCHEDULED_SPARK_APPLICATION
            await cluster.apply(audit_object(schedule=DAILY))
        await cluster.reconciler.reconcile(KEY)
        assert (await cluster.conditions())["Ready"][0] == "False"
        cluster.store.without_spark = Forbidden
        await cluster.apply(audit_object(schedule=DAILY))
        await cluster.turn(again_after_ms=APPLICATIONS_INTERVAL_MS)
        assert await started(cluster) == []

    in_cluster(tmp_path, scenario)


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
    async def scenario(cluster: AuditCluster) -> None:
        await cluster.apply(audit_object(schedule=DAILY, **before))
        await cluster.reconciler.reconcile(KEY)
        cluster.store.kept = kept
        await cluster.apply(audit_object(schedule=DAILY, **after))
        await cluster.reconciler.reconcile(KEY)
        assert await cluster.names(created) == []
        assert (await cluster.conditions())["Ready"] == ("False", "Refused")

    in_cluster(tmp_path, scenario)
