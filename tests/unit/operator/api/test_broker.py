"""Broker objects: what is read, what is kept, and which producer ids belong to a round (S5)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tidemark_operator.api.broker import (
    IDS_PER_ROUND,
    MAX_BROKERS,
    BrokerControlState,
    broker_object,
    first_producer_id,
    is_where_brokers_are,
    producer_id_round_of,
    read_broker,
    round_of,
)
from tidemark_operator.api.partition_slice import MalformedObject
from tidemark_operator.api.schemas import load_schema
from tidemark_protocol.ids import FORGED_PRODUCER_IDS_FROM, BrokerId

from tests.support.broker_records import a_record

RECORD = replace(a_record(BrokerId(1)), producer_id_round=4)


def test_blocks_of_all_brokers_fill_a_round_and_none_overlaps() -> None:
    first, last = BrokerId(0), BrokerId(MAX_BROKERS - 1)
    assert first_producer_id(3, first) - first_producer_id(2, last) == 1000
    assert [round_of(first_producer_id(3, broker_id)) for broker_id in (first, last)] == [3, 3]
    assert round_of(first_producer_id(3, first) - 1) == 2


@pytest.mark.parametrize(
    ("producer_id", "expected"),
    [
        (-1, -1),
        (0, 0),
        (IDS_PER_ROUND, 1),
        (FORGED_PRODUCER_IDS_FROM - 1, (FORGED_PRODUCER_IDS_FROM - 1) // IDS_PER_ROUND),
        (FORGED_PRODUCER_IDS_FROM, -1),
    ],
)
def test_ids_that_were_never_allocated_have_no_round(producer_id: int, expected: int) -> None:
    assert round_of(producer_id) == expected


def unknown(value: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    for name, child in value.items():
        if name not in schema["properties"]:
            yield name
        elif isinstance(child, dict):
            yield from unknown(child, schema["properties"][name])


def test_the_crd_has_each_field_that_is_written() -> None:
    endpoints = replace(RECORD.endpoints, replication_port=9091, has_tls=True)
    item = broker_object(replace(RECORD, endpoints=endpoints), None)
    assert list(unknown(item["status"], load_schema("Broker")["properties"]["status"])) == []
    assert read_broker(item) == replace(RECORD, endpoints=endpoints)


def test_fields_of_others_are_kept_when_a_record_is_written_over_them() -> None:
    stored = {
        "metadata": {"resourceVersion": "5", "labels": {"team": "a"}},
        "spec": {"note": 1},
        "status": {"conditions": [], "state": "Gone"},
    }
    item = broker_object(RECORD, stored)
    assert (item["metadata"]["resourceVersion"], item["metadata"]["labels"]["team"]) == ("5", "a")
    assert (item["spec"]["note"], item["status"]["conditions"]) == (1, [])
    assert item["status"]["state"] == "Active"
    assert read_broker(item) == RECORD
    assert stored["status"] == {"conditions": [], "state": "Gone"}


@pytest.mark.parametrize(
    ("metadata", "is_there"),
    [({}, True), ({"name": "default-2"}, False), ({"namespace": "other"}, False)],
)
def test_a_copy_under_another_name_or_namespace_is_told(
    metadata: dict[str, str], is_there: bool
) -> None:
    item = broker_object(RECORD, None)
    item["metadata"].update(metadata)
    assert is_where_brokers_are(item) is is_there


@pytest.mark.parametrize("flaw", [{"state": "Busy"}, {"cleanSince": None}, {"endpoints": {}}])
def test_a_malformed_status_is_an_error_with_its_place_and_its_round_is_still_read(
    flaw: dict[str, Any],
) -> None:
    item = broker_object(RECORD, None)
    item["status"].update(flaw)
    with pytest.raises(MalformedObject, match="Broker shop/default-1: "):
        read_broker(item)
    assert producer_id_round_of(item) == 4


def test_an_object_that_no_broker_registered_yet_has_no_record_and_no_round() -> None:
    item: dict[str, Any] = {"metadata": {"name": "default-1"}, "spec": {}, "status": {}}
    assert (read_broker(item), producer_id_round_of(item)) == (None, -1)
    assert producer_id_round_of({"status": {"producerIdRound": "4"}}) == -1


def test_only_active_and_draining_brokers_are_live() -> None:
    records = [replace(RECORD, state=state) for state in BrokerControlState]
    live = {record.state.value for record in records if record.is_live}
    stopping = {record.state.value for record in records if record.is_stopping}
    assert (live, stopping) == ({"Active", "Draining"}, {"Draining"})
