"""Which bytes of a read may be served: whole batches that are what their place in the log says.

On the hot path of every fetch: one look at each header, no CRC, no copy but the last cut. The base
offset and the leader epoch are outside the CRC, so they are checked here against the neighbours and
the epoch cache; what the CRC covers is checked by whoever reads (followers and clients do).
"""

from collections.abc import Container

from tidemark_protocol.ids import Offset

from tidemark_broker.storage.errors import CorruptBatch
from tidemark_broker.storage.leader_epochs import LeaderEpochs
from tidemark_broker.storage.record_batch import HEADER_BYTES, BatchHeader, read_header


def servable_bytes(
    data: bytes,
    *,
    position: int,
    first_offset: Offset,
    end_offset: Offset,
    epochs: LeaderEpochs,
    known_corrupt: Container[Offset],
) -> tuple[int, Offset]:
    """How many bytes of `data`, which begins with the batch based at `first_offset`, and the offset
    after them. Ends before a batch that is cut, or reaches `end_offset`, or is corrupt.

    Raises CorruptBatch, with the position in the file, if that is the first batch.
    """
    end = 0
    expected = first_offset
    while end + HEADER_BYTES <= len(data):
        try:
            header = read_header(data, end)
            _check_place(header, position + end, expected, epochs, known_corrupt)
        except CorruptBatch:
            if end == 0:
                raise
            break
        next_end = end + header.size_bytes
        if header.last_offset >= end_offset or next_end > len(data):
            break
        end = next_end
        expected = header.next_offset
    return end, expected


def _check_place(
    header: BatchHeader,
    position: int,
    expected: Offset,
    epochs: LeaderEpochs,
    known_corrupt: Container[Offset],
) -> None:
    if header.base_offset != expected:
        raise CorruptBatch(position, f"base offset {expected}", f"{header.base_offset}")
    epoch = epochs.epoch_at(expected)
    if header.partition_leader_epoch != epoch:
        found = f"{header.partition_leader_epoch}"
        raise CorruptBatch(position, f"leader epoch {epoch}", found)
    if expected in known_corrupt:
        raise CorruptBatch(position, f"CRC32C {header.crc:08x}", "another one")
