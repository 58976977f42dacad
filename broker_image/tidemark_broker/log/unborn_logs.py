"""Create a log's directory under a name that is never loaded; the rename is its creation."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tidemark_protocol.ids import Offset, TopicId

from tidemark_broker.log import checkpoint_formats
from tidemark_broker.log.disk import Disk
from tidemark_broker.log.recovery import PreviousRun
from tidemark_broker.log.removed import name_with
from tidemark_broker.log.segment import log_path

UNBORN_SUFFIX = "-future"
JUST_MADE = PreviousRun(Offset(0), is_synced=True)  # how such a log is opened


class WantedLog(NamedTuple):
    path: Path
    topic_id: TopicId
    unique: str


def make_log_directories(disk: Disk, wanted: Sequence[WantedLog]) -> None:
    """Create log directories, durable, each with its topic id and an empty segment.

    All are in one directory, so that what needs a sync is synced together. Raises OSError.
    """
    unborn = [
        each.path.with_name(name_with(each.path.name, f".{each.unique}{UNBORN_SUFFIX}"))
        for each in wanted
    ]
    files = [_fill(disk, path, each.topic_id) for path, each in zip(unborn, wanted, strict=True)]
    disk.sync_all(files, unborn)  # an empty segment is its entry in the directory
    for path, each in zip(unborn, wanted, strict=True):
        disk.rename(path, each.path)
    for directory in _in_order(each.path.parent for each in wanted):
        disk.sync_directory(directory)


def _fill(disk: Disk, path: Path, topic_id: TopicId) -> Path:
    """Fill the directory and return the file in it that needs a sync."""
    disk.make_directory(path)
    metadata = path / checkpoint_formats.PARTITION_METADATA
    data = checkpoint_formats.encode_partition_metadata(topic_id)
    disk.write_atomically(metadata, data, durable=False)
    disk.open(log_path(path, Offset(0)), create=True)
    return metadata


def _in_order(directories: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(directories))
