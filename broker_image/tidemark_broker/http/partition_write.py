"""Write one partition's records of a produce request, wait for the result, and report it.

An error before `produce` returned was decided before any append, so it means not_written. A later
one (leadership lost, the wait given up) means that the records are in this log and may yet be
committed: unknown. Never the other way round.
"""

from collections.abc import Sequence

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.partition_state import TopicState

from tidemark_broker.http import leadership
from tidemark_broker.http.broker_view import BrokerView
from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.pending import Pending
from tidemark_broker.http.problems import HttpProblem, Outcome, kind_of
from tidemark_broker.http.produce_bodies import ProducedRecord, ProducerStamp
from tidemark_broker.http.produce_results import (
    NOT_THE_REASON,
    RecordResult,
    Written,
    failed,
    failed_as,
    record_errors_of,
)
from tidemark_broker.http.queries import ProduceQuery
from tidemark_broker.http.record_batches import (
    NO_PRODUCER,
    RecordTooLarge,
    SpansSeveralBatches,
    build_batches,
)
from tidemark_broker.http.request import Request
from tidemark_broker.replication.replica_manager import ProduceResult

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588  # Kafka's max.message.bytes
WATCH_AFTER_SECONDS = 1.0


class PartitionWrite:
    def __init__(
        self, view: BrokerView, request: Request, topic: TopicState, partition: int
    ) -> None:
        self._view = view
        self._request = request
        self._topic = topic
        self._partition = partition
        self._pending: Pending[ProduceResult] = Pending()
        self._count = 0
        self._rejection: HttpProblem | None = None
        self._record_errors: Sequence[tuple[int, str]] = ()

    async def start(
        self,
        records: Sequence[ProducedRecord],
        query: ProduceQuery,
        now_ms: int,
        producer: ProducerStamp | None = None,
    ) -> None:
        self._count = len(records)
        config = self._topic.config.get("max.message.bytes", "")
        batch_bytes = int(config) if config.isdecimal() else DEFAULT_MAX_MESSAGE_BYTES
        try:
            batches = await build_batches(
                records,
                now_ms=now_ms,
                batch_bytes=batch_bytes,
                producer=producer or NO_PRODUCER,
            )
        except RecordTooLarge as error:
            self._record_errors = ((error.position, error.message),)
            self._rejection = HttpProblem(
                ErrorCode.MESSAGE_TOO_LARGE,
                str(error),
                members=record_errors_of(self._record_errors),
            )
            return
        except SpansSeveralBatches as error:
            self._rejection = HttpProblem(ErrorCode.MESSAGE_TOO_LARGE, str(error))
            return
        self.append(memoryview(batches), query)

    def base_offset(self) -> int:
        """Return the offset of the first record written; -1: unknown (acks=0)."""
        assert self._pending.result is not None
        return self._pending.result.base_offset

    def append(self, batches: memoryview, query: ProduceQuery) -> None:
        """Append record batches unchanged; their headers are checked, as from Kafka clients."""
        self._view.partitions.produce(
            self._topic.topic,
            self._partition,
            batches,
            acks=query.acks,
            timeout_ms=query.timeout_ms,
            done=self._pending.done,
        )
        self._pending.prepare()

    async def wait(self, query: ProduceQuery, limits: HttpLimits) -> None:
        """Wait for the result, at most the timeout and a grace period.

        Raises ClientGone.
        """
        if self._rejection is None and self._pending.result is None:
            await self._pending.wait(
                self._request.receive,
                seconds=query.timeout_ms / 1000 + limits.response_grace_seconds,
                patience_seconds=WATCH_AFTER_SECONDS,
            )

    def problem(self) -> HttpProblem | None:
        if self._rejection is not None:
            return self._rejection
        result = self._pending.result
        if result is None:
            return self._failure(
                ErrorCode.REQUEST_TIMED_OUT, "no acknowledgement within timeout_ms"
            )
        if result.error is ErrorCode.NONE:
            return None
        self._record_errors = result.record_errors
        return self._failure(result.error, result.message)

    def results(self) -> list[RecordResult]:
        problem = self.problem()
        if problem is not None:
            return self._failed(problem)
        assert self._pending.result is not None
        base_offset = self._pending.result.base_offset
        if base_offset < 0:  # acks=0: nothing is known of the offsets
            return [Written(self._partition, -1)] * self._count
        return [
            Written(self._partition, offset)
            for offset in range(base_offset, base_offset + self._count)
        ]

    def _failed(self, problem: HttpProblem) -> list[RecordResult]:
        if not self._record_errors:
            return [failed_as(self._partition, problem)] * self._count
        other = failed(self._partition, problem.error, NOT_THE_REASON, problem.outcome)
        found: list[RecordResult] = [other] * self._count
        for position, message in self._record_errors:
            found[position] = failed(self._partition, problem.error, message, problem.outcome)
        return found

    def _failure(self, error: ErrorCode, message: str) -> HttpProblem:
        result = self._pending.result
        was_appended = self._pending.is_late or (result is not None and result.base_offset >= 0)
        name, view = self._topic.topic, self._view
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and not was_appended:
            return leadership.not_leader(
                view.partitions.metadata, view.broker_id, self._request, name, self._partition
            )
        kind = kind_of(error)
        detail = f"partition {name}-{self._partition}: {message or kind.title}"
        if result is not None and result.is_out_of_space:
            return HttpProblem(error, detail, status=507, outcome=Outcome.NOT_WRITTEN)
        # Late and unknown by the table: unknown. NOT_ENOUGH_REPLICAS is by definition before.
        is_known = kind.outcome is Outcome.NOT_WRITTEN and (
            not was_appended or error is ErrorCode.NOT_ENOUGH_REPLICAS
        )
        if is_known:
            return HttpProblem(error, detail, members=record_errors_of(self._record_errors))
        status = 500 if kind.status == 503 else 0
        return HttpProblem(error, detail, status=status, outcome=Outcome.UNKNOWN)
