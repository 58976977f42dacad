"""Audits with spec.spark: SparkApplications where the cluster has them, else Jobs that say so."""

import re
from pathlib import Path
from typing import Any

import pytest
from tidemark_operator.api.kinds import (
    CRON_JOB,
    EVENT,
    JOB,
    POD,
    SCHEDULED_SPARK_APPLICATION,
    SPARK_APPLICATION,
    Object,
)
from tidemark_operator.api.replication_audit import ReplicationAudit
from tidemark_operator.api.schemas import validate
from tidemark_operator.reconcile.audit.reconciler import APPLICATIONS_INTERVAL_MS
from tidemark_operator.resources.audit_job import job_manifest
from tidemark_operator.resources.audit_pod import audit_labels
from tidemark_operator.resources.spark_application import SPARK_VERSION, spark_application_manifest
from tidemark_operator.store.object_store import Forbidden, NotFound, Rejected, StoreError

from tests.support.api_objects import parsed
from tests.support.audit_objects import (
    application_status,
    audit_object,
    driver_pod,
    summary,
)
from tests.unit.operator.reconcile.audit.audit_world import AuditCluster, in_world

ROOT = Path(__file__).parents[5]
SPARK = {"serviceAccountName": "spark"}
DAILY = "0 6 * * *"


def spark_audit(**spec: Any) -> Object:
    return audit_object(spark=SPARK, **spec)


def application_of(audit: Object) -> Object:
    asked = parsed(ReplicationAudit, audit)
    assert asked.spec.spark is not None
    return spark_application_manifest(asked, asked.spec.spark)


async def look(world: AuditCluster) -> None:
    """A turn with a run or a schedule of SparkApplications, which wants to look again."""
    await world.turn(again_after_ms=APPLICATIONS_INTERVAL_MS)


async def application_ends(world: AuditCluster, name: str, said: Any, **status: Any) -> None:
    application = await world.store.get(SPARK_APPLICATION, "shop", name)
    assert application is not None
    status = application_status(**status)
    await world.store.replace_status(SPARK_APPLICATION, {**application, "status": status})
    if said is not None:
        await world.store.create(POD, driver_pod(name, said))


def test_a_single_run_is_a_spark_application_and_its_driver_says_the_verdict(
    tmp_path: Path,
) -> None:
    async def scenario(world: AuditCluster) -> None:
        await world.apply(spark_audit())
        await look(world)
        (name,) = await world.names(SPARK_APPLICATION)
        assert name == f"daily-{(await world.audit())['metadata']['generation']}"
        assert await world.names(JOB) == []
        assert (await world.conditions())["SparkApplications"] == ("True", "Used")
        await application_ends(world, name, summary())
        await world.turn()
        status = await world.status()
        assert (status["verdict"], status["history"][0]["run"]) == ("LOSS", name)
        assert (await world.conditions())["LossDetected"] == ("True", "Loss")
        assert [each["reason"] for each in await world.store.list(EVENT, "shop")] == ["R6"]
        assert validate(await world.audit()) == []

    in_world(tmp_path, scenario)


@pytest.mark.parametrize(
    ("error", "reason"), [(NotFound, "NotInstalled"), (Forbidden, "NotAllowed")], ids=str
)
@pytest.mark.parametrize("schedule", [None, DAILY], ids=["once", "scheduled"])
def test_without_spark_applications_it_is_a_job_that_says_why(
    tmp_path: Path, error: type[StoreError], reason: str, schedule: str | None
) -> None:
    async def scenario(world: AuditCluster) -> None:
        world.store.without_spark = error
        await world.apply(spark_audit(**({} if schedule is None else {"schedule": schedule})))
        await world.turn()
        assert len(await world.names(JOB if schedule is None else CRON_JOB)) == 1
        conditions = await world.conditions()
        assert conditions["SparkApplications"] == ("False", reason)
        assert conditions["Ready"][0] == "True"
        assert "new runs are Jobs of one pod" in await world.said("SparkApplications")

    in_world(tmp_path, scenario)


@pytest.mark.parametrize("error", [StoreError, Rejected])
def test_other_trouble_with_the_api_server_is_no_absence(
    tmp_path: Path, error: type[StoreError]
) -> None:
    async def scenario(world: AuditCluster) -> None:
        world.store.without_spark = error
        await world.apply(spark_audit())
        with pytest.raises(error):
            await world.turn()
        assert await world.names(JOB) == []

    in_world(tmp_path, scenario)


