"""Series of Apache Kafka as ours, by the mapping file beside this module.

Kafka has no leader epochs, follower ages or proofs of loss to export, and its broker-wide counters
are nobody's partition: what the file does not name stays unknown, and rules that need it say so.
`kafka_jmx_exporter.yaml` is the configuration of the JMX exporter that serves just these names.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

# Of a follower, Kafka's follower speaks itself, where our leaders do.
OF_THEMSELVES = frozenset({"follower_lag_records"})
# Leaders say these, and followers say 0: such series carry the mark until engines.kafka_followers.
LEADERS_ONLY = frozenset({"partition_replicas", "partition_in_sync_replicas"})
SAID_BY_KAFKA = "kafka"
_NUMBER_AT_END = re.compile(r".*-(\d+)$")


@dataclass(frozen=True, slots=True)
class KafkaNames:
    families: Mapping[str, str]  # Kafka's name to ours, without the prefix
    broker_labels: tuple[str, ...]

    def broker_of(self, labels: Mapping[str, str]) -> str:
        named = next((labels[label] for label in self.broker_labels if labels.get(label)), "")
        number = _NUMBER_AT_END.match(named)
        return named if number is None else number[1]


@cache
def kafka_names() -> KafkaNames:
    text = files("tidemark_audit").joinpath("kafka_names.toml").read_text("utf-8")
    content = tomllib.loads(text)
    return KafkaNames(content["families"], tuple(content["broker"]))
