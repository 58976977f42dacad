"""Handle heartbeats of one pool: long polls, suspicion and probes, sessions, shutdowns.

Transitions that a heartbeat requests are applied concurrently (requested_transitions.py). A poll is
answered at the heartbeat interval, or immediately when this broker's image changed, when it may
stop, or when a newer poll of the same broker arrived. It waits for no write and for no lock: until
it is answered a broker sends nothing, and would be silent through no fault of its own.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Protocol
from uuid import UUID

from tidemark_protocol.controller_messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    RegisterRequest,
    RegisterResponse,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, ControllerEpoch

from tidemark_operator.api.broker import BrokerRecord
from tidemark_operator.controller.announcements import Announcements
from tidemark_operator.controller.commands.relieve_stalled_leaders import StalledLeaders
from tidemark_operator.controller.core.broker_soft_state import BrokerSoftState
from tidemark_operator.controller.core.decision import Deferred
from tidemark_operator.controller.core.disk_use import DiskUse
from tidemark_operator.controller.core.own_stall import OwnStall
from tidemark_operator.controller.core.registration import is_of_before, is_storage_failed
from tidemark_operator.controller.core.sessions import Expiry
from tidemark_operator.controller.core.settings import ControllerSettings
from tidemark_operator.controller.core.timeline import (
    BrokerChanged,
    BrokerTurn,
    ControllerTookOver,
)
from tidemark_operator.controller.core.views import StateChange
from tidemark_operator.controller.long_polls import LongPoll, LongPolls
from tidemark_operator.controller.pool_loop import PoolLoop
from tidemark_operator.controller.probe import Probe, ProbeVerdict
from tidemark_operator.controller.requested_transitions import RequestedTransitions, failed_replicas
from tidemark_operator.store.object_store import ObjectStore

logger = logging.getLogger(__name__)

# Between probes of one suspicion: the first ones may meet a process that is just dying.
FIRST_PROBE_PAUSE_MS = 10
PROBE_PAUSE_MS = 100


class Tasks(Protocol):
    """The tasks of a controller, which end whatever becomes of their caller."""

    async def decide(self, decision: Coroutine[Any, Any, None]) -> None: ...

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> object: ...


@dataclass(frozen=True, slots=True)
class PoolEnvironment:
    """The parts that all pools of one controller share."""

    store: ObjectStore
    settings: ControllerSettings
    now_ms: Callable[[], int]
    wall_clock_ms: Callable[[], int]
    probe: Probe
    tasks: Tasks
    on_change: Callable[[StateChange], None]
    new_uuid: Callable[[], UUID]


class Heartbeats:
    def __init__(
        self, pool: str, controller_epoch: ControllerEpoch, environment: PoolEnvironment
    ) -> None:
        self.decisions = PoolLoop(
            pool,
            controller_epoch,
            environment.store,
            settings=environment.settings,
            now_ms=environment.now_ms,
            wall_clock_ms=environment.wall_clock_ms,
            announcements=Announcements(self.response_ready, environment.on_change),
            new_uuid=environment.new_uuid,
        )
        self._stalled_leaders = StalledLeaders(
            self.decisions.state,
            now_ms=environment.now_ms,
            stall_limit_ms=environment.settings.write_stall_limit_ms,
        )
        self._requested_transitions = RequestedTransitions(
            self.decisions,
            self._stalled_leaders,
            environment.tasks,
            on_granted=self.response_ready,
        )
        self.polls = LongPolls()
        self.silence = ""  # of more than half of the pool, and whose (S18)
        self._own_stall = OwnStall(environment.settings.tick_interval_ms)
        self._settings = environment.settings
        self._now_ms = environment.now_ms
        self._wall_clock_ms = environment.wall_clock_ms
        self._probe = environment.probe
        self._tasks = environment.tasks
        self._probed: set[BrokerId] = set()
        self._pushed_to: set[tuple[BrokerId, str]] = set()  # with their incarnations
        self._stopped_at: str | None = None

    def start(self, now_ms: int, *, is_second_opinion: bool) -> None:
        """Give each live broker one full session after a takeover."""
        self._own_stall.begin(now_ms)
        live = [r.broker_id for r in self.decisions.state.brokers.values() if r.is_live]
        self.decisions.sessions.grant_all(live, now_ms, is_second_opinion=is_second_opinion)
        self.decisions.image.set_brokers(self.decisions.state.broker_states())
        state = self.decisions.state
        state.timeline.record(
            ControllerTookOver(
                state.controller_epoch,
                len(state.brokers),
                state.slices.partition_count,
                is_second_opinion,
            )
        )

    def stop(self, leader_address: str) -> None:
        self._stopped_at = leader_address
        now_ms = self._now_ms()
        for poll in self.polls.opened():
            self.polls.answer(poll, self._not_controller(), now_ms)

    def tick(self, now_ms: int) -> None:
        sessions, state = self.decisions.sessions, self.decisions.state
        stall_ms = self._own_stall.tick(now_ms)
        if stall_ms:
            sessions.extend(stall_ms, now_ms)
            self.polls.extend(stall_ms, now_ms)
        state.observations.leaderless.tick(now_ms)
        state.observations.planned_restarts.evaluate(
            state.brokers, state.slices.is_in_sync_everywhere, now_ms
        )
        expiry = sessions.expire(now_ms, pool_size=len(state.brokers))
        self._record_silence(expiry)
        if expiry.expired:
            lives = [(i, state.brokers[i].broker_epoch) for i in expiry.expired]
            fencing = self.decisions.fence(lives, "session timeout", expiry.silence_ms)
            self._tasks.spawn(fencing, f"fence {state.pool}")
        if self.decisions.is_dirty and not self.decisions.lock.is_wanted_alone():
            self._tasks.spawn(self.decisions.evaluate_again(), f"settle {state.pool}")
        if self.decisions.is_sweep_due and not self.decisions.lock.is_wanted_alone():
            self._tasks.spawn(self.decisions.sweep(), f"deletions {state.pool}")
        for poll in self.polls.opened():
            if now_ms >= poll.deadline_ms:
                self._answer(poll, self._response(poll), now_ms)
        self.response_ready()

    def _record_silence(self, expiry: Expiry) -> None:
        previous, self.silence = self.silence, self._silence_of(expiry)
        if self.silence and not previous:
            logger.error(
                "no heartbeat from more than half of the brokers, stepping down",
                extra={"pool": self.decisions.state.pool, "silence_ms": dict(expiry.held_back)},
            )

    def _silence_of(self, expiry: Expiry) -> str:
        if not expiry.held_back:
            return ""
        each = ", ".join(f"broker {i} for {ms / 1000:.1f} s" for i, ms in expiry.held_back)
        return (
            f"pool {self.decisions.state.pool}: no heartbeat from more than half of the"
            f" brokers: {each}"
        )

    async def register(self, request: RegisterRequest) -> RegisterResponse:
        """Register a broker process.

        Deferred while the request looks like one of a process that died before the registered one,
        and the poll of that one is open. A living process asks again.
        """
        stored = self.decisions.state.brokers.get(request.broker_id)
        if stored is not None and is_of_before(request, stored) and self._polls(stored):
            text = (
                f"broker {stored.broker_id}: broker epoch {stored.broker_epoch} has a live"
                " session: register again"
            )
            return RegisterResponse(ErrorCode.REQUEST_TIMED_OUT, text)
        return await self.decisions.register(request)

    def _polls(self, record: BrokerRecord) -> bool:
        return record.is_live and not self.polls.is_closed(record.broker_id, self._heard_until_ms())

    def _heard_until_ms(self) -> int:
        """Return the time up to which brokers were heard; later messages may wait unread (S21)."""
        now_ms = self._now_ms()
        return now_ms - self._own_stall.late_ms(now_ms)

    def has_applied_anothers_push(self, request: HeartbeatRequest) -> bool:
        """Return whether the broker applied a push of our controller epoch that we did not send."""
        return (
            request.applied_controller_epoch == self.decisions.state.controller_epoch
            and (request.broker_id, request.incarnation) not in self._pushed_to
        )

    # guard: heartbeat-waits-for-no-write (S21)
    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        rejection = await self._check_again(request) or self._check(request)
        if rejection is not None:
            return rejection
        broker_id = request.broker_id
        for suspected in request.suspects[: len(self.decisions.state.brokers)]:
            self.suspect(suspected, f"reported by broker {broker_id}")
        if self._is_superseded_poll(request):
            return HeartbeatResponse(ErrorCode.NONE)  # the newer one says what is true and wished
        self.decisions.state.soft_state_of(broker_id).heartbeat = request.number
        is_reported_to_stop = self.decisions.state.soft_state_of(broker_id).was_reported_to_stop
        if self.decisions.state.brokers[broker_id].is_live and not is_reported_to_stop:
            self.decisions.sessions.contact(broker_id, self._now_ms())
        self._record_applied(request)
        if request.sent_at_ms:
            skew_ms = request.sent_at_ms - self._wall_clock_ms()
            skews = self.decisions.state.observations.clock_skews
            skews.note(broker_id, skew_ms, self._now_ms())
        if request.disk_size_bytes > 0:
            disk = DiskUse(request.disk_free_bytes, request.disk_size_bytes)
            self.decisions.state.soft_state_of(broker_id).disk = disk
        poll = LongPoll(
            request,
            self._now_ms() + self._settings.heartbeat_interval_ms,
            asyncio.get_running_loop().create_future(),
        )
        older = self.polls.open(poll)
        if older is not None:
            response = replace(self._response(older), push=None)  # the newer poll brings it
            self.polls.answer(older, response, self._now_ms())
        try:
            if not self._requested_transitions.note(request):
                self.response_ready()  # else once they are granted, or at the poll's deadline
            return await poll.answer
        except BaseException as error:
            if self.polls.record_broken(poll) and isinstance(error, asyncio.CancelledError):
                self.suspect(broker_id, "heartbeat connection closed")
            raise

    def _is_superseded_poll(self, request: HeartbeatRequest) -> bool:
        """Return whether a later heartbeat of the same process arrived, whose requests count."""
        return request.number < self.decisions.state.soft_state_of(request.broker_id).heartbeat

    def _record_applied(self, request: HeartbeatRequest) -> None:
        """Record what the broker applied, what it holds above that, and its failed replicas.

        They are one statement (S9, S17): a decision that relies on a broker's report knows all
        three.
        """
        if request.storage_failed:
            return  # whatever it says that it applied may not be on its disk
        state = self.decisions.state
        had_heard = state.applied_version(request.broker_id) >= 0
        notes = state.soft_state_of(request.broker_id)
        notes.applied_controller_epoch = request.applied_controller_epoch
        notes.applied_version = request.applied_image_version
        notes.failed_replicas = failed_replicas(request)
        if not notes.evaluated_failures <= notes.failed_replicas:
            # What failed no more may come in sync, and fail again before that is looked at.
            notes.evaluated_failures &= notes.failed_replicas
            self.decisions.is_dirty = True
        self.decisions.record_reported_epochs(request.held_epochs)
        applied, unannounced = state.applied_version(request.broker_id), notes.unannounced_replicas
        image = self.decisions.image
        notes.unannounced_replicas = frozenset(
            r for r in unannounced if not image.is_reported(*r, applied)
        )
        if (not had_heard and applied >= 0) or notes.unannounced_replicas != unannounced:
            self.decisions.is_dirty = True  # elections may have waited for just this

    # guard: suspect-is-probed (L1)
    def suspect(self, broker_id: BrokerId, reason: str) -> None:
        record = self.decisions.state.brokers.get(broker_id)
        if record is None or not record.is_live or broker_id in self._probed:
            return
        self._probed.add(broker_id)
        silence_ms = self.decisions.sessions.silence_ms(broker_id, self._now_ms())
        self.decisions.state.timeline.record(
            BrokerChanged(BrokerTurn.SUSPECTED, broker_id, record.broker_epoch, reason, silence_ms)
        )
        self._tasks.spawn(self._probe_until_clear(record, reason), f"probe broker {broker_id}")

    def response_ready(self) -> None:
        """Answer each open poll for which there is something new."""
        if self._stopped_at is not None:
            return
        now_ms = self._now_ms()
        for poll in self.polls.opened():
            response = self._response(poll)
            may_stop_is_news = (
                response.may_stop
                and not self.decisions.state.soft_state_of(poll.broker_id).was_reported_to_stop
            )
            if response.push is not None or may_stop_is_news or response.error:
                self._answer(poll, response, now_ms)

    def _answer(self, poll: LongPoll, response: HeartbeatResponse, now_ms: int) -> None:
        if response.may_stop:
            self._record_allowed_to_stop(poll)
        if response.push is not None:
            record = self.decisions.state.brokers[poll.broker_id]
            self._pushed_to.add((poll.broker_id, record.incarnation))
            notes = self.decisions.state.soft_state_of(poll.broker_id)
            if response.push.is_full and notes.report_version < 0:
                notes.unannounced_replicas |= self.decisions.image.withheld()
        self.polls.answer(poll, response, now_ms)

    def _record_allowed_to_stop(self, poll: LongPoll) -> None:
        """End the session of a broker that leads nothing and is in no ISR."""
        self.decisions.state.soft_state_of(poll.broker_id).was_reported_to_stop = True
        if self.decisions.state.brokers[poll.broker_id].is_live:
            self.decisions.sessions.end(poll.broker_id)
            life = (poll.broker_id, poll.broker_epoch)
            self._tasks.spawn(
                self.decisions.fence([life], "controlled shutdown"), f"fence {poll.broker_id}"
            )

    def _check(self, request: HeartbeatRequest) -> HeartbeatResponse | None:
        epoch = self.decisions.state.controller_epoch
        if self._stopped_at is not None:
            return self._not_controller()
        record = self.decisions.state.brokers.get(request.broker_id)
        if record is None:
            return HeartbeatResponse(
                ErrorCode.BROKER_ID_NOT_REGISTERED, "register first", controller_epoch=epoch
            )
        if (record.broker_epoch, record.incarnation) != (
            request.broker_epoch,
            request.incarnation,
        ):
            return HeartbeatResponse(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {request.broker_id}: expected broker epoch {record.broker_epoch},"
                f" found {request.broker_epoch}: another process has registered with this"
                " broker ID",
                epoch,
            )
        return None

    async def _check_again(self, request: HeartbeatRequest) -> HeartbeatResponse | None:
        """Read a broker's stored record if it has a later epoch than we know.

        A deposed controller may have stored it after we had read; it is no earlier epoch then.
        Epochs are sent only once they are stored. Returns None if we know all that is stored.
        Raises Deposed.
        """
        record = self.decisions.state.brokers.get(request.broker_id)
        is_later = record is not None and record.broker_epoch < request.broker_epoch
        if not is_later or self._stopped_at is not None:
            return None
        try:
            async with asyncio.timeout(self._settings.heartbeat_interval_ms / 1000):
                await self._tasks.decide(self.decisions.confirm(request.broker_id))
        except (Deferred, TimeoutError) as error:
            epoch = self.decisions.state.controller_epoch
            text = f"{error or 'the Broker object is being read'}: retry"
            return HeartbeatResponse(ErrorCode.REQUEST_TIMED_OUT, text, epoch)
        return None

    def _response(self, poll: LongPoll) -> HeartbeatResponse:
        state = self.decisions.state
        record = state.brokers.get(poll.broker_id)
        if record is None or record.broker_epoch != poll.broker_epoch:
            return HeartbeatResponse(
                ErrorCode.STALE_BROKER_EPOCH,
                "another process has registered with this broker ID",
                state.controller_epoch,
            )
        notes = state.soft_state_of(poll.broker_id)
        push = self.decisions.image.push_for(notes.applied_controller_epoch, poll.applied_version)
        may_ask = push is None and record.is_live and not record.is_stopping
        if may_ask and state.wants_report_from(poll.broker_id):
            return HeartbeatResponse(
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                "register again: a partition without a leader needs a new report of the logs",
                state.controller_epoch,
            )
        return HeartbeatResponse(
            ErrorCode.NONE,
            controller_epoch=state.controller_epoch,
            is_fenced=not record.is_live,
            may_stop=poll.wants_to_stop and self._may_stop(record),
            is_storage_failure_recorded=is_storage_failed(record),
            are_cuts_recorded=self._requested_transitions.are_cuts_recorded(poll.request),
            are_failures_settled=_are_failures_evaluated(poll, notes),
            push=push,
        )

    def _may_stop(self, record: BrokerRecord) -> bool:
        state = self.decisions.state
        notes = state.soft_state_of(record.broker_id)
        if not record.is_live:
            return True  # it leads nothing and is in no ISR already
        if notes.drained_at_version is None:
            return False
        if self._now_ms() - notes.drained_at_ms >= self._settings.stop_acknowledgement_ms:
            return True
        return all(
            other.applied_controller_epoch == state.controller_epoch
            and other.applied_version >= notes.drained_at_version
            for other in (state.soft_state_of(i) for i, r in state.brokers.items() if r.is_live)
        )

    async def _probe_until_clear(self, suspected: BrokerRecord, reason: str) -> None:
        """Probe a suspected broker until it answers, polls, is fenced, or its session expires."""
        broker_id, broker_epoch = suspected.broker_id, suspected.broker_epoch
        deadline_ms = self._now_ms() + self._settings.session_timeout_ms
        pause_ms = FIRST_PROBE_PAUSE_MS
        try:
            while self._now_ms() < deadline_ms:
                verdict = await self._probe(
                    self.decisions.state.pool,
                    broker_id,
                    suspected.endpoints,
                    suspected.incarnation,
                )
                record = self.decisions.state.brokers.get(broker_id)
                if record is None or record.broker_epoch != broker_epoch or not record.is_live:
                    return
                is_closed = self.polls.is_closed(broker_id, self._heard_until_ms())
                logger.info(
                    "broker probed",
                    extra={
                        "broker_id": broker_id,
                        "broker_epoch": broker_epoch,
                        "reason": reason,
                        "verdict": verdict.value,
                        "poll_closed": is_closed,
                    },
                )
                if verdict is ProbeVerdict.REFUSED and is_closed:  # S19
                    silence_ms = self.decisions.sessions.silence_ms(broker_id, self._now_ms())
                    self.decisions.sessions.end(broker_id)  # it is dead rather than silent
                    await self.decisions.fence(
                        [(broker_id, broker_epoch)],
                        f"{reason}, probe rejected",
                        {} if silence_ms is None else {broker_id: silence_ms},
                    )
                    return
                if verdict is ProbeVerdict.ALIVE or self.polls.of(broker_id) is not None:
                    return
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, PROBE_PAUSE_MS)
        finally:
            self._probed.discard(broker_id)

    def _not_controller(self) -> HeartbeatResponse:
        return HeartbeatResponse(
            ErrorCode.NOT_CONTROLLER, controller_address=self._stopped_at or ""
        )


# guard: failure-settled-once-stored (S9)
def _are_failures_evaluated(poll: LongPoll, notes: BrokerSoftState) -> bool:
    """Return whether the failed replicas that the poll reports are stored (S9).

    A later heartbeat may have the poll answered before that.
    """
    return failed_replicas(poll.request) <= notes.evaluated_failures
