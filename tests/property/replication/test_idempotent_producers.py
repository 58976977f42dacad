"""I8 under everything at once: retries to whoever leads, elections, kills, truncations, restarts.

Three brokers with real logs and real cores in one process; two producers that keep up to five
batches in flight and send any of them again at any time. Whatever was acknowledged is in the log of
the leader at the offset that was told, once, and no retry is told another.
"""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tidemark_broker.kafka_wire.records.record_batch import read_header
from tidemark_broker.replication.replica_manager import ProduceResult
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch

from tests.support.in_process_pool import InProcessBroker, InProcessPool, a_produced_batch

IN_FLIGHT = 5
PRODUCERS = (7, 8)
numbers = st.integers(1, 3)
Sent = tuple[int, int]  # producer id, base sequence


class RetriesAndFailovers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.pool = InProcessPool(self.directory, min_insync=2)
        self.leader = 1
        self.pool.lead(1)
        self.results: dict[Sent, list[list[ProduceResult]]] = {}
        self.next_sequence = dict.fromkeys(PRODUCERS, 0)

    def teardown(self) -> None:
        self.heal()
        for number in tuple(self.pool.brokers):
            self.pool.kill(number)
        shutil.rmtree(self.directory)

    # ---- what a client does

    def acknowledged(self) -> dict[Sent, int]:
        found: dict[Sent, int] = {}
        for sent, responses in self.results.items():
            offsets = {r.base_offset for (r,) in filter(None, responses) if r.error == 0}
            assert len(offsets) <= 1, (sent, offsets)
            if offsets:
                found[sent] = offsets.pop()
        return found

    def send(self, producer_id: int, sequence: int) -> None:
        data = a_produced_batch(sequence, f"{producer_id}:{sequence}", producer_id=producer_id)
        responses = self.pool.brokers[self.leader].produce_bytes(data, timeout_ms=100_000)
        self.results.setdefault((producer_id, sequence), []).append(responses)

    def open_sequences(self, producer_id: int) -> range:
        """Those in flight: the client may send them again, and goes on when the first is told."""
        acknowledged = self.acknowledged()
        first = 0
        while (producer_id, first) in acknowledged:
            first += 1
        return range(first, min(self.next_sequence[producer_id], first + IN_FLIGHT))

    @rule(producer_id=st.sampled_from(PRODUCERS))
    def produce(self, producer_id):
        if len(self.open_sequences(producer_id)) < IN_FLIGHT:
            self.send(producer_id, self.next_sequence[producer_id])
            self.next_sequence[producer_id] += 1

    @rule(producer_id=st.sampled_from(PRODUCERS), back=st.integers(0, IN_FLIGHT + 2))
    def send_again(self, producer_id, back):
        sequence = self.next_sequence[producer_id] - 1 - back
        if sequence >= 0:
            self.send(producer_id, sequence)

    # ---- what happens to brokers

    @rule(number=numbers)
    def replicate(self, number):
        if number in self.pool.brokers and number != self.leader:
            self.pool.replicate(number)

    @rule(number=numbers)
    def elect(self, number):
        members = {member.broker_id for member in self.pool.state.in_sync_replicas}
        if number in members and number in self.pool.brokers:
            self.leader = number
            self.pool.lead(number)

    @precondition(lambda self: len(self.pool.brokers) == 3)
    @rule(number=numbers, is_clean=st.booleans(), comes_back=st.booleans())
    def lose_a_broker(self, number, is_clean, comes_back):
        members = [int(member.broker_id) for member in self.pool.state.in_sync_replicas]
        if len(members) < 3:
            return
        broker = self.pool.brokers[number]
        if is_clean:
            broker.partitions.stop("stopping")
            broker.directory.write_clean_stop(BrokerEpoch(broker.broker_epoch))
        self.pool.kill(number)
        members.remove(number)
        self.leader = self.leader if self.leader != number else members[0]
        self.pool.lead(self.leader, in_sync=members)
        if comes_back:
            self.come_back()

    @precondition(lambda self: len(self.pool.brokers) < 3)
    @rule()
    def come_back(self):
        for number in {1, 2, 3} - set(self.pool.brokers):
            self.pool.start(number)
        self.pool.push()

    @rule()
    def checker_proposals(self):
        leader = self.pool.brokers[self.leader]
        while leader.proposals:
            self.pool.checker(self.leader)
            self.pool.push()

    def heal(self) -> None:
        self.come_back()
        for _ in range(4):
            self.pool.replicate()
            self.checker_proposals()
        for producer_id in PRODUCERS:
            for sequence in self.open_sequences(producer_id):
                self.send(producer_id, sequence)
        self.pool.replicate(rounds=4)
        self.everything_reported_is_true()
        acknowledged = self.acknowledged()
        assert set(self.results) <= set(acknowledged), "not all could be written in the end"

    # ---- what must hold

    def batches(self, broker: InProcessBroker) -> dict[Sent, int]:
        data, position = broker.log_bytes(), 0
        found: dict[Sent, int] = {}
        while position < len(data):
            header = read_header(data, position)
            sent = (header.producer_id, header.base_sequence)
            assert sent not in found, f"{sent} at {found[sent]} and {header.base_offset}"  # I8
            found[sent] = header.base_offset
            position += header.size_bytes
        return found

    @invariant()
    def everything_reported_is_true(self):
        in_log = self.batches(self.pool.brokers[self.leader])
        for sent, offset in self.acknowledged().items():
            assert in_log.get(sent) == offset, f"{sent} was acknowledged at {offset}"

    @invariant()
    def only_these_rejections(self):
        fine = {
            ErrorCode.NONE,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.UNKNOWN_PRODUCER_ID,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        }
        reported = {r.error for tries in self.results.values() for (r,) in filter(None, tries)}
        assert reported <= fine


TestRetriesAndFailovers = RetriesAndFailovers.TestCase
TestRetriesAndFailovers.settings = settings(
    max_examples=25,
    stateful_step_count=40,
)
