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
from tests.unit.operator.reconcile.audit.audit_world import AuditCluster, in_cluster

ROOT = Path(__file__).parents[5]
SPARK = {"serviceAccountName": "spark"}
DAILY = "0 6 * * *"


def spark_audit(**spec: Any) -> Object:
    return audit_object(spark=SPARK, **spec)


def application_of(audit: Object) -> Object:
    asked = parsed(ReplicationAudit, audit)
    assert asked.spec.spark is not None
    return spark_application_manifest(asked, asked.spec.spark)


async def look(cluster: AuditCluster) -> None:
    """A turn with a run or a schedule of SparkApplications, which wants to look again."""
    await cluster.turn(again_after_ms=APPLICATIONS_INTERVAL_MS)


async def application_ends(cluster: AuditCluster, name: str, said: Any, **status: Any) -> None:
    application = await cluster.store.get(SPARK_APPLICATION, "shop", name)
    assert application is not None
    status = application_status(**status)
    await cluster.store.replace_status(SPARK_APPLICATION, {**application, "status": status})
    if said is not None:
        await cluster.store.create(POD, driver_pod(name, said))


def test_a_single_run_is_a_spark_application_and_its_driver_says_the_verdict(
    tmp_path: Path,
) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        await cluster.apply(spark_audit())
        await look(cluster)
        (name,) = await cluster.names(SPARK_APPLICATION)
        assert name == f"daily-{(await cluster.audit())['metadata']['generation']}"
        assert await cluster.names(JOB) == []
        assert (await cluster.conditions())["SparkApplications"] == ("True", "Used")
        await application_ends(cluster, name, summary())
        await cluster.turn()
        status = await cluster.status()
        assert (status["verdict"], status["history"][0]["run"]) == ("LOSS", name)
        assert (await cluster.conditions())["LossDetected"] == ("True", "Loss")
        assert [each["reason"] for each in await cluster.store.list(EVENT, "shop")] == ["R6"]
        assert validate(await cluster.audit()) == []

    in_cluster(tmp_path, scenario)


@pytest.mark.parametrize(
    ("error", "reason"), [(NotFound, "NotInstalled"), (Forbidden, "NotAllowed")], ids=str
)
@pytest.mark.parametrize("schedule", [None, DAILY], ids=["once", "scheduled"])
def test_without_spark_applications_it_is_a_job_that_says_why(
    tmp_path: Path, error: type[StoreError], reason: str, schedule: str | None
) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        cluster.store.without_spark = error
        await cluster.apply(spark_audit(**({} if schedule is None else {"schedule": schedule})))
        await cluster.turn()
        assert len(await cluster.names(JOB if schedule is None else CRON_JOB)) == 1
        conditions = await cluster.conditions()
        assert conditions["SparkApplications"] == ("False", reason)
        assert conditions["Ready"][0] == "True"
        assert "new runs are Jobs of one pod" in await cluster.said("SparkApplications")

    in_cluster(tmp_path, scenario)


@pytest.mark.parametrize("error", [StoreError, Rejected])
def test_other_trouble_with_the_api_server_is_no_absence(
    tmp_path: Path, error: type[StoreError]
) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        cluster.store.without_spark = error
        await cluster.apply(spark_audit())
        with pytest.raises(error):
            await cluster.turn()
        assert await cluster.names(JOB) == []

    in_cluster(tmp_path, scenario)


@pytest.mark.parametrize("error", [NotFound, Forbidden, StoreError])
def test_who_does_not_ask_hears_nothing_of_it(tmp_path: Path, error: type[StoreError]) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        cluster.store.without_spark = error
        await cluster.apply(audit_object())
        await cluster.turn()
        assert set(await cluster.conditions()) == {"Ready"}
        assert len(await cluster.names(JOB)) == 1

    in_cluster(tmp_path, scenario)


