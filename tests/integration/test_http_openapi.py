"""The OpenAPI document of a real broker, taken at its word: schemathesis makes requests of it,
valid ones and others, and judges the answers. Bounded: so many examples each, always the same.

Of its other checks: refusing what is valid is often right here (base64 and JSON values, offsets out
of range), and 503 and 504 are answers that clients are to expect. What a path does not do is tested
with all of the paths in tests/unit/broker/http; there are no credentials and no links."""

from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.local_cluster import running

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

EXAMPLES = 15  # of each operation
INVALID_EXAMPLES = 5  # and of what its document forbids
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# Of a topic that there is, for half of the requests: else all that matters would be 404.
PLACES = st.one_of(st.none(), st.sampled_from(["0", "1", "2"]))


def examine(operation: schemathesis.schemas.APIOperation, base_url: str) -> None:
    @seed(1)
    @settings(
        max_examples=EXAMPLES,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(), place=PLACES)
    def conforms(case: schemathesis.Case, place: str | None) -> None:
        if place is not None and "topic" in case.path_parameters:
            case.path_parameters["topic"] = "orders"
            if "partition" in case.path_parameters:
                case.path_parameters["partition"] = place
        response = case.call(base_url=base_url, timeout=40)
        assert response.status_code != 500, response.text
        case.validate_response(response, checks=CHECKS)

    conforms()


def has_much_to_reject(operation: schemathesis.schemas.APIOperation) -> bool:
    """Not mere names in a path: one that is forbidden takes the generator ten seconds to find."""
    return bool(operation.body or operation.query or "{partition}" in operation.path)


def examine_rejections(operation: schemathesis.schemas.APIOperation, base_url: str) -> None:
    invalid = schemathesis.GenerationMode.NEGATIVE

    @seed(1)
    @settings(
        max_examples=INVALID_EXAMPLES,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=invalid))
    def rejects(case: schemathesis.Case) -> None:
        response = case.call(base_url=base_url, timeout=40)
        assert response.status_code != 500, response.text
        case.validate_response(response, checks=[*CHECKS, negative_data_rejection])

    rejects()


def test_every_operation_answers_as_the_document_says(tmp_path: Path) -> None:
    with running(tmp_path) as cluster:
        cluster.wait_until_in_sync(seconds=90)
        base_url = cluster.broker_url(0)
        schema = schemathesis.openapi.from_url(f"{base_url}/openapi.json")
        operations = [found.ok() for found in schema.get_all_operations()]
        assert len(operations) > 20
        for operation in operations:
            try:
                examine(operation, base_url)
                if has_much_to_reject(operation):
                    examine_rejections(operation, base_url)
            except Exception as error:
                error.add_note(operation.label)
                raise
