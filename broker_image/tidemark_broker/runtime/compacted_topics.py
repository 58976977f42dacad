"""What a compacted topic asks of the records that it takes: a key, and a batch that opens here.

Kafka refuses records without keys the same way. What cannot be opened could never be compacted, and
would keep every tombstone behind it for ever (docs/decisions/0013). What is more than
one turn of the broker's loop should open is refused, and so is a record that is dated outside of
64 bits: clients would disagree on when it was; or that is not where it says among the others.
"""

from collections.abc import Iterable

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.runtime.results import ProduceResult
from tidemark_broker.storage.errors import CorruptBatch, UnsupportedCompression
from tidemark_broker.storage.opening import OpeningBudget
from tidemark_broker.storage.record_batch import Batch


def compaction_refusal(batches: Iterable[Batch]) -> ProduceResult | None:
    budget = OpeningBudget()
    for batch in batches:
        try:
            budget.take(batch.header)
            records = budget.records_of(batch.header, batch.data, refuses_odd_times=True)
            for number, record in enumerate(records):
                if record.offset != batch.header.base_offset + number:
                    return ProduceResult(
                        ErrorCode.INVALID_RECORD,
                        message=f"record {number} of the batch says that it is at offset"
                        f" {record.offset} of it: the last one of a key would not be known",
                    )
                if record.key is None:
                    return ProduceResult(
                        ErrorCode.INVALID_RECORD,
                        message=f"record {record.offset} of the batch has no key: a compacted topic"
                        " (cleanup.policy) keeps records by their keys",
                    )
        except UnsupportedCompression as error:
            return ProduceResult(
                ErrorCode.MESSAGE_TOO_LARGE,  # Java's client and kafka-python split the batch then
                message=f"{error}, and the topic is compacted (cleanup.policy): send less in one",
            )
        except CorruptBatch as error:
            return ProduceResult(ErrorCode.INVALID_RECORD, message=str(error))
    return None
