"""Who would change a broker or a group over Kafka is told where that is said instead."""

from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.messages.configs import (
    DESCRIBE_CONFIGS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
)
from tidemark_broker.kafka_wire.messages.schema import Values
from tidemark_broker.server.config import POOL_FIELDS, broker_config_error
from tidemark_operator.api.schemas import load_schema
from tidemark_protocol.error_codes import ErrorCode

from tests.unit.broker.kafka.apis.test_admin_requests import Requested, ask, resource, run
from tests.unit.broker.replication.test_replication_link import Link

GROUP_TYPE = 32


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (("num.partitions",), "num.partitions: set spec.defaultPartitions of the BrokerPool"),
        (("log.retention.ms",), "log.retention.ms: set retention.ms in spec.config of each Topic"),
        (("log.cleaner.threads",), "log.cleaner.threads: not configurable in the BrokerPool"),
        (("a", "b", "c", "d", "e", "f"), "e: not configurable in the BrokerPool; and 1 more"),
    ],
)
def test_who_alters_a_broker_is_told_the_field(names: tuple[str, ...], sentence: str) -> None:
    assert broker_config_error(names).endswith(sentence)


def test_every_field_that_is_named_is_one_of_a_pool() -> None:
    properties = load_schema("BrokerPool")["properties"]["spec"]["properties"]
    for field in POOL_FIELDS.values():
        spec, *path = field.split(".")
        assert spec == "spec"
        found = properties[path[0]]
        for name in path[1:]:
            found = found["properties"][name]


def test_groups_have_no_configs_and_take_none(tmp_path: Path) -> None:
    async def scenario(link: Link, controller: Requested) -> None:
        described: Values = {"include_synonyms": False, "include_documentation": False}
        described |= {"resources": (resource(GROUP_TYPE, "g"), resource(GROUP_TYPE, ""))}
        found = (await ask(link, DESCRIBE_CONFIGS_API, described))["resources"]
        expected = [(ErrorCode.NONE, ()), (ErrorCode.INVALID_REQUEST, ())]
        assert [(each["error"], each["configs"]) for each in found] == expected
        name = "consumer.session.timeout.ms"
        for operation, error in ((0, ErrorCode.INVALID_CONFIG), (1, ErrorCode.NONE)):
            config = {"name": name, "operation": operation, "value": "1"}
            changed = (resource(GROUP_TYPE, "g", configs=(config,)),)
            requested = {"resources": changed, "validate_only": False}
            (reported,) = (await ask(link, INCREMENTAL_ALTER_CONFIGS_API, requested))["resources"]
            assert reported["error"] == error
            assert operation or "spec.groups of the BrokerPool" in reported["error_message"]

    run(tmp_path, scenario)
