"""Delete logs and segments some time after they were removed, off the loop."""

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

from tidemark_broker.log.disk import Disk
from tidemark_broker.log.segment_list import SegmentList

LOG_NAME = re.compile(r"^([A-Za-z0-9._-]{1,249})-(\d{1,10})$")
DELETED_SUFFIX = "-delete"
MAX_NAME_BYTES = 255  # NAME_MAX of Linux; a topic's name and a partition's number may fill it


def name_with(name: str, tail: str) -> str:
    """Return a directory name with this tail, shortened to what filesystems allow."""
    return f"{name[: MAX_NAME_BYTES - len(tail)]}{tail}"


def deleted_name(name: str, unique: str) -> str:
    return name_with(name, f".{unique}{DELETED_SUFFIX}")


def delete_removed(
    disk: Disk, directory: Path, retired: Iterable[tuple[Path, SegmentList]], *, before_s: float
) -> int:
    """Delete what was removed before `before_s` (wall clock); return how many entries.

    `retired` has logs some of whose segments were removed. Raises OSError.
    """
    deleted = 0
    for name in disk.list_names(directory):
        if name.endswith(DELETED_SUFFIX) and disk.changed_at_s(directory / name) <= before_s:
            disk.remove_tree(directory / name)
            deleted += 1
    for path, segments in retired:
        with contextlib.suppress(FileNotFoundError):  # renamed meanwhile: it goes with the log
            deleted += _delete_retired_segments(disk, path, segments, before_s)
    return deleted


def _delete_retired_segments(disk: Disk, path: Path, segments: SegmentList, before_s: float) -> int:
    segments.has_retired = False  # first: the loop may retire more meanwhile
    retired = [path / name for name in disk.list_names(path) if name.endswith(".deleted")]
    due = [segment for segment in retired if disk.changed_at_s(segment) <= before_s]
    if len(due) < len(retired):
        segments.has_retired = True
    for segment in due:
        disk.remove(segment)
    return len(due)
