"""A ReplicationAudit as a typed value: defaults of the CRD, and strict about what it names."""

from typing import Any

from msgspec import UNSET
from tidemark_operator.api.objects import Invalid, parse
from tidemark_operator.api.replication_audit import ClaimPath, ReplicationAudit

from tests.support.api_objects import parsed
from tests.support.audit_objects import audit_object


def read(**spec: Any) -> ReplicationAudit:
    return parsed(ReplicationAudit, audit_object(**spec))


def test_an_audit_that_names_a_source_runs_once_and_writes_no_files() -> None:
    audit = read()
    assert (audit.spec.schedule, audit.spec.is_suspended, audit.spec.output) == (None, False, None)
    assert audit.spec.spark is None
    assert audit.spec.source.prometheus is not None
    assert audit.spec.source.prometheus.token_secret is None
    assert audit.status.started_generation is UNSET


def test_a_source_of_files_is_a_path_in_a_claim() -> None:
    source = {"files": {"claimName": "samples", "path": "day/1"}}
    audit = read(source=source)
    assert audit.spec.source.files == ClaimPath(claim_name="samples", path="day/1")
    assert audit.spec.source.prometheus is None


def test_an_audit_is_suspended_by_its_field_in_the_crd() -> None:
    assert read(schedule="0 6 * * *", suspend=True).spec.is_suspended


def test_a_field_that_the_crd_does_not_have_is_an_error() -> None:
    found = parse(ReplicationAudit, audit_object(scedule="0 6 * * *"))
    assert isinstance(found, Invalid)
    assert found.sentences == ('unknown field "spec.scedule"',)
