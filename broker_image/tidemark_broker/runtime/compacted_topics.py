"""What a compacted topic asks of the records that it takes: a key, and a batch that opens here.

Kafka refuses records without keys the same way. What cannot be opened could never be compacted, and
would keep every tombstone behind it for ever (docs/decisions/0013). The only place where a produce
looks at records.
"""

from collections.abc import Iterable

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.runtime.results import ProduceResult
from tidemark_broker.storage.errors import CorruptBatch, UnsupportedCompression
from tidemark_broker.storage.record_batch import Batch, read_records


def compaction_refusal(batches: Iterable[Batch]) -> ProduceResult | None:
    for batch in batches:
        try:
            for record in read_records(batch.data):
                if record.key is None:
                    return ProduceResult(
                        ErrorCode.INVALID_RECORD,
                        message=f"record {record.offset} of the batch has no key: a compacted topic"
                        " (cleanup.policy) keeps records by their keys",
                    )
        except UnsupportedCompression as error:
            return ProduceResult(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                message=f"{error}, as the topic is compacted (cleanup.policy)",
            )
        except CorruptBatch as error:
            return ProduceResult(ErrorCode.INVALID_RECORD, message=str(error))
    return None
