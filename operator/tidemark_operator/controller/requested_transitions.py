"""Apply the transitions that heartbeats request, concurrently with their polls.

A transition takes the pool's lock and writes slices, which may take longer than a session while a
large topic is created. The poll that requested it is answered in time all the same (0103); a later
poll of the same broker tells whether it is stored. Of a broker's requests the newest counts,
because each heartbeat repeats everything.
"""

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from tidemark_protocol.controller_messages import CommittedTruncation, HeartbeatRequest
from tidemark_protocol.ids import BrokerEpoch, BrokerId

from tidemark_operator.controller.commands import broker_state
from tidemark_operator.controller.commands.relieve_stalled_leaders import StalledLeaders
from tidemark_operator.controller.core.decision import Deferred
from tidemark_operator.controller.core.eligibility import Replica
from tidemark_operator.controller.core.registration import is_storage_failed
from tidemark_operator.controller.pool_loop import PoolLoop

logger = logging.getLogger(__name__)


class Spawns(Protocol):
    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> object: ...


class RequestedTransitions:
    """The requested transitions of one pool.

    `on_granted` is called when its brokers may be notified.
    """

    def __init__(
        self,
        decisions: PoolLoop,
        stalled_leaders: StalledLeaders,
        tasks: Spawns,
        *,
        on_granted: Callable[[], None],
    ) -> None:
        self._decisions = decisions
        self._stalled_leaders = stalled_leaders
        self._tasks = tasks
        self._on_granted = on_granted
        self._newest: dict[BrokerId, HeartbeatRequest] = {}  # not looked at yet
        self._granting: set[BrokerId] = set()
        self._recorded_truncations: dict[
            tuple[BrokerId, BrokerEpoch], frozenset[CommittedTruncation]
        ] = {}

    def note(self, request: HeartbeatRequest) -> bool:
        """Record a heartbeat of the registered epoch; return whether it requests a transition.

        Raises NotController.
        """
        is_stalled = not request.storage_failed and self._stalled_leaders.note(request)
        broker_id = request.broker_id
        if not (is_stalled or self._has_any(request)):
            self._newest.pop(broker_id, None)  # what it asked before it asks no more
            return False
        self._newest[broker_id] = request
        if broker_id not in self._granting:
            self._tasks.spawn(self._grant(broker_id), f"transitions of broker {broker_id}")
            self._granting.add(broker_id)
        return True

    def are_cuts_recorded(self, request: HeartbeatRequest) -> bool:
        if not request.committed_cuts:
            return False
        recorded = self._recorded_truncations.get(
            (request.broker_id, request.broker_epoch), frozenset()
        )
        return recorded.issuperset(request.committed_cuts)

    def _has_any(self, request: HeartbeatRequest) -> bool:
        record = self._decisions.state.brokers[request.broker_id]
        notes = self._decisions.state.soft_state_of(request.broker_id)
        return (
            (request.storage_failed and not is_storage_failed(record))
            or (bool(request.committed_cuts) and not self.are_cuts_recorded(request))
            or notes.failed_replicas != notes.evaluated_failures
            or (request.wants_to_stop and record.is_live and notes.drained_at_version is None)
            or (request.wants_to_serve and not request.wants_to_stop and not record.is_live)
        )

    async def _grant(self, broker_id: BrokerId) -> None:
        try:
            while (request := self._newest.pop(broker_id, None)) is not None:
                await self._grant_newest(request)
                self._on_granted()
        finally:
            self._granting.discard(broker_id)

    async def _grant_newest(self, request: HeartbeatRequest) -> None:
        """Apply a broker's newest request.

        The next heartbeat repeats one that cannot be stored now. Raises Deposed.
        """
        try:
            await self._decide(request)
        except Deferred as error:
            logger.warning(
                "requested transition deferred",
                extra={"broker_id": request.broker_id, "error": str(error)},
            )

    async def _decide(self, request: HeartbeatRequest) -> None:
        decisions = self._decisions
        broker_id, broker_epoch = request.broker_id, request.broker_epoch
        if request.committed_cuts and not self.are_cuts_recorded(request):
            await self._record_truncations(request)
        if request.storage_failed:
            await decisions.run(broker_state.fail_storage, broker_id, broker_epoch)
            return
        if decisions.current(broker_id, broker_epoch) is None:
            return
        notes = decisions.state.soft_state_of(broker_id)
        if notes.failed_replicas != notes.evaluated_failures:
            await decisions.run(broker_state.evaluate_failures, broker_id, broker_epoch)
        record = decisions.current(broker_id, broker_epoch)
        if record is None or request.number < notes.heartbeat:
            return  # a later heartbeat says what is wished
        if request.wants_to_stop:
            if record.is_live and notes.drained_at_version is None:
                await decisions.drain(broker_id, broker_epoch)
        elif request.wants_to_serve and not record.is_live:
            await decisions.activate(broker_id, broker_epoch)
        if notes.is_write_stalled:
            outcome_unknown = decisions.slice_store.outcome_unknown
            await decisions.run(self._stalled_leaders.move_leaders_off, outcome_unknown)

    async def _record_truncations(self, request: HeartbeatRequest) -> None:
        """Store reported truncations.

        If that is deferred the broker reports them again, because no response says otherwise.
        """
        truncations, key = request.committed_cuts, (request.broker_id, request.broker_epoch)
        if await self._decisions.run(broker_state.record_truncations, truncations):
            for previous in [each for each in self._recorded_truncations if each[0] == key[0]]:
                if previous != key:
                    del self._recorded_truncations[previous]
            self._recorded_truncations[key] = self._recorded_truncations.get(
                key, frozenset()
            ).union(truncations)


def failed_replicas(request: HeartbeatRequest) -> frozenset[Replica]:
    return frozenset((report.topic_id, report.partition) for report in request.failed_replicas)
