"""The Job or CronJob of an audit: one pod, without rights."""

from typing import Any

from tidemark_operator.api.replication_audit import ReplicationAudit
from tidemark_operator.resources.audit_job import (
    JOB_NAME_LABEL,
    JOB_SELECTOR,
    cron_job_manifest,
    job_manifest,
)

from tests.support.api_objects import parsed
from tests.support.audit_objects import audit_object


def audit_of(**spec: Any) -> ReplicationAudit:
    """Of generation 3."""
    item = audit_object(**spec)
    item["metadata"]["generation"] = 3
    return parsed(ReplicationAudit, item)


def test_a_cron_job_starts_the_job_that_a_single_run_would_be() -> None:
    spec = {"timeoutSeconds": 600, "image": "audit:1"}
    job = job_manifest(audit_of(**spec))["spec"]
    cron_job = cron_job_manifest(audit_of(schedule="0 6 * * *", **spec))
    assert cron_job["spec"]["jobTemplate"]["spec"] == job
    assert (job["activeDeadlineSeconds"], job["backoffLimit"]) == (600, 2)
    assert job["template"]["spec"]["containers"][0]["image"] == "audit:1"
    assert cron_job["metadata"]["name"] == "daily"


def test_the_container_learns_the_name_of_its_run_from_its_pod() -> None:
    (container,) = job_manifest(audit_of())["spec"]["template"]["spec"]["containers"]
    (variable,) = container["env"]
    field = variable["valueFrom"]["fieldRef"]["fieldPath"]
    assert (variable["name"], field) == ("AUDIT_RUN", f"metadata.labels['{JOB_NAME_LABEL}']")


def test_the_watch_selects_jobs_and_those_made_from_a_cron_job() -> None:
    selected = {key: value for key, _, value in (e.partition("=") for e in JOB_SELECTOR.split(","))}
    cron_job = cron_job_manifest(audit_of(schedule="0 6 * * *"))
    made = cron_job["spec"]["jobTemplate"]["metadata"]["labels"]
    for labels in (job_manifest(audit_of())["metadata"]["labels"], made):
        assert selected.items() <= labels.items()


def test_the_pod_reads_its_source_and_writes_its_report_with_no_rights() -> None:
    audit = audit_object(
        slo={"objectives": {"writable": 0.99}},
        engine="Local",
        output={"claimName": "reports"},
        source={"prometheus": {"url": "https://p:9090", "tokenSecret": {"name": "s", "key": "k"}}},
    )
    audit["metadata"]["generation"] = 3
    job = job_manifest(parsed(ReplicationAudit, audit))
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert job["metadata"]["name"] == "daily-3"
    assert pod["automountServiceAccountToken"] is False
    assert container["args"] == [
        *("--window", "24h", "--engine", "local", "--slo", '{"objectives": {"writable": 0.99}}'),
        *("--report", "/reports/audits/daily/$(AUDIT_RUN)"),
        *("--summary", "/dev/termination-log", "--fail-on", "no-verdict"),
        *("--token-file", "/token/token", "https://p:9090"),
    ]
    mounted = {
        mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]
    }
    assert mounted == {"/tmp": False, "/token": True, "/reports": False}
