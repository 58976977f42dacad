"""What a sync may have lost is written once more (S8).

When the kernel fails to write a page back it tells one sync so, and keeps the page as if it were
on the disk: processes read it, later syncs succeed, and a power loss takes it. The broker that
hears of it ends without a stop proof. The next one reads the same pages, and would vouch with its
own syncs for what was never written. Only a stop proof says that no sync had failed: a boot stamp
may have stayed. So every start without one writes all past the recovery point again, before it
reads it, and the first sync of its life covers it (decision 0065).
"""

import re
from itertools import pairwise
from pathlib import Path

from tidemark_protocol.ids import Offset

from tidemark_broker.storage.disk import Disk, DiskFile
from tidemark_broker.storage.segment import SCAN_BYTES, log_path

_SEGMENT_NAME = re.compile(r"^(\d{20})\.log$")
_END_OF_OFFSETS = Offset(2**63)


def write_again(disk: Disk, directory: Path, recovery_point: Offset) -> None:
    """Every segment that may hold something at or past the recovery point. Raises OSError."""
    bases = sorted(
        Offset(int(match[1]))
        for name in disk.list_names(directory)
        if (match := _SEGMENT_NAME.match(name))
    )
    for base_offset, next_base in pairwise([*bases, _END_OF_OFFSETS]):
        if next_base > recovery_point:
            _write_file_again(disk.open(log_path(directory, base_offset)))


def _write_file_again(file: DiskFile) -> None:
    """In place and the same bytes, so that a kill in between changes nothing."""
    position = 0
    while data := file.read_at(position, SCAN_BYTES):
        position += file.write_at(position, [data])
