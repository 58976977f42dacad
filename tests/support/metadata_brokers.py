"""Brokers of the rig that keep metadata as real ones do (`MetadataCache`): they say what they hold
above a push, and register again with a fresh report when they are asked to."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from tidemark_broker.metadata.metadata_cache import MetadataCache
from tidemark_protocol.controller_messages import HeartbeatResponse
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import PartitionState

from tests.support.controller_harness import ORDERS, FakeBroker, Harness, evaluate


@dataclass
class MetadataBroker(FakeBroker):
    cache: MetadataCache = field(default_factory=MetadataCache)
    reports_made: int = 0

    def heartbeat(self, **changes: Any) -> "asyncio.Task[HeartbeatResponse]":
        return super().heartbeat(**{"held_epochs": self.cache.held_epochs, **changes})

    def apply(self, response: HeartbeatResponse) -> None:
        super().apply(response)
        if response.push is not None:
            self.cache.apply_push(response.push)

    async def catch_up(self) -> None:
        while True:
            self.poll = self.heartbeat()
            await evaluate()
            if not self.poll.done():
                return
            response = self.poll.result()
            if response.error is ErrorCode.BROKER_ID_NOT_REGISTERED:
                self.reports_made += 1
                await self.register()
            self.apply(response)

    def state(self, partition: int = 0) -> PartitionState:
        return self.cache.partitions[ORDERS, partition]


async def metadata_harness(count: int = 3, **settings: Any) -> Harness:
    harness = await Harness(**settings).start(0)
    for number in range(count):
        broker = MetadataBroker(harness, BrokerId(number), f"{number}-a")
        await broker.register()
        await broker.catch_up()
        harness.brokers.append(broker)
    return harness