@pytest.mark.parametrize("error", [NotFound, Forbidden, StoreError])
def test_who_does_not_ask_hears_nothing_of_it(tmp_path: Path, error: type[StoreError]) -> None:
    async def scenario(world: AuditCluster) -> None:
        world.store.without_spark = error
        await world.apply(audit_object())
        await world.turn()
        assert set(await world.conditions()) == {"Ready"}
        assert len(await world.names(JOB)) == 1

    in_world(tmp_path, scenario)


@pytest.mark.parametrize(
    ("error", "reason"), [(NotFound, "NotInstalled"), (Forbidden, "NotAllowed")], ids=str
)
@pytest.mark.parametrize("schedule", [None, DAILY], ids=["once", "scheduled"])
def test_one_kind_without_the_other_is_of_no_use(
    tmp_path: Path, error: type[StoreError], reason: str, schedule: str | None
) -> None:
    async def scenario(world: AuditCluster) -> None:
        world.store.without_schedules = error
        await world.apply(spark_audit(**({} if schedule is None else {"schedule": schedule})))
        await world.turn()
        assert len(await world.names(JOB if schedule is None else CRON_JOB)) == 1
        assert (await world.conditions())["SparkApplications"] == ("False", reason)

    in_world(tmp_path, scenario)


def test_a_run_that_is_on_while_spec_spark_goes_is_heard_out(tmp_path: Path) -> None:
    async def scenario(world: AuditCluster) -> None:
        await world.apply(spark_audit())
        await look(world)
        (name,) = await world.names(SPARK_APPLICATION)
        await world.apply(audit_object(schedule=DAILY))
        await look(world)
        assert (await world.conditions())["SparkApplications"] == ("False", "Left")
        await application_ends(world, name, summary())
        await world.turn()
        assert (await world.status())["history"][0]["run"] == name
        await world.store.delete(SPARK_APPLICATION, "shop", name)
        await world.turn()
        assert "SparkApplications" not in await world.conditions()

    in_world(tmp_path, scenario)


def test_one_kind_of_schedule_goes_when_the_other_comes(tmp_path: Path) -> None:
    async def scenario(world: AuditCluster) -> None:
        async def schedules() -> tuple[int, int]:
            kinds = (CRON_JOB, SCHEDULED_SPARK_APPLICATION)
            found = [len(await world.names(kind)) for kind in kinds]
            return found[0], found[1]

        await world.apply(audit_object(schedule=DAILY))
        await world.turn()
        assert await schedules() == (1, 0)
        await world.apply(spark_audit(schedule=DAILY, timeZone="Etc/UTC"))
        await look(world)
        assert await schedules() == (0, 1)
        (scheduled,) = await world.store.list(SCHEDULED_SPARK_APPLICATION, "shop")
        known = {name: scheduled["spec"][name] for name in scheduled["spec"] if name != "template"}
        assert known == {
            "schedule": DAILY, "timeZone": "Etc/UTC", "suspend": False,
            "concurrencyPolicy": "Forbid",
            "successfulRunHistoryLimit": 3, "failedRunHistoryLimit": 3,
        }  # fmt: skip
        await world.apply(spark_audit(schedule="0 7 * * *", suspend=True))
        await look(world)
        (scheduled,) = await world.store.list(SCHEDULED_SPARK_APPLICATION, "shop")
        assert (scheduled["spec"]["schedule"], scheduled["spec"]["suspend"]) == ("0 7 * * *", True)
        await world.apply(audit_object(schedule=DAILY))
        await world.turn()
        assert await schedules() == (1, 0)
        assert set(await world.conditions()) == {"Ready"}
        await world.apply(spark_audit())
        await look(world)
        assert await schedules() == (0, 0)

    in_world(tmp_path, scenario)


