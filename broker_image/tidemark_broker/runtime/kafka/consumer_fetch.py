"""A consumer's fetch of many partitions: one answer when there is enough, or its wait is over.

Each pass reads what is there. Too little: it parks a read at every partition, of its share more of
what is missing, and whichever has that first starts the next pass, at most one a loop tick. A pass
over many partitions takes many turns of the loop, and is not cut short by news.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import LeaderEpoch

from tidemark_broker.runtime.kafka.fetch_sessions import Key
from tidemark_broker.runtime.partitions import FetchResult, Partitions
from tidemark_broker.runtime.results import Consumer
from tidemark_broker.runtime.scheduling import Clock, Scheduler, Timer
from tidemark_broker.wire.fetch import FetchPartition, PartitionAnswer
from tidemark_broker.wire.steps import Steps

MAX_RESPONSE_BYTES = 55 * 1024 * 1024  # Kafka's fetch.max.bytes of a broker
MAX_WAIT_MS = 5 * 60 * 1000

Found = dict[Key, PartitionAnswer]


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """`rack` None: the client is too old to be sent elsewhere."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    rack: str | None


class ConsumerFetch:
    def __init__(
        self,
        partitions: Partitions,
        asked: dict[Key, FetchPartition],
        limits: FetchLimits,
        *,
        scheduler: Scheduler,
        clock: Clock,
        share_bytes: Callable[[], int],
        in_turns: Callable[[Steps[None]], object],
        respond: Callable[[Found], None],
    ) -> None:
        """`respond` is called once, maybe before `start` returns; not after `cancel`.
        `share_bytes`: how much an answer may read now, whatever was asked for. `in_turns` runs a
        pass, a slice at a time, until it ends."""
        self._partitions = partitions
        self._asked = asked
        self._asked_bytes = max(1, min(limits.max_bytes, MAX_RESPONSE_BYTES))
        self._asked_min_bytes = limits.min_bytes
        self._share_bytes = share_bytes
        self._in_turns = in_turns
        self._rack = limits.rack
        self._scheduler = scheduler
        self._clock = clock
        self._deadline_ms = clock() + max(0, min(limits.max_wait_ms, MAX_WAIT_MS))
        self._respond = respond
        self._cancels: list[Callable[[], None]] = []
        self._timer: Timer | None = None
        self._is_passing = False
        self._has_news = False
        self._is_over = False

    def start(self) -> None:
        """One pass; then an answer or a wait."""
        self._is_passing = True
        self._in_turns(self._pass())

    def _pass(self) -> Steps[None]:
        yield from self._read_all()
        self._is_passing = False
        if self._has_news and not self._is_over:
            self._scheduler.call_soon(self._pass_again)

    def _read_all(self) -> Steps[None]:
        found: Found = {}
        read_bytes: dict[Key, int] = {}
        total = 0
        # Who asks for no partition waits for nothing, as Kafka: clients end their sessions so.
        is_final = not self._asked or self._clock() >= self._deadline_ms
        # Who asks for no byte at all is given one batch a time, as by Kafka.
        max_bytes = max(1, min(self._asked_bytes, self._share_bytes()))
        for key, asked in self._asked.items():
            read_bytes[key] = min(max(1, asked.max_bytes), max_bytes - total)
            answer = self._read(key, asked, read_bytes[key])
            found[key] = answer
            total += len(answer.records)
            is_final = is_final or _ends_the_wait(answer)
            yield 1
            if self._is_over:
                return
        missing_bytes = min(self._asked_min_bytes, max_bytes) - total
        if is_final or missing_bytes <= 0:
            self._is_over = True
            self._respond(found)
            return
        # So much more at one partition at least: were it less at each, it would be too little.
        yield from self._park(found, read_bytes, -(-missing_bytes // len(self._asked)))

    def hurry(self) -> None:
        """Its wait is over."""
        self._deadline_ms = self._clock()
        self._wake()

    def cancel(self) -> None:
        self._is_over = True
        self._leave()

    # ---- inside

    def _read(self, key: Key, asked: FetchPartition, max_bytes: int) -> PartitionAnswer:
        topic = self._topic(key)
        if isinstance(topic, ErrorCode):
            return PartitionAnswer(asked.partition, topic)
        if max_bytes <= 0:  # others have filled the answer; every read gives at least one batch
            view = self._partitions.replica(topic, asked.partition)
            if view is not None:
                return PartitionAnswer(
                    asked.partition, ErrorCode.NONE, view.high_watermark, view.log_start_offset
                )
        results: list[FetchResult] = []
        self._partitions.fetch(
            topic,
            asked.partition,
            asked.fetch_offset,
            max_bytes=max_bytes,
            min_bytes=0,
            max_wait_ms=0,
            done=results.append,
            consumer=self._consumer(asked),
        )
        return _answer(asked.partition, results[0])

    def _park(self, found: Found, read_bytes: dict[Key, int], more_bytes: int) -> Steps[None]:
        wait_ms = max(1, self._deadline_ms - self._clock())
        self._timer = self._scheduler.call_later(wait_ms / 1000, self._wake)
        for key, asked in self._asked.items():
            topic = self._topic(key)
            if isinstance(topic, ErrorCode):
                continue
            cancel = self._partitions.fetch(
                topic,
                asked.partition,
                asked.fetch_offset,
                max_bytes=read_bytes[key],
                min_bytes=len(found[key].records) + more_bytes,
                max_wait_ms=wait_ms,
                done=self._wake,
                consumer=self._consumer(asked),
            )
            self._cancels.append(cancel)
            yield 1
            if self._is_over:
                self._leave()
                return

    def _wake(self, news: FetchResult | None = None) -> None:
        """Not from here: this may be the middle of an append."""
        if not self._has_news:
            self._has_news = True
            self._scheduler.call_soon(self._pass_again)

    def _pass_again(self) -> None:
        if self._is_over or self._is_passing or not self._has_news:
            return
        self._has_news = False
        self._leave()
        self.start()

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        cancels, self._cancels = self._cancels, []
        for cancel in cancels:
            cancel()

    def _consumer(self, asked: FetchPartition) -> Consumer:
        return Consumer(self._rack, LeaderEpoch(asked.current_leader_epoch))

    def _topic(self, key: Key) -> str | ErrorCode:
        name, topic_id, _ = key
        if name:
            return name
        topic = self._partitions.metadata.topics_by_id.get(topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        present = self._partitions.metadata.topics.get(topic.topic)
        # guard: topic-id-is-present-one (B12)
        is_replaced = present is None or present.topic_id != topic_id
        return ErrorCode.UNKNOWN_TOPIC_ID if is_replaced else topic.topic


def _ends_the_wait(answer: PartitionAnswer) -> bool:
    return answer.error is not ErrorCode.NONE or answer.preferred_replica >= 0


def _answer(partition: int, result: FetchResult) -> PartitionAnswer:
    return PartitionAnswer(
        partition,
        result.error,
        result.high_watermark,
        result.log_start_offset,
        result.data,
        preferred_replica=result.preferred_replica,
    )