@pytest.mark.parametrize(
    ("error", "reason"), [(NotFound, "NotInstalled"), (Forbidden, "NotAllowed")], ids=str
)
@pytest.mark.parametrize("schedule", [None, DAILY], ids=["once", "scheduled"])
def test_one_kind_without_the_other_is_of_no_use(
    tmp_path: Path, error: type[StoreError], reason: str, schedule: str | None
) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        cluster.store.without_schedules = error
        await cluster.apply(spark_audit(**({} if schedule is None else {"schedule": schedule})))
        await cluster.turn()
        assert len(await cluster.names(JOB if schedule is None else CRON_JOB)) == 1
        assert (await cluster.conditions())["SparkApplications"] == ("False", reason)

    in_cluster(tmp_path, scenario)


def test_a_run_that_is_on_while_spec_spark_goes_is_heard_out(tmp_path: Path) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        await cluster.apply(spark_audit())
        await look(cluster)
        (name,) = await cluster.names(SPARK_APPLICATION)
        await cluster.apply(audit_object(schedule=DAILY))
        await look(cluster)
        assert (await cluster.conditions())["SparkApplications"] == ("False", "Left")
        await application_ends(cluster, name, summary())
        await cluster.turn()
        assert (await cluster.status())["history"][0]["run"] == name
        await cluster.store.delete(SPARK_APPLICATION, "shop", name)
        await cluster.turn()
        assert "SparkApplications" not in await cluster.conditions()

    in_cluster(tmp_path, scenario)


def test_one_kind_of_schedule_goes_when_the_other_comes(tmp_path: Path) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        async def schedules() -> tuple[int, int]:
            kinds = (CRON_JOB, SCHEDULED_SPARK_APPLICATION)
            found = [len(await cluster.names(kind)) for kind in kinds]
            return found[0], found[1]

        await cluster.apply(audit_object(schedule=DAILY))
        await cluster.turn()
        assert await schedules() == (1, 0)
        await cluster.apply(spark_audit(schedule=DAILY, timeZone="Etc/UTC"))
        await look(cluster)
        assert await schedules() == (0, 1)
        (scheduled,) = await cluster.store.list(SCHEDULED_SPARK_APPLICATION, "shop")
        known = {name: scheduled["spec"][name] for name in scheduled["spec"] if name != "template"}
        assert known == {
            "schedule": DAILY, "timeZone": "Etc/UTC", "suspend": False,
            "concurrencyPolicy": "Forbid",
            "successfulRunHistoryLimit": 3, "failedRunHistoryLimit": 3,
        }  # fmt: skip
        await cluster.apply(spark_audit(schedule="0 7 * * *", suspend=True))
        await look(cluster)
        (scheduled,) = await cluster.store.list(SCHEDULED_SPARK_APPLICATION, "shop")
        assert (scheduled["spec"]["schedule"], scheduled["spec"]["suspend"]) == ("0 7 * * *", True)
        await cluster.apply(audit_object(schedule=DAILY))
        await cluster.turn()
        assert await schedules() == (1, 0)
        assert set(await cluster.conditions()) == {"Ready"}
        await cluster.apply(spark_audit())
        await look(cluster)
        assert await schedules() == (0, 0)

    in_cluster(tmp_path, scenario)


def test_runs_that_the_spark_operator_made_of_a_schedule_count(tmp_path: Path) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        await cluster.apply(spark_audit(schedule=DAILY))
        await look(cluster)
        # It gives the schedule's labels to the SparkApplications that it makes.
        name = "daily-1795327200000000000"
        await cluster.store.create(
            SPARK_APPLICATION,
            {
                "apiVersion": "sparkoperator.k8s.io/v1beta2",
                "kind": "SparkApplication",
                "metadata": {"name": name, "namespace": "shop", "labels": audit_labels("daily")},
            },
        )
        await application_ends(cluster, name, summary(verdict="PASS", lost_records=0))
        await look(cluster)
        status = await cluster.status()
        assert (status["verdict"], status["history"][0]["run"]) == ("PASS", name)

    in_cluster(tmp_path, scenario)


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
    async def scenario(cluster: AuditCluster) -> None:
        await cluster.apply(spark_audit())
        await look(cluster)
        (name,) = await cluster.names(SPARK_APPLICATION)
        await application_ends(cluster, name, said, **status)
        await cluster.turn()
        entry = (await cluster.status())["history"][0]
        assert entry["verdict"] == "NO-VERDICT"
        assert words in entry["sentence"]

    in_cluster(tmp_path, scenario)


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
    async def scenario(cluster: AuditCluster) -> None:
        await cluster.apply(spark_audit())
        await look(cluster)
        (name,) = await cluster.names(SPARK_APPLICATION)
        await application_ends(cluster, name, None, state="FAILED", **times)
        await cluster.turn()
        assert (await cluster.status())["history"][0]["finishedTime"] == reported

    in_cluster(tmp_path, scenario)


