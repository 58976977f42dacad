"""What audits make for the Spark operator, by the schemas of its own CRDs."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from tidemark_operator.api.kinds import Object
from tidemark_operator.api.replication_audit import ReplicationAudit
from tidemark_operator.api.schemas import apply_defaults
from tidemark_operator.resources.spark_application import (
    scheduled_spark_application_manifest,
    spark_application_manifest,
)

from tests.support.api_objects import parsed
from tests.support.audit_objects import audit_object
from tests.support.client_tools import TOOL_SECONDS, tool

# The first one may have to fetch the CRDs.
pytestmark = pytest.mark.timeout(TOOL_SECONDS + 60)

SPARK = {"executors": 3, "serviceAccountName": "spark", "executor": {"cores": 2, "memory": "4g"}}
AUDITS: dict[str, dict[str, Any]] = {
    "plain": {},
    "much": {
        "timeZone": "Etc/UTC",
        "slo": {"objectives": {"writable": 0.99}},
        "output": {"claimName": "reports"},
        "source": {
            "prometheus": {"url": "https://p:9090", "tokenSecret": {"name": "s", "key": "k"}}
        },
    },
    "files": {"source": {"files": {"claimName": "exports"}}, "output": {"claimName": "exports"}},
}


@cache
def schema_of(plural: str) -> dict[str, Any]:
    """Of the version served as v1beta2; what it would prune is an error here."""
    directory = Path(tool("client-tools", "spark-operator")) / "config" / "crd" / "bases"
    text = (directory / f"sparkoperator.k8s.io_{plural}.yaml").read_text()
    crd = yaml.load(text, yaml.CSafeLoader)  # 12,000 lines: seconds in Python
    (schema,) = (
        version["schema"]["openAPIV3Schema"]
        for version in crd["spec"]["versions"]
        if version["name"] == "v1beta2" and version["served"]
    )
    return strict(schema)


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    result = dict(schema)
    if "properties" in schema:
        result["properties"] = {name: strict(each) for name, each in schema["properties"].items()}
        result.setdefault("additionalProperties", False)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            result[name] = strict(schema[name])
    return result


@pytest.mark.parametrize("name", AUDITS)
def test_manifests_are_valid_and_nothing_of_them_is_pruned(name: str) -> None:
    item = apply_defaults(audit_object(schedule="0 6 * * *", spark=SPARK, **AUDITS[name]))
    audit = parsed(ReplicationAudit, item)
    assert audit.spec.spark is not None
    assert faults(spark_application_manifest(audit, audit.spec.spark)) == []
    assert faults(scheduled_spark_application_manifest(audit, audit.spec.spark)) == []


def test_a_field_that_they_do_not_have_is_noticed() -> None:
    audit = parsed(ReplicationAudit, audit_object(spark=SPARK))
    assert audit.spec.spark is not None
    application = spark_application_manifest(audit, audit.spec.spark)
    application["spec"]["deadlineSeconds"] = 1
    (found,) = faults(application)
    assert "'deadlineSeconds' was unexpected" in found


def faults(manifest: Object) -> list[str]:
    schema = schema_of(manifest["kind"].lower() + "s")
    # Of metadata a CRD says only that it is an object.
    checked = {name: value for name, value in manifest.items() if name != "metadata"}
    checked["metadata"] = {}
    return [error.message for error in Draft202012Validator(schema).iter_errors(checked)]