def test_runs_that_the_spark_operator_made_of_a_schedule_count(tmp_path: Path) -> None:
    async def scenario(world: AuditCluster) -> None:
        await world.apply(spark_audit(schedule=DAILY))
        await look(world)
        # It gives the schedule's labels to the SparkApplications that it makes.
        name = "daily-1795327200000000000"
        await world.store.create(
            SPARK_APPLICATION,
            {
                "apiVersion": "sparkoperator.k8s.io/v1beta2",
                "kind": "SparkApplication",
                "metadata": {"name": name, "namespace": "shop", "labels": audit_labels("daily")},
            },
        )
        await application_ends(world, name, summary(verdict="PASS", lost_records=0))
        await look(world)
        status = await world.status()
        assert (status["verdict"], status["history"][0]["run"]) == ("PASS", name)

    in_world(tmp_path, scenario)


@pytest.mark.parametrize(
    ("status", "said", "words"),
    [
        (
            {"state": "FAILED", "error": "ExitCode: 4"},
            "no answer",
            "exit code 0; termination message: no answer",
        ),
        ({"state": "FAILED", "error": "ExitCode: 4"}, "no answer", "FAILED: ExitCode: 4"),
        ({"state": "FAILED", "error": "forbidden: pods", "at": None}, None, "forbidden: pods"),
        (
            {"state": "COMPLETED"},
            None,
            "the pod was deleted before its termination message was read",
        ),
    ],
)
def test_a_run_without_a_verdict_says_what_the_spark_operator_says(
    tmp_path: Path, status: dict[str, Any], said: str | None, words: str
) -> None:
    async def scenario(world: AuditCluster) -> None:
        await world.apply(spark_audit())
        await look(world)
        (name,) = await world.names(SPARK_APPLICATION)
        await application_ends(world, name, said, **status)
        await world.turn()
        entry = (await world.status())["history"][0]
        assert entry["verdict"] == "NO-VERDICT"
        assert words in entry["sentence"]

    in_world(tmp_path, scenario)


@pytest.mark.parametrize(
    ("times", "reported"),
    [
        ({}, "2026-11-21T06:01:00Z"),
        ({"at": None, "submitted_at": "2026-11-21T05:58:00Z"}, "2026-11-21T05:58:00Z"),
    ],
    ids=["ended", "never submitted"],
)
def test_a_run_that_failed_ended_when_it_was_last_tried(
    tmp_path: Path, times: dict[str, Any], reported: str
) -> None:
    async def scenario(world: AuditCluster) -> None:
        await world.apply(spark_audit())
        await look(world)
        (name,) = await world.names(SPARK_APPLICATION)
        await application_ends(world, name, None, state="FAILED", **times)
        await world.turn()
        assert (await world.status())["history"][0]["finishedTime"] == reported

    in_world(tmp_path, scenario)


@pytest.mark.parametrize(
    "state", ["", "SUBMITTED", "SUBMISSION_FAILED", "PENDING_RERUN", "FAILING"]
)
def test_a_run_that_the_spark_operator_goes_on_with_has_not_ended(
    tmp_path: Path, state: str
) -> None:
    async def scenario(world: AuditCluster) -> None:
        await world.apply(spark_audit())
        await look(world)
        (name,) = await world.names(SPARK_APPLICATION)
        await application_ends(world, name, None, state=state)
        await look(world)
        assert (await world.status())["history"] == []

    in_world(tmp_path, scenario)


def test_old_single_runs_go(tmp_path: Path) -> None:
    async def scenario(world: AuditCluster) -> None:
        for number in range(1, 6):
            await world.apply(spark_audit(window=f"{number}h"))
            await look(world)
            recorded = {each["run"] for each in (await world.status())["history"]}
            (name,) = set(await world.names(SPARK_APPLICATION)) - recorded
            said = summary(incidents=())
            await application_ends(world, name, said, at=f"2026-11-21T0{number}:00:00Z")
            await world.turn()
        assert len(await world.names(SPARK_APPLICATION)) == 3
        assert len((await world.status())["history"]) == 5

    in_world(tmp_path, scenario)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [(CRON_JOB, {}), (SCHEDULED_SPARK_APPLICATION, {"spark": SPARK})],
    ids=["CronJob", "ScheduledSparkApplication"],
)
def test_a_schedule_of_somebody_else_is_let_be(
    tmp_path: Path, kind: Any, spec: dict[str, Any]
) -> None:
    async def scenario(world: AuditCluster) -> None:
        theirs = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": "daily", "namespace": "shop"},
            "spec": {"schedule": "1 1 1 1 1"},
        }
        theirs = await world.store.create(kind, theirs)
        await world.apply(audit_object(schedule=DAILY, **spec))
        await world.turn(again_after_ms=APPLICATIONS_INTERVAL_MS if spec else None)
        assert (await world.conditions())["Ready"] == ("False", "NameTaken")
        await world.apply(audit_object(suspend=True))
        await world.turn()
        assert await world.store.get(kind, "shop", "daily") == theirs

    in_world(tmp_path, scenario)


