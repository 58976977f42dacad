"""A log's directory is made whole under a name that nothing loads: the rename is its creation."""

from pathlib import Path

from tidemark_protocol.ids import TopicId

from tidemark_broker.storage import checkpoints
from tidemark_broker.storage.disk import Disk
from tidemark_broker.storage.removed import name_with

UNBORN_SUFFIX = "-future"


def make_log_directory(disk: Disk, path: Path, topic_id: TopicId, unique: str) -> None:
    """Durable, and empty but for its topic's id. Raises OSError."""
    unborn = path.with_name(name_with(path.name, f".{unique}{UNBORN_SUFFIX}"))
    disk.make_directory(unborn)
    disk.write_atomically(
        unborn / checkpoints.PARTITION_METADATA,
        checkpoints.encode_partition_metadata(topic_id),
        durable=True,
    )
    disk.rename(unborn, path)
    disk.sync_directory(path.parent)
