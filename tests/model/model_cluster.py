"""Three machines, their processes, a controller and what is on the wire between them: one value.

A world is copied, moved by one named move, and compared by its key. Moves are what transcripts are
written in and what the exhaustive search tries; each is one atomic step of production cores, and a
message that is not delayed arrives at once (delays are moves of their own, which cost a fault).
"""

from collections.abc import Hashable, Iterable

from tidemark_broker.replication.core.effects import (
    DivergingEpoch,
    LeaderResponse,
    RejectFetch,
    ReplicaFetch,
)
from tidemark_operator.api.broker import BrokerControlState
from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.api.unclean_election import UncleanCause
from tidemark_operator.controller.core.registration import Accepted
from tidemark_protocol.controller_messages import ReplicaReport
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset

from tests.model.in_flight import (
    FetchInFlight,
    InFlight,
    ProposalInFlight,
    ResponseInFlight,
    address,
)
from tests.model.initial_state import Setting, first_partition, the_topic
from tests.model.small_broker import (
    NOW_MS,
    TOPIC_ID,
    Process,
    Running,
    SmallBroker,
    Waiting,
    settings_of,
)
from tests.model.small_controller import SmallController, SmallStore, a_registration
from tests.model.small_log import Record, SmallLog
from tests.support.broker_records import a_record