def test_a_schedule_that_the_spark_operator_refused_is_made_anew(tmp_path: Path) -> None:
    async def scenario(world: AuditCluster) -> None:
        await world.apply(spark_audit(schedule="0 25 * * *"))
        await look(world)
        (refused,) = await world.store.list(SCHEDULED_SPARK_APPLICATION, "shop")
        status = {"scheduleState": "FailedValidation", "reason": "25 is above 23"}
        await world.store.replace_status(SCHEDULED_SPARK_APPLICATION, {**refused, "status": status})
        await look(world)
        assert (await world.conditions())["Ready"] == ("False", "InvalidSchedule")
        await world.apply(spark_audit(schedule=DAILY))
        await look(world)
        (made,) = await world.store.list(SCHEDULED_SPARK_APPLICATION, "shop")
        assert made["metadata"]["uid"] != refused["metadata"]["uid"]
        assert (await world.conditions())["Ready"] == ("True", "Scheduled")

    in_world(tmp_path, scenario)


@pytest.mark.parametrize(
    ("name", "spec", "sentence"),
    [
        ("daily", {"engine": "Local"}, "spec.spark requires engine Spark"),
        ("d" * 44, {}, "with spec.spark metadata.name is at most 43 characters long"),
        ("1st", {}, "with spec.spark metadata.name is at most 43 characters long"),
        ("a.b", {}, "with spec.spark metadata.name is at most 43 characters long"),
        ("daily", {"spark": {}}, "spec.spark: 'serviceAccountName' is a required property"),
        ("daily", {"spark": {**SPARK, "driver": {"memory": "1Gi"}}}, "spec.spark.driver.memory"),
        ("daily", {"spark": {**SPARK, "executors": 0}}, "spec.spark.executors: 0 is less than"),
    ],
)
def test_a_wrong_manifest_is_refused_with_a_sentence(
    name: str, spec: dict[str, Any], sentence: str
) -> None:
    audit = audit_object(**{"spark": SPARK, **spec})
    audit["metadata"]["name"] = name
    assert [found[: len(sentence)] for found in validate(audit)] == [sentence]


def test_driver_and_executors_have_what_a_job_has() -> None:
    audit = spark_audit(
        output={"claimName": "reports"},
        source={"prometheus": {"url": "https://p:9090", "tokenSecret": {"name": "s", "key": "k"}}},
    )
    application = application_of(audit)["spec"]
    job = job_manifest(parsed(ReplicationAudit, audit))["spec"]["template"]["spec"]
    driver = application["driver"]["template"]["spec"]
    executor = application["executor"]["template"]["spec"]
    assert application["arguments"] == job["containers"][0]["args"]
    assert driver["volumes"] == job["volumes"]
    assert driver["activeDeadlineSeconds"] == 3600
    assert [each["name"] for each in executor["volumes"]] == ["tmp", "token"]
    assert "automountServiceAccountToken" not in driver  # it makes the executors
    assert executor["automountServiceAccountToken"] is False
    for pod in (driver, executor):
        assert pod["securityContext"] == job["securityContext"]
        shared = ("securityContext", "terminationMessagePath")
        assert [pod["containers"][0][name] for name in shared] == [
            job["containers"][0][name] for name in shared
        ]
    assert application["driver"]["serviceAccount"] == "spark"
    assert application["executor"]["instances"] == 2


def test_the_version_is_that_of_the_image() -> None:
    lock = (ROOT / "requirements-audit.lock").read_text()
    assert re.findall(r"^pyspark==(\S+)", lock, re.MULTILINE) == [SPARK_VERSION]


def test_the_image_has_the_driver_where_it_is_looked_for() -> None:
    from tidemark_operator.resources.spark_application import MAIN_FILE

    path = MAIN_FILE.removeprefix("local://")
    assert path in (ROOT / "Dockerfile").read_text().split()
