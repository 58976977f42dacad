"""What all pods of an audit share: arguments, volumes, labels, and the digest of a schedule."""

from typing import Any

import pytest
from tidemark_operator.api.kinds import CRON_JOB, JOB
from tidemark_operator.api.replication_audit import ReplicationAudit
from tidemark_operator.resources.audit_job import job_manifest
from tidemark_operator.resources.audit_pod import (
    arguments,
    audit_labels,
    audit_name_of,
    owned_manifest,
    pod_parts,
    schedule_manifest,
    single_run_name,
)
from tidemark_operator.resources.names import TEMPLATE_ANNOTATION

from tests.support.api_objects import parsed
from tests.support.audit_objects import audit_object

PROMETHEUS = {"prometheus": {"url": "https://p:9090", "tokenSecret": {"name": "s", "key": "k"}}}


def audit_of(**spec: Any) -> ReplicationAudit:
    item = audit_object(**spec)
    item["metadata"] |= {"generation": 3, "uid": "audit-uid"}
    return parsed(ReplicationAudit, item)


def digest_of(audit: ReplicationAudit, content: dict[str, Any]) -> str:
    manifest = schedule_manifest(audit, CRON_JOB, content)
    return str(manifest["metadata"]["annotations"][TEMPLATE_ANNOTATION])


def test_the_audit_of_an_object_is_read_from_its_label() -> None:
    assert audit_name_of({"metadata": {"labels": audit_labels("daily")}}) == "daily"
    assert audit_name_of({"metadata": {"labels": None}}) is None
    assert audit_name_of({"metadata": {}}) is None


def test_every_object_of_an_audit_goes_with_it() -> None:
    audit = audit_of()
    manifest = owned_manifest(audit, JOB, single_run_name(audit), {})
    (owner,) = manifest["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == (
        "ReplicationAudit",
        "daily",
        "audit-uid",
    )
    assert (manifest["apiVersion"], manifest["kind"]) == ("batch/v1", "Job")
    assert manifest["metadata"]["name"] == "daily-3"


def test_runs_of_a_schedule_never_overlap_and_a_time_zone_is_named_only_where_it_is_set() -> None:
    plain = schedule_manifest(audit_of(schedule="0 6 * * *"), CRON_JOB, {})["spec"]
    assert (plain["concurrencyPolicy"], plain["suspend"]) == ("Forbid", False)
    assert "timeZone" not in plain
    zoned = audit_of(schedule="0 6 * * *", timeZone="Etc/UTC", suspend=True)
    spec = schedule_manifest(zoned, CRON_JOB, {})["spec"]
    assert (spec["timeZone"], spec["suspend"]) == ("Etc/UTC", True)


def test_the_digest_of_a_schedule_changes_with_all_that_it_was_made_of() -> None:
    audit = audit_of(schedule="0 6 * * *")
    found = {
        digest_of(audit, {}),
        digest_of(audit, {"successfulJobsHistoryLimit": 1}),
        digest_of(audit_of(schedule="0 7 * * *"), {}),
        digest_of(audit_of(schedule="0 6 * * *", suspend=True), {}),
    }
    assert len(found) == 4
    assert digest_of(audit_of(schedule="0 6 * * *", historyLimit=5), {}) == digest_of(audit, {})


def test_an_audit_without_extras_has_the_shortest_arguments() -> None:
    assert arguments(audit_of(engine="Spark", window="7d")) == [
        *("--window", "7d", "--engine", "spark"),
        *("--summary", "/dev/termination-log", "--fail-on", "no-verdict"),
        "http://prometheus:9090",
    ]


@pytest.mark.parametrize(
    ("writes_reports", "names"),
    [
        (True, ["tmp", "token", "reports"]),
        (False, ["tmp", "token"]),
    ],
)
def test_only_a_pod_that_writes_reports_mounts_their_claim(
    writes_reports: bool, names: list[str]
) -> None:
    audit = audit_of(source=PROMETHEUS, output={"claimName": "reports"})
    fields, mounts = pod_parts(audit, writes_reports=writes_reports)
    assert [each["name"] for each in fields["volumes"]] == names
    assert [each["name"] for each in mounts] == names


def test_a_source_that_is_the_reports_claim_is_read_only_where_no_report_is_written() -> None:
    claim = {"claimName": "exports", "path": "today"}
    audit = audit_of(source={"files": claim}, output={"claimName": "exports"})
    fields, _ = pod_parts(audit, writes_reports=False)
    assert fields["volumes"][1:] == [
        {"name": "source", "persistentVolumeClaim": {"claimName": "exports", "readOnly": True}}
    ]


def test_files_are_read_from_a_claim() -> None:
    audit = audit_object()
    audit["spec"]["source"] = {"files": {"claimName": "exports", "path": "2026/11"}}
    pod = job_manifest(parsed(ReplicationAudit, audit))["spec"]["template"]["spec"]
    assert "/source/2026/11" in pod["containers"][0]["args"]


def test_a_claim_that_holds_both_source_and_reports_is_one_volume() -> None:
    """Kubernetes never starts a pod that names a claim twice."""
    audit = audit_object(
        source={"files": {"claimName": "exports", "path": "today"}},
        output={"claimName": "exports"},
    )
    pod = job_manifest(parsed(ReplicationAudit, audit))["spec"]["template"]["spec"]
    claims = [each["persistentVolumeClaim"] for each in pod["volumes"] if each["name"] != "tmp"]
    assert claims == [{"claimName": "exports", "readOnly": False}]
    mounted = {
        mount["mountPath"]: (mount["name"], mount.get("readOnly", False))
        for mount in pod["containers"][0]["volumeMounts"]
    }
    assert mounted == {
        "/tmp": ("tmp", False), "/source": ("reports", True), "/reports": ("reports", False)
    }  # fmt: skip


def test_an_audit_names_its_pull_secrets() -> None:
    audit = audit_of(imagePullSecrets=[{"name": "registry"}])
    pod = job_manifest(audit)["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert "imagePullSecrets" not in job_manifest(audit_of())["spec"]["template"]["spec"]
