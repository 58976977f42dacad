"""What a problem says of a value that Pydantic does not accept."""

from typing import Any

import pytest
from pydantic import ValidationError
from tidemark_broker.http.schemas import ProducerDocument, TopicsDocument
from tidemark_broker.http.validation_details import validation_detail


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"producer_epoch":0}', "body: producer_id: expected a value, found none"),
        (b"[]", "body: expected an object, found []"),
        (b"x{", "body: expected JSON, found 'x{'"),
        (
            b'{"producer_id":"x","producer_epoch":0}',
            "body: producer_id: expected a whole number, found 'x'",
        ),
        (
            b'{"producer_id":1.5,"producer_epoch":0}',
            "body: producer_id: expected a whole number, found 1.5",
        ),
        (
            b'{"producer_id":null,"producer_epoch":0}',
            "body: producer_id: expected a whole number, found null",
        ),
        (
            b'{"producer_id":-1,"producer_epoch":0}',
            "body: producer_id: expected at least 0, found -1",
        ),
        (
            b'{"producer_id":1,"producer_epoch":70000}',
            "body: producer_epoch: expected at most 32767, found 70000",
        ),
        (
            b'{"producer_id":1,"producer_epoch":1,"producerId":1}',
            "body: producerId: expected only known fields, found 'producerId'",
        ),
    ],
)
def test_a_body_is_told_what_was_expected_and_found(body: bytes, said: str) -> None:
    with pytest.raises(ValidationError) as raised:
        ProducerDocument.model_validate_json(body)
    assert validation_detail({**raised.value.errors()[0]}, "body") == said


def test_an_entry_of_a_list_has_its_index() -> None:
    with pytest.raises(ValidationError) as raised:
        TopicsDocument.model_validate_json(b'{"topics":[1]}')
    said = validation_detail({**raised.value.errors()[0]}, "body")
    assert said == "body: topics.0: expected a string, found 1"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"type": "literal_error", "ctx": {"expected": "'a' or 'b'"}}, "'a' or 'b'"),
        ({"type": "new", "msg": "Input should be a prime"}, "a prime"),
        ({"type": "new", "msg": "No prime"}, "a valid value"),
        ({"type": "less_than", "msg": "Input should be less than 3"}, "less than 3"),
    ],
)
def test_other_errors_say_what_is_known_of_them(error: dict[str, Any], expected: str) -> None:
    found = {"loc": ("query", "of"), "input": "x", **error}
    assert validation_detail(found) == f"query.of: expected {expected}, found 'x'"


def test_a_long_value_is_shortened() -> None:
    error = {"type": "int_parsing", "loc": ("query", "to_offset"), "input": "9" * 5000}
    said = validation_detail(error)
    assert said == f"query.to_offset: expected a whole number, found '{'9' * 40}'"
