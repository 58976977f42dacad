"""Producers of a compacted log against a list: who wrote within the expiration is known with its
last sequence, by the running log and by a start that has only the log, whatever else expired."""

import dataclasses
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tidemark_broker.log.partition_log import PartitionLog
from tidemark_broker.log.producer_state_entry import ProducerStateEntries
from tidemark_protocol.ids import LeaderEpoch

from tests.support.compacted_log_fixtures import COMPACTED, compact, keyed_batch, seal
from tests.support.log_fixtures import NoSyncDisk, killed_and_reopened, open_log

SETTINGS = dataclasses.replace(COMPACTED, segment_bytes=400)
EXPIRATION_MS = 100


class CompactedProducers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.disk = NoSyncDisk()
        self.log = open_log(self.root / "log", self.disk, settings=SETTINGS)
        self.now_ms = 0
        self.next_sequence: dict[int, int] = {}
        self.appended_ms: dict[int, int] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @rule(producer_id=st.integers(0, 5), key=st.sampled_from("ab"))
    def append(self, producer_id: int, key: str) -> None:
        is_known = self.log.producers.get(producer_id) is not None
        sequence = self.next_sequence[producer_id] if is_known else 0
        batch = keyed_batch((key, "1"), producer=(producer_id, sequence))
        self.log.append_as_leader([batch], leader_epoch=LeaderEpoch(0))
        self.next_sequence[producer_id] = sequence + 1
        self.appended_ms[producer_id] = self.now_ms

    @rule(key=st.sampled_from("ab"))
    def seal_behind_a_record_of_nobody(self, key: str) -> None:
        self.log.append_as_leader([keyed_batch((key, "2"))], leader_epoch=LeaderEpoch(0))
        seal(self.log)

    @rule(step_ms=st.integers(0, 120))
    def look_at_the_clock(self, step_ms: int) -> None:
        self.now_ms += step_ms
        self.log.producers.expire(self.now_ms, expiration_ms=EXPIRATION_MS)

    @rule()
    def compact(self) -> None:
        compact(self.log, self.disk)

    @rule(is_clean=st.booleans())
    def reopen(self, is_clean: bool) -> None:
        if is_clean:
            self.log.close()
        cleaned_to = self.log.cleaned_to
        self.log = killed_and_reopened(self.log, self.disk)
        self.log.cleaned_to = cleaned_to

    @invariant()
    def who_may_retry_is_known(self) -> None:  # I8
        self.check(self.log.producers)

    @rule()
    def start_with_nothing_but_the_log(self) -> None:
        self.check(self.of_the_log_alone().producers)

    def of_the_log_alone(self) -> PartitionLog:
        directory = self.root / "copy"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for path in self.log.directory.glob("*.log"):
            shutil.copy(path, directory)
        return open_log(directory, self.disk, settings=SETTINGS)

    def check(self, producers: ProducerStateEntries) -> None:
        for producer_id, appended_ms in self.appended_ms.items():
            if self.now_ms - appended_ms < EXPIRATION_MS:
                entry = producers.get(producer_id)
                assert entry is not None, f"producer {producer_id} is forgotten"
                assert entry.last_sequence == self.next_sequence[producer_id] - 1
        if self.appended_ms:  # S5
            assert producers.highest_producer_id == max(self.appended_ms)


CompactedProducers.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    suppress_health_check=list(HealthCheck),
    deadline=None,
)
TestCompactedProducers = CompactedProducers.TestCase
