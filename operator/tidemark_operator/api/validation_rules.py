"""Apply the CEL rules of the CRDs in Python, with the same sentences.

`*_faults` read manifests that fit their schema and have its defaults; `*_change_faults` compare
with what is stored. A test applies both to the real API server.
"""

import re
from collections.abc import Iterator

import msgspec
from tidemark_protocol.topic_configs import CLEANUP_POLICY, text_of

from tidemark_operator.api.config_checks import config_faults
from tidemark_operator.api.elect_annotation import elect_fault
from tidemark_operator.api.kinds import Object
from tidemark_operator.api.pool_security import SecuritySpec, skipped_steps

OFFSETS_TOPIC = "__consumer_offsets"


def topic_faults(topic: Object) -> Iterator[str]:
    spec = topic["spec"]
    if len(topic["metadata"]["name"]) > 200:
        yield "metadata.name is at most 200 characters long"
    if spec.get("topicName") in (".", ".."):
        yield 'topicName cannot be "." or ".."'
    fault = elect_fault(topic["metadata"].get("annotations") or {})
    if fault is not None:
        yield fault  # the API server does not read annotations: Attention says it there
    config = spec.get("config", {})
    if spec.get("topicName") == OFFSETS_TOPIC and text_of(CLEANUP_POLICY, config) != "compact":
        yield "cleanup.policy of __consumer_offsets can only be compact"
    yield from _placement_faults(spec)
    yield from config_faults(config, spec["replicationFactor"])


def _placement_faults(spec: Object) -> Iterator[str]:
    placement = spec.get("placement", [])
    numbers = [entry["partition"] for entry in placement]
    if any(number >= spec["partitions"] for number in numbers):
        yield "placement names a partition that does not exist"
    if any(len(entry["replicas"]) != spec["replicationFactor"] for entry in placement):
        yield "placement must list replicationFactor brokers for each partition"
    # The API server says these two in its own words (list types map and set).
    if len(set(numbers)) != len(numbers):
        yield "placement names a partition twice"
    if any(len(set(entry["replicas"])) != len(entry["replicas"]) for entry in placement):
        yield "placement names a broker twice for one partition"


def topic_change_faults(topic: Object, old: Object) -> Iterator[str]:
    spec, old_spec = topic["spec"], old["spec"]
    if topic_name(topic) != topic_name(old):
        yield "topicName cannot be changed; create another Topic"
    if spec["partitions"] < old_spec["partitions"]:
        yield "partitions cannot be lowered"
    if spec.get("topicName") == OFFSETS_TOPIC and spec["partitions"] != old_spec["partitions"]:
        yield (
            "partitions of __consumer_offsets cannot be changed: the number determines the"
            " partition of each group"
        )
    if spec["brokerPool"] != old_spec["brokerPool"]:
        yield "brokerPool cannot be changed; create another Topic and copy the records"
    for name in ("commitRule", "flush"):
        if spec[name] != old_spec[name]:
            yield f"{name} cannot be changed; create another Topic"


def topic_name(topic: Object) -> str:
    name: str = topic["spec"].get("topicName", topic["metadata"]["name"])
    return name


def pool_faults(pool: Object) -> Iterator[str]:
    name = pool["metadata"]["name"]
    if len(name) > 50:
        yield "metadata.name is at most 50 characters long"
    if re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name) is None:
        yield 'metadata.name starts with a letter and has lower-case letters, digits and "-"'
    yield from _listener_faults(name, pool["spec"].get("listeners", []))
    yield from _secured_pool_faults(_security(pool), pool["spec"].get("listeners", []))
    yield from _client_authority_faults(pool["spec"].get("security", {}))
    quotas = pool["spec"].get("quotas", [])
    for entry in quotas:
        if len(entry) < 2:
            yield (
                "a quota needs at least one of produceBytesPerSecond, fetchBytesPerSecond"
                " and requestPercentage"
            )
    # The API server says this in its own words (list type map).
    if len({entry["clientId"] for entry in quotas}) != len(quotas):
        yield "quotas names a clientId twice"


def _security(pool: Object) -> SecuritySpec:
    return msgspec.convert(pool["spec"].get("security", {}), SecuritySpec)


def _secured_pool_faults(security: SecuritySpec, listeners: list[Object]) -> Iterator[str]:
    if security.has_replication_port and any(entry["port"] == 9091 for entry in listeners):
        yield "port 9091 is reserved in a pool with TLS or authentication"
    if security.authentication == "kubernetes" and any(
        entry["protocol"] == "HTTP" and entry.get("authentication") in ("none", "optional")
        for entry in listeners
    ):
        yield "a listener for HTTP cannot be open where the pool authenticates clients"


def _client_authority_faults(security: Object) -> Iterator[str]:
    authority = security.get("clientAuthority")
    if authority is None:
        return
    if ("configMapName" in authority) == ("secretName" in authority):
        yield "set configMapName or secretName, not both"
    if security.get("tls", {}).get("mode") == "Disabled":
        yield "clientAuthority needs tls"


def _listener_faults(pool_name: str, listeners: list[Object]) -> Iterator[str]:
    for entry in listeners:
        if entry["name"] in ("kafka", "http"):
            yield "the listener names kafka and http are reserved"
        if entry["port"] in (9092, 8080):
            yield "ports 9092 and 8080 are reserved"
        if len(pool_name) + len(entry["name"]) > 52:
            yield "the names of the pool and of a listener have at most 52 characters together"
    if len({entry["port"] for entry in listeners}) != len(listeners):
        yield "two listeners have the same port"
    # The API server says this in its own words (list type map).
    if len({entry["name"] for entry in listeners}) != len(listeners):
        yield "listeners has a name twice"


def pool_change_faults(pool: Object, old: Object) -> Iterator[str]:
    spec, old_spec = pool["spec"], old["spec"]
    if spec["storage"] != old_spec["storage"]:
        yield "storage cannot be changed; create another BrokerPool"
    yield from skipped_steps(_security(old), _security(pool))


SPARK_NAME = re.compile("[a-z]([-a-z0-9]{0,41}[a-z0-9])?")


def audit_faults(audit: Object) -> Iterator[str]:
    if len(audit["metadata"]["name"]) > 52:
        yield "metadata.name is at most 52 characters long"
    source = audit["spec"]["source"]
    if ("prometheus" in source) == ("files" in source):
        yield "source needs exactly one of prometheus and files"
    if "spark" not in audit["spec"]:
        return
    if audit["spec"]["engine"] != "Spark":
        yield "spec.spark requires engine Spark"
    if not SPARK_NAME.fullmatch(audit["metadata"]["name"]):
        yield (
            "with spec.spark metadata.name is at most 43 characters long, a-z, 0-9 and -,"
            " and starts with a letter"
        )


def audit_change_faults(audit: Object, old: Object) -> Iterator[str]:
    """Yield nothing: everything about an audit may change."""
    return iter(())
