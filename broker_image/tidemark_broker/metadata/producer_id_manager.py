"""Allocate producer ids for clients from a block that is this broker's alone (S5).

Kafka's InitProducerId without a transactional id, for HTTP and the Kafka server. A client that lost
count of its sequences sends the id and epoch that it has, and continues with the same id in the
next epoch: what it sent before and is still under way is fenced then (KIP-360). An id belongs to
one client instance, as in Kafka: nothing here could distinguish two of them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tidemark_protocol.controller_messages import AllocateProducerIdsResponse
from tidemark_protocol.error_codes import ErrorCode

MAX_PRODUCER_ID = 2**63 - 1
MAX_PRODUCER_EPOCH = 2**15 - 1
WAIT_LIMIT_SECONDS = 5.0  # for a block, while the controller changes or is away
FIRST_RETRY_SECONDS = 0.05
MAX_RETRY_SECONDS = 0.5

AskForBlock = Callable[[], Awaitable[AllocateProducerIdsResponse | None]]


@dataclass(frozen=True, slots=True)
class ProducerIdResult:
    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1
    message: str = ""


class ProducerIdManager:
    def __init__(self, ask: AskForBlock) -> None:
        """Create a manager without a block; a None of `ask` means: try again."""
        self._ask = ask
        self._next_id = 0
        self._end_id = 0
        self._asking = asyncio.Lock()

    async def init(self, producer_id: int = -1, producer_epoch: int = -1) -> ProducerIdResult:
        """Return a new id with epoch 0, or the next epoch of an (id, epoch) in use.

        If no epoch is left it is a new id. Errors: INVALID_REQUEST; COORDINATOR_LOAD_IN_PROGRESS:
        try again.
        """
        if producer_id < 0 and producer_epoch < 0:
            return await self._new_id()
        is_known = 0 <= producer_id <= MAX_PRODUCER_ID and 0 <= producer_epoch <= MAX_PRODUCER_EPOCH
        if not is_known:
            return ProducerIdResult(
                ErrorCode.INVALID_REQUEST,
                message="expected a producer id and its epoch, or neither (-1), found "
                f"{producer_id} and {producer_epoch}",
            )
        if producer_epoch == MAX_PRODUCER_EPOCH:
            return await self._new_id()
        return ProducerIdResult(ErrorCode.NONE, producer_id, producer_epoch + 1)

    async def _new_id(self) -> ProducerIdResult:
        try:
            async with asyncio.timeout(WAIT_LIMIT_SECONDS), self._asking:
                if self._next_id == self._end_id:
                    await self._next_block()
                producer_id = self._next_id
                self._next_id += 1
                return ProducerIdResult(ErrorCode.NONE, producer_id, 0)
        except TimeoutError:
            return ProducerIdResult(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                message="this broker received no producer IDs from a controller within"
                f" {WAIT_LIMIT_SECONDS:g} s: retry, or use another broker",
            )

    async def _next_block(self) -> None:
        delay_seconds = FIRST_RETRY_SECONDS
        while True:
            block = await self._ask()
            if block is not None:
                assert block.first_producer_id >= self._end_id and block.count > 0, block  # S5
                self._next_id = block.first_producer_id
                self._end_id = block.first_producer_id + block.count
                return
            await asyncio.sleep(delay_seconds)
            delay_seconds = min(2 * delay_seconds, MAX_RETRY_SECONDS)
