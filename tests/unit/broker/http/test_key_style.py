"""Names in JSON bodies are in snake_case; a former one stands beside its successor."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tidemark_broker import http
from tidemark_broker.http.forwarding import _read_response
from tidemark_broker.http.problems import PREVIOUS_NAMES, HttpProblem
from tidemark_broker.http.produce_bodies import ProducedRecord
from tidemark_broker.http.produce_results import Failed
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId

from tests.unit.broker.http.fake_broker import fake_broker
from tests.unit.broker.http.test_admin import get

SNAKE_CASE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
OF_KAFKA = re.compile(r"[a-z]+(\.[a-z]+)+")  # names of configs, as the REST Proxy v2 takes them
OF_PYDANTIC = frozenset({"HTTPValidationError", "ValidationError"})


def _properties(schemas: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, schema in schemas.items():
        for key, entry in schema.get("properties", {}).items():
            yield name, key, entry


def test_every_documented_name_is_in_snake_case_or_a_former_one() -> None:
    schemas = get(fake_broker(), "/openapi.json").json()["components"]["schemas"]
    found = list(_properties(schemas))
    assert len(found) > 80
    for schema, key, entry in found:
        if entry.get("deprecated"):
            assert key in PREVIOUS_NAMES.values(), (schema, key)
            assert any(PREVIOUS_NAMES.get(other) == key for other in schemas[schema]["properties"])
        else:
            assert SNAKE_CASE.fullmatch(key) or OF_KAFKA.fullmatch(key), (schema, key)


@pytest.mark.parametrize(("name", "previous"), PREVIOUS_NAMES.items())
def test_a_former_name_has_the_same_value(name: str, previous: str) -> None:
    assert SNAKE_CASE.fullmatch(name)
    problem = HttpProblem(ErrorCode.OFFSET_OUT_OF_RANGE, "no", members={name: 7})
    body = msgspec.json.decode(problem.answer("/", is_produce=False).body)
    assert body[name] == body[previous] == 7


@pytest.mark.parametrize(
    ("names", "error"),
    [
        ({"error_code": 19}, "NOT_ENOUGH_REPLICAS"),
        ({"errorCode": 19}, "NOT_ENOUGH_REPLICAS"),  # of a broker that is not upgraded yet
        ({"error_code": 19, "errorCode": 19}, "NOT_ENOUGH_REPLICAS"),
        ({}, "NETWORK_EXCEPTION"),
    ],
)
def test_a_forwarded_problem_is_read_by_either_name(names: dict[str, int], error: str) -> None:
    body = msgspec.json.encode({"detail": "no", "outcome": "not_written", **names})
    records = [(0, ProducedRecord(None, b"x", (), 0, None))]
    (result,) = _read_response(records, BrokerId(1), 503, body)
    assert isinstance(result, Failed)
    assert result.error == error


def test_members_of_problems_are_written_in_snake_case() -> None:
    """`answer` adds the former names, so no route writes one by hand."""
    previous = {*PREVIOUS_NAMES.values()}
    for path in sorted(Path(http.__path__[0]).rglob("*.py")):
        if path.name in ("problems.py", "schemas.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant):
                assert node.value not in previous, f"{path.name}:{node.lineno}"
