"""What tests and people compare replicas by: a digest of all that one holds, read from its disk."""

import asyncio
import hashlib

from tidemark_protocol.ids import Offset

from tidemark_broker.runtime.damaged_replicas import DamagedReplicas
from tidemark_broker.runtime.hosted_replica import HostedReplica
from tidemark_broker.storage.errors import CorruptBatch
from tidemark_broker.storage.record_batch import read_header

STEP_BYTES = 1024 * 1024


async def sha256_of(replica: HostedReplica, to_offset: int, damaged: DamagedReplicas) -> str:
    """Hex, of the batches from log start that end below `to_offset`. Raises CorruptBatch, which is
    noted then."""
    log = replica.log
    digest = hashlib.sha256()
    offset = log.log_start_offset
    end = Offset(min(to_offset, log.log_end_offset))
    while offset < end:
        try:
            data = log.read(offset, max_bytes=STEP_BYTES, end_offset=end)
        except CorruptBatch as error:
            damaged.note(replica, offset, error, "digest")
            raise
        if not data:
            break
        digest.update(data)
        position = 0
        while position < len(data):
            header = read_header(data, position)
            offset = header.next_offset
            position += header.size_bytes
        await asyncio.sleep(0)  # let others run between steps
    return digest.hexdigest()
