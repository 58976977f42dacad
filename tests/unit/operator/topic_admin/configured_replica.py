"""What a replica on a broker makes of its topic's config."""

import tempfile
from pathlib import Path

from tidemark_broker.log.disk import OsDisk
from tidemark_broker.log.partition_log import LogSettings, PartitionLog
from tidemark_broker.replication.partition import Partition, PartitionEvents
from tidemark_protocol.ids import Offset
from tidemark_protocol.partition_state import TopicState


def _nothing(*_: object) -> None:
    return None


def replica_lag_max_ms(topic: TopicState) -> int:
    with tempfile.TemporaryDirectory() as directory:
        log = PartitionLog(
            OsDisk(),
            Path(directory),
            topic=topic.topic,
            topic_id=topic.topic_id,
            partition=0,
            settings=LogSettings(),
        )
        events = PartitionEvents(*[_nothing] * 8)
        replica = Partition(log, high_watermark=Offset(0), events=events)
        replica.apply_topic(topic)
        return replica.replica_lag_max_ms