@pytest.mark.parametrize(
    "state", ["", "SUBMITTED", "SUBMISSION_FAILED", "PENDING_RERUN", "FAILING"]
)
def test_a_run_that_the_spark_operator_goes_on_with_has_not_ended(
    tmp_path: Path, state: str
) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        await cluster.apply(spark_audit())
        await look(cluster)
        (name,) = await cluster.names(SPARK_APPLICATION)
        await application_ends(cluster, name, None, state=state)
        await look(cluster)
        assert (await cluster.status())["history"] == []

    in_cluster(tmp_path, scenario)


def test_old_single_runs_go(tmp_path: Path) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        for number in range(1, 6):
            await cluster.apply(spark_audit(window=f"{number}h"))
            await look(cluster)
            recorded = {each["run"] for each in (await cluster.status())["history"]}
            (name,) = set(await cluster.names(SPARK_APPLICATION)) - recorded
            said = summary(incidents=())
            await application_ends(cluster, name, said, at=f"2026-11-21T0{number}:00:00Z")
            await cluster.turn()
        assert len(await cluster.names(SPARK_APPLICATION)) == 3
        assert len((await cluster.status())["history"]) == 5

    in_cluster(tmp_path, scenario)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [(CRON_JOB, {}), (SCHEDULED_SPARK_APPLICATION, {"spark": SPARK})],
    ids=["CronJob", "ScheduledSparkApplication"],
)
def test_a_schedule_of_somebody_else_is_let_be(
    tmp_path: Path, kind: Any, spec: dict[str, Any]
) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        theirs = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": "daily", "namespace": "shop"},
            "spec": {"schedule": "1 1 1 1 1"},
        }
        theirs = await cluster.store.create(kind, theirs)
        await cluster.apply(audit_object(schedule=DAILY, **spec))
        await cluster.turn(again_after_ms=APPLICATIONS_INTERVAL_MS if spec else None)
        assert (await cluster.conditions())["Ready"] == ("False", "NameTaken")
        await cluster.apply(audit_object(suspend=True))
        await cluster.turn()
        assert await cluster.store.get(kind, "shop", "daily") == theirs

    in_cluster(tmp_path, scenario)


def test_a_schedule_that_the_spark_operator_refused_is_made_anew(tmp_path: Path) -> None:
    async def scenario(cluster: AuditCluster) -> None:
        await cluster.apply(spark_audit(schedule="0 25 * * *"))
        await look(cluster)
        (refused,) = await cluster.store.list(SCHEDULED_SPARK_APPLICATION, "shop")
        status = {"scheduleState": "FailedValidation", "reason": "25 is above 23"}
        await cluster.store.replace_status(
            SCHEDULED_SPARK_APPLICATION, {**refused, "status": status}
        )
        await look(cluster)
        assert (await cluster.conditions())["Ready"] == ("False", "InvalidSchedule")
        await cluster.apply(spark_audit(schedule=DAILY))
        await look(cluster)
        (made,) = await cluster.store.list(SCHEDULED_SPARK_APPLICATION, "shop")
        assert made["metadata"]["uid"] != refused["metadata"]["uid"]
        assert (await cluster.conditions())["Ready"] == ("True", "Scheduled")

    in_cluster(tmp_path, scenario)


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