class Cluster:
    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.events: list[str] | None = None  # what a transcript says beside the new states
        self.committed: tuple[Record, ...] = ()  # what anybody ever held below a watermark
        self.broken = ""  # the invariant that the last move broke, seen while it moved
        self.in_flight: tuple[InFlight, ...] = ()
        self.moved: frozenset[int] = frozenset(setting.replicas)  # by the last move
        self.owns_controller = True
        records = {BrokerId(i): a_record(BrokerId(i)) for i in setting.replicas}
        self.store = SmallStore(first_partition(setting))
        self.controller = SmallController(1, the_topic(setting), records, self.store)
        self.brokers = [SmallBroker(BrokerId(i), SmallLog()) for i in setting.replicas]
        settings = settings_of(setting.commit_rule, setting.flush)
        for broker in self.brokers:
            broker.settings = settings
            broker.last_incarnation = BrokerEpoch(broker.broker_id + 1)
            broker.process = Process(broker.broker_id, broker.last_incarnation, Offset(0))
            self.push(broker.broker_id)

    def copied(self) -> "Cluster":
        copy = Cluster.__new__(Cluster)
        copy.__dict__.update(self.__dict__)
        copy.brokers = list(self.brokers)
        copy.moved = frozenset()
        copy.owns_controller = False
        return copy

    def key(self) -> Hashable:
        return (
            tuple(broker.key() for broker in self.brokers),
            self.controller.key(),
            self.in_flight,
            self.committed,
        )

    def say(self, text: str) -> None:
        if self.events is not None:
            self.events.append(text)

    def own(self, broker_id: int) -> SmallBroker:
        """That broker, copied if this move has not done so yet."""
        if broker_id not in self.moved:
            self.brokers[broker_id] = self.brokers[broker_id].copied()
            self.moved |= {broker_id}
        return self.brokers[broker_id]

    def own_controller(self) -> SmallController:
        """The controller and its store, copied if this move has not done so yet."""
        if not self.owns_controller:
            self.store = self.store.copied()
            self.controller = self.controller.copied(self.store)
            self.owns_controller = True
        return self.controller

    def running(self, broker_id: int) -> Running:
        return Running(
            self.own(broker_id), acknowledged=self._on_acknowledged, refused=self._on_rejected
        )

    def _on_acknowledged(self, broker: SmallBroker, entry: Waiting) -> None:
        leader = broker.process.leader if broker.process else None
        assert leader is not None
        if len(leader.in_sync_replicas) < leader.state.min_insync_replicas:
            self.broken = f"I9: {broker.broker_id} acknowledges {entry.value} below min ISR"
        self.say(f"{broker.broker_id}: acknowledges {entry.value}")

    def _on_rejected(self, broker: SmallBroker, entry: Waiting) -> None:
        self.say(f"{broker.broker_id}: cannot say whether {entry.value} is stored")

    # ---- producers, time, disks

    def append(self, broker_id: int, value: str, acks: str = "all") -> None:
        running = self.running(broker_id)
        leader = running.process.leader
        if leader is None:
            self.say(f"{broker_id}: refuses {value}, NOT_LEADER_OR_FOLLOWER")
        elif acks == "all" and not leader.has_enough_in_sync_replicas:
            self.say(f"{broker_id}: refuses {value}, NOT_ENOUGH_REPLICAS")
        else:
            running.append(value, waits=acks == "all")

    def set_log(
        self, broker_id: int, epochs: Iterable[tuple[int, int]], *, start: int, end: int
    ) -> None:
        log = SmallLog((), (), Offset(start))
        for epoch, begins in epochs:
            while log.log_end_offset < begins:
                log = log.appended((log.latest_epoch, "x"))
            log = log.with_epoch(LeaderEpoch(epoch))
        while log.log_end_offset < end:
            log = log.appended((log.latest_epoch, "x"))
        broker = self.own(broker_id)
        broker.log = log
        if broker.process is not None and broker.process.follower is not None:
            broker.process.follower.high_watermark = Offset(start)

    def lag(self, leader_id: int, follower_id: int) -> None:
        self.running(leader_id).lags(BrokerId(follower_id))

    def flush(self, broker_id: int) -> None:
        self.running(broker_id).flush()

    # ---- replication

    def fetch(self, broker_id: int, delayed: str = "") -> None:
        running = self.running(broker_id)
        fetch = running.next_fetch()
        follower = running.process.follower
        if fetch is None or follower is None:
            self.say(f"{broker_id}: has nothing to ask")
            return
        requested = FetchInFlight(
            running.broker.broker_id, running.process.broker_epoch, follower.leader, fetch
        )
        if delayed == "request":
            self._put_in_flight(requested)
            return
        responded = self._answer(requested)
        if delayed == "answer":
            self._put_in_flight(responded)
        else:
            self._hear(responded)

    def deliver_fetch(self, follower_id: int, leader_id: int) -> None:
        requested = self._take(FetchInFlight, follower_id, leader_id)
        assert isinstance(requested, FetchInFlight)
        self._hear(self._answer(requested))

    def deliver_response(self, follower_id: int, leader_id: int) -> None:
        responded = self._take(ResponseInFlight, follower_id, leader_id)
        assert isinstance(responded, ResponseInFlight)
        self._hear(responded)

    def _answer(self, requested: FetchInFlight) -> ResponseInFlight:
        response, records = self._response_of(requested)
        return ResponseInFlight(
            requested.follower,
            requested.broker_epoch,
            requested.leader,
            requested.fetch,
            response,
            records,
        )

    def _response_of(self, requested: FetchInFlight) -> tuple[LeaderResponse, tuple[Record, ...]]:
        process = self.brokers[requested.leader].process
        if process is None:
            self._say_rejected(requested, ErrorCode.NETWORK_EXCEPTION)
            return _an_error(ErrorCode.NETWORK_EXCEPTION), ()
        if process.leader is None:
            self._say_rejected(requested, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return _an_error(ErrorCode.NOT_LEADER_OR_FOLLOWER), ()
        running = self.running(requested.leader)
        leader, log = running.process.leader, running.broker.log
        assert leader is not None
        fetch = ReplicaFetch(
            requested.follower,
            requested.broker_epoch,
            requested.fetch.leader_epoch,
            requested.fetch.fetch_offset,
            requested.fetch.last_fetched_epoch,
        )
        verdict = leader.check_fetch(fetch, log)
        if isinstance(verdict, RejectFetch):
            self._say_rejected(requested, verdict.error)
            return _an_error(verdict.error, log.log_start_offset), ()
        if isinstance(verdict, DivergingEpoch):
            self.say(
                f"{requested.leader}: tells {requested.follower} that they part at or before the "
                f"end of"
                f" epoch {verdict.epoch}, offset {verdict.end_offset}"
            )
            response = _an_response(leader.high_watermark, log.log_start_offset, False)
            return response._replace(diverging_epoch=verdict), ()
        at = fetch.fetch_offset
        records = (log.record(at),) if at < log.log_end_offset else ()
        running.perform(leader.on_fetch(fetch, leader_end=log.log_end_offset, now_ms=NOW_MS))
        return _an_response(leader.high_watermark, log.log_start_offset, bool(records)), records

    def ask(self, leader_id: int, follower_id: int, last_epoch: int, offset: int) -> None:
        """What the leader says to a fetch that nobody sent. Nothing changes."""
        running = self.running(leader_id)
        leader = running.process.leader
        assert leader is not None, f"{leader_id} does not lead"
        fetch = ReplicaFetch(
            BrokerId(follower_id),
            self.brokers[follower_id].last_incarnation,
            leader.leader_epoch,
            Offset(offset),
            LeaderEpoch(last_epoch),
        )
        verdict = leader.check_fetch(fetch, running.broker.log)
        match verdict:
            case RejectFetch(error):
                self.say(f"{error.name}")
            case DivergingEpoch(epoch, end_offset):
                self.say(f"diverging: epoch {epoch} ends at {end_offset}")
            case None:
                self.say("served")

    def _say_rejected(self, requested: FetchInFlight, error: ErrorCode) -> None:
        self.say(f"{requested.leader}: refuses the fetch of {requested.follower}, {error.name}")

    def _hear(self, responded: ResponseInFlight) -> None:
        process = self.brokers[responded.follower].process
        if process is not None and process.broker_epoch == responded.broker_epoch:
            self.running(responded.follower).on_leader_response(
                responded.fetch, responded.answer, responded.records
            )

    # ---- the controller and what it says

    def push(self, broker_id: int) -> None:
        """The broker hears the newest state, whatever came between."""
        running = self.running(broker_id)
        brokers, state = self.controller.image()
        running.process.heard = self.controller.epoch
        running.apply_brokers(brokers)
        if state is not None:
            running.apply_state(state)

    def submit(self, broker_id: int, how: str = "") -> None:
        """The leader's pending proposal is judged. `late`: the write's outcome stays unknown;
        `delayed`: the request itself stays on the wire."""
        process = self.brokers[broker_id].process
        proposal = (
            None if process is None or not process.leader else process.leader.pending_proposal
        )
        if process is None or proposal is None:
            self.say(f"{broker_id}: has nothing to propose")
            return
        sent = ProposalInFlight(BrokerId(broker_id), process.broker_epoch, proposal)
        if how == "delayed":
            self._put_in_flight(sent)
        else:
            self._checker(sent, late=how == "late")

    def deliver_proposal(self, broker_id: int) -> None:
        sent = self._take(ProposalInFlight, broker_id, broker_id)
        assert isinstance(sent, ProposalInFlight)
        self._checker(sent, late=False)

    def _checker(self, sent: ProposalInFlight, *, late: bool) -> None:
        record = self.controller.brokers[sent.sender]
        if record.broker_epoch != sent.broker_epoch:
            self.say(f"controller: {sent.sender} is told STALE_BROKER_EPOCH")
            return
        verdict = self.own_controller().checker(sent.sender, sent.proposal, late=late)
        if self.controller.hides:
            self.say("controller: does not know whether its write was stored")
            return
        self.say(f"controller: answers {verdict.error.name}")
        process = self.brokers[sent.sender].process
        if process is None or process.broker_epoch != sent.broker_epoch:
            return
        running = self.running(sent.sender)
        running.apply_state(verdict.partition)
        leader = running.process.leader
        if leader is not None:
            running.perform(leader.on_response(sent.proposal, verdict.error, NOW_MS))

    def land(self, position: int = 0) -> None:
        """A late write reaches the store."""
        self.own_controller()
        writes = self.store.late_writes
        write = writes[position]
        self.store.late_writes = writes[:position] + writes[position + 1 :]
        if not self.store.compare_and_set(write.expected, write.wanted):
            self.say("store: conflict, nothing written")

    def fence(self, *broker_ids: int, late: bool = False) -> None:
        lives = map(BrokerId, broker_ids)
        self.own_controller().set_state(*lives, state=BrokerControlState.FENCED, late=late)
        self._record_elections()

    def activate(self, broker_id: int) -> None:
        self.own_controller().set_state(BrokerId(broker_id), state=BrokerControlState.ACTIVE)
        self._record_elections()

    def drain(self, broker_id: int) -> None:
        self.own_controller().set_state(BrokerId(broker_id), state=BrokerControlState.DRAINING)

    def evaluate(self) -> None:
        self.own_controller().evaluate()
        self._record_elections()

    def balance(self) -> None:
        """Leadership back to the preferred replica."""
        self.own_controller().balance()

    def choose(self, broker_id: int) -> None:
        """A human says who shall lead, whatever is lost."""
        controller = self.own_controller()
        controller.choice = LeaderChoice(0, BrokerId(broker_id), controller.known.leader_epoch)
        self.evaluate()

    def min_isr(self, min_insync_replicas: int) -> None:
        self.own_controller().set_min_insync(min_insync_replicas)

    def new_controller(self) -> None:
        """A successor reads everything; what the former one still has on its way may land."""
        previous = self.own_controller()
        self.controller = SmallController(
            previous.epoch + 1, previous.topic, previous.brokers, self.store
        )
        self.evaluate()

    def _record_elections(self) -> None:
        """S14 may lose what no replica has any more; other last resorts what the leader lacks."""
        cause = self.controller.unclean_recovery
        if cause is None:
            return
        self.say(f"controller: last resort, {cause.value}")
        leader = self.brokers[self.controller.known.leader]
        requested = self.brokers if cause is UncleanCause.ALL_UNCLEAN else [leader]
        kept = 0
        while kept < len(self.committed) and any(
            has_record(broker.log, kept, self.committed[kept]) for broker in requested
        ):
            kept += 1
        self.committed = self.committed[:kept]

    # ---- processes

    def kill(self, broker_id: int) -> None:
        self.own(broker_id).process = None

    def restart(
        self,
        broker_id: int,
        *,
        proof: str = "",
        keep: int | None = None,
        checkpoint: int = 0,
    ) -> None:
        """`proof`: it can show that its kernel lost nothing ("proof"), or that it is the same disk
        at least ("disk"). `keep`: records that are left."""
        broker = self.own(broker_id)
        assert broker.process is None, f"{broker_id} runs"
        if keep is not None and keep < broker.log.log_end_offset:
            broker.log = broker.log.truncated(keep)
            if proof == "disk" and broker.settings.flushes_always:
                assert keep >= broker.synced_end, f"the same disk has {broker.synced_end} at least"
            else:
                broker.lost_in = broker.last_incarnation
        broker.checkpoint = Offset(checkpoint)
        broker.durable_end = Offset(0)
        broker.synced_end = broker.log.log_end_offset if proof else Offset(0)
        incarnation = f"{broker_id} after {broker.last_incarnation}"
        epoch = self._register(broker, incarnation, proof, checkpoint)
        broker.last_incarnation = epoch
        watermark = Offset(
            max(broker.log.log_start_offset, min(checkpoint, broker.log.log_end_offset))
        )
        broker.process = Process(broker.broker_id, epoch, watermark)

    def report(self, broker_id: int) -> None:
        """The same process registers again, since its report is wanted (S14)."""
        broker = self.brokers[broker_id]
        record = self.controller.brokers[broker.broker_id]
        assert broker.process is not None
        self._register(broker, record.incarnation, "", broker.process.high_watermark)

    def _register(
        self, broker: SmallBroker, incarnation: str, proof: str, checkpoint: int
    ) -> BrokerEpoch:
        log = broker.log
        report = ReplicaReport(
            TOPIC_ID, 0, log.latest_epoch, log.log_end_offset, Offset(checkpoint)
        )
        outcome = self.own_controller().register(
            a_registration(
                broker.broker_id,
                incarnation=incarnation,
                clean_stop_epoch=broker.last_incarnation if proof == "proof" else BrokerEpoch(-1),
                disk_epoch=broker.last_incarnation if proof else BrokerEpoch(-1),
                report=report,
            )
        )
        assert isinstance(outcome, Accepted), outcome
        if not outcome.is_same_epoch:
            verdict = "clean" if outcome.is_clean else "unclean"
            if outcome.record.disk_since < outcome.record.clean_since:
                verdict += ", its disk kept"
            self.say(
                f"controller: {broker.broker_id} is {outcome.record.broker_epoch} now, {verdict}"
            )
        self._record_elections()
        return outcome.record.broker_epoch

    # ---- what anybody may have read

    def record_committed(self) -> None:
        """Call after each move: what some process now holds below its watermark."""
        for broker in self.brokers:
            process = broker.process
            if process is None:
                continue
            for offset in range(broker.log.log_start_offset, process.high_watermark):
                record = broker.log.record(offset)
                if offset == len(self.committed):
                    self.committed = (*self.committed, record)
                elif offset < len(self.committed) and self.committed[offset] != record:
                    self.broken = (
                        f"I7: {broker.broker_id} shows {record} at offset {offset},"
                        f" {self.committed[offset]} was read there"
                    )

    # ---- the wire

    def _put_in_flight(self, message: InFlight) -> None:
        """One of a kind per connection: an older one is lost."""
        kept = [m for m in self.in_flight if address(m) != address(message)]
        self.in_flight = tuple(sorted([*kept, message], key=address))

    def _take(self, kind: type[InFlight], sender: int, receiver: int) -> InFlight:
        wanted = (kind.__name__, sender, receiver)
        found = next(m for m in self.in_flight if address(m) == wanted)
        self.in_flight = tuple(m for m in self.in_flight if m is not found)
        return found


def has_record(log: SmallLog, offset: int, record: Record) -> bool:
    start = log.log_start_offset
    return offset < start or (offset < log.log_end_offset and log.record(offset) == record)


def _an_error(error: ErrorCode, log_start_offset: int = 0) -> LeaderResponse:
    return LeaderResponse(error, Offset(0), Offset(log_start_offset), False)


def _an_response(high_watermark: Offset, log_start: Offset, has_records: bool) -> LeaderResponse:
    return LeaderResponse(ErrorCode.NONE, high_watermark, log_start, has_records)
