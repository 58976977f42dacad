"""What a compacted topic asks of the records that it takes: a key, and a batch that opens here.

Kafka refuses records without keys the same way. What cannot be opened could never be compacted, and
would keep every tombstone behind it for ever (docs/decisions/0013). What is more than
one turn of the broker's loop should open is refused, and so is a record that is dated outside of
64 bits: clients would disagree on when it was; or that is not where it says among the others.
"""

from collections.abc import Iterable

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

from tidemark_broker.runtime.record_errors import records_refused
from tidemark_broker.runtime.results import ProduceResult, RecordError
from tidemark_broker.storage.errors import CorruptBatch, UnsupportedCompression
from tidemark_broker.storage.opening import OpeningBudget
from tidemark_broker.storage.record_batch import Batch

_HINT = "a compacted topic (cleanup.policy) keeps records by their keys"


def compaction_refusal(batches: Iterable[Batch]) -> ProduceResult | None:
    budget = OpeningBudget()
    found: list[RecordError] = []
    first_index = 0
    for batch in batches:
        try:
            budget.take(batch.header)
            records = budget.records_of(batch.header, batch.data, refuses_odd_times=True)
            for number, record in enumerate(records):
                if record.offset != batch.header.base_offset + number:
                    found.append(RecordError(first_index + number, _misplaced(record.offset)))
                elif record.key is None:
                    found.append(RecordError(first_index + number, "it has no key"))
        except UnsupportedCompression as error:
            return ProduceResult(
                ErrorCode.MESSAGE_TOO_LARGE,  # Java's client and kafka-python split the batch then
                message=f"{error}, and the topic is compacted (cleanup.policy): send less in one",
            )
        except CorruptBatch as error:
            return ProduceResult(ErrorCode.INVALID_RECORD, message=str(error))
        first_index += batch.header.record_count
    return records_refused(ErrorCode.INVALID_RECORD, found, _HINT) if found else None


def _misplaced(offset: Offset) -> str:
    return f"it says that it is at offset {offset}: the last one of a key would not be known"
