"""What was removed from a broker's volume and is deleted later, off the loop: logs and segments."""

import re
from pathlib import Path

from tidemark_broker.storage.disk import Disk

LOG_NAME = re.compile(r"^([A-Za-z0-9._-]{1,249})-(\d{1,10})$")
DELETED_SUFFIX = "-delete"
MAX_NAME_BYTES = 255  # NAME_MAX of Linux; a topic's name and a partition's number may fill it


def name_with(name: str, tail: str) -> str:
    """Another name for that directory; the tail is what makes it another, and what is read."""
    return f"{name[: MAX_NAME_BYTES - len(tail)]}{tail}"


def deleted_name(name: str, unique: str) -> str:
    return name_with(name, f".{unique}{DELETED_SUFFIX}")


def delete_removed(disk: Disk, directory: Path, *, before_s: float) -> int:
    """Of what was removed before that, wall clock. Entries deleted. Raises OSError."""
    deleted = 0
    for name in disk.list_names(directory):
        path = directory / name
        try:
            if name.endswith(DELETED_SUFFIX):
                if disk.changed_at_s(path) <= before_s:
                    disk.remove_tree(path)
                    deleted += 1
            elif LOG_NAME.match(name) and disk.is_directory(path):
                deleted += _delete_retired_segments(disk, path, before_s)
        except FileNotFoundError:
            continue  # renamed by the loop meanwhile: the next pass finds it
    return deleted


def _delete_retired_segments(disk: Disk, path: Path, before_s: float) -> int:
    retired = [path / name for name in disk.list_names(path) if name.endswith(".deleted")]
    due = [segment for segment in retired if disk.changed_at_s(segment) <= before_s]
    for segment in due:
        disk.remove(segment)
    return len(due)
