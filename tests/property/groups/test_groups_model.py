"""Random members that join, read, fall silent and leave; a coordinator that dies; a slow log.

Safety after every step: one leader and one assignment for each generation, the assignment from
that leader; committed offsets as answered never go back, not by a new coordinator either.
Liveness at the end: members that go on living are all stable in bounded time.
"""

from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tidemark_broker.coordinator.core.requests import (
    Heartbeat,
    HeartbeatResponse,
    JoinGroupResponse,
    OffsetCommitResponse,
    SyncGroup,
    SyncGroupResponse,
)
from tidemark_protocol.error_codes import ErrorCode

from tests.support.coordinator_harness import JOIN, REBALANCE_MS, SESSION_MS, Harness, a_harness

CLIENTS = 4
STATIC_CLIENTS = 2


@dataclass
class Client:
    """As a real one: at most one of join and sync under way, heartbeats while it has a part."""

    instance: str | None
    is_alive: bool = False
    member_id: str = ""
    generation_id: int = -1
    is_leader: bool = False
    members: tuple[str, ...] = ()
    join_request: int | None = None
    sync_request: int | None = None
    is_stable: bool = False

    def start_anew(self) -> None:
        self.generation_id, self.is_leader, self.members = -1, False, ()
        self.join_request = self.sync_request = None
        self.is_stable = False


class GroupsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.harness: Harness = a_harness()
        self.epoch = 1
        self.clients = [
            Client(f"i{number}" if number < STATIC_CLIENTS else None) for number in range(CLIENTS)
        ]
        self.makers: dict[tuple[int, int], str] = {}  # (leader epoch, generation) -> its leader
        self.next_offset = 1
        self.acknowledged = 0
        self.commits: dict[int, int] = {}

    # What clients do

    @rule(number=st.integers(0, CLIENTS - 1))
    def act(self, number: int) -> None:
        client = self.clients[number]
        client.is_alive = True
        self._read_join(client)
        self._read_sync(client)
        if client.join_request is not None or client.sync_request is not None:
            return
        if client.is_stable:
            self._heartbeat(client)
        else:
            self._join(client)

    @rule(number=st.integers(0, CLIENTS - 1))
    def fall_silent(self, number: int) -> None:
        client = self.clients[number]
        client.is_alive = False
        client.start_anew()
        client.member_id = ""

    @rule(number=st.integers(0, CLIENTS - 1))
    def leave(self, number: int) -> None:
        client = self.clients[number]
        if client.member_id and client.instance is None:
            self.harness.leave(client.member_id)
        self.fall_silent(number)

    @rule(number=st.integers(0, CLIENTS - 1))
    def commit_offset(self, number: int) -> None:
        client = self.clients[number]
        if client.is_stable:
            request = self.harness.send_commit(
                self.next_offset, client.member_id, client.generation_id
            )
            self.commits[request] = self.next_offset
            self.next_offset += 1

    def _join(self, client: Client) -> None:
        client.start_anew()
        client.join_request = self.harness.send_join(
            replace(JOIN, member_id=client.member_id, group_instance_id=client.instance)
        )
        self._read_join(client)

    def _read_join(self, client: Client) -> None:
        response = self.harness.answers.get(
            -1 if client.join_request is None else client.join_request
        )
        if response is None:
            return
        assert isinstance(response, JoinGroupResponse)
        epoch = self.harness.responded_in[client.join_request or 0]
        client.join_request = None
        if response.error is not ErrorCode.NONE:
            client.member_id = ""
            return
        client.member_id, client.generation_id = response.member_id, response.generation_id
        client.is_leader = bool(response.members) and not response.skip_assignment
        client.members = tuple(member.member_id for member in response.members)
        if client.is_leader:
            # A generation that the log never held is made again by the next coordinator.
            generation = (epoch, client.generation_id)
            assert self.makers.setdefault(generation, client.member_id) == client.member_id
        parts = tuple(
            (member, f"{client.generation_id}:{client.member_id}".encode())
            for member in client.members
            if client.is_leader
        )
        client.sync_request = self.harness.send(
            SyncGroup(
                "g", client.generation_id, client.member_id, client.instance, assignments=parts
            )
        )

    def _read_sync(self, client: Client) -> None:
        response = self.harness.answers.get(
            -1 if client.sync_request is None else client.sync_request
        )
        if response is None:
            return
        assert isinstance(response, SyncGroupResponse)
        client.sync_request = None
        if response.error is not ErrorCode.NONE:
            if response.error is not ErrorCode.REBALANCE_IN_PROGRESS:
                client.member_id = ""
            return
        assert response.assignment in {
            f"{generation_id}:{maker}".encode()
            for (_, generation_id), maker in self.makers.items()
            if generation_id == client.generation_id
        }
        client.is_stable = True

    def _heartbeat(self, client: Client) -> None:
        response = self.harness.ask(
            Heartbeat("g", client.generation_id, client.member_id, client.instance)
        )
        assert isinstance(response, HeartbeatResponse)
        if response.error is not ErrorCode.NONE:
            client.is_stable = False
            if response.error is not ErrorCode.REBALANCE_IN_PROGRESS:
                client.member_id = ""

    # What the world does

    @rule(wait_ms=st.sampled_from([1, 1_000, SESSION_MS // 2, SESSION_MS]))
    def time_passes(self, wait_ms: int) -> None:
        self.harness.wait(wait_ms)

    @rule()
    def log_becomes_slow(self) -> None:
        self.harness.commits_at_once = False

    @precondition(lambda self: self.harness.appends)
    @rule()
    def oldest_append_is_committed(self) -> None:
        self.harness.commit()

    @precondition(lambda self: self.harness.appends)
    @rule()
    def oldest_append_is_late(self) -> None:
        append_id = self.harness.appends[0].append_id
        self.harness.perform(self.harness.coordinator.on_late(append_id, self.harness.now_ms))

    @rule(are_kept=st.booleans())
    def another_coordinator_leads(self, are_kept: bool) -> None:
        """What was under way is in the next leader's log, or was cut off."""
        if are_kept:
            for append in self.harness.appends:
                self.harness.log += append.records
        self.harness.appends.clear()
        self.epoch += 1
        self.harness.lead(self.epoch)

    # What must hold

    @invariant()
    def committed_offsets_never_go_back(self) -> None:
        for request, offset in tuple(self.commits.items()):
            response = self.harness.answers.get(request)
            if response is None:
                continue
            assert isinstance(response, OffsetCommitResponse)
            del self.commits[request]
            if response.partitions[0].error is ErrorCode.NONE:
                self.acknowledged = max(self.acknowledged, offset)
        assert self.harness.fetched().get("t", 0) >= self.acknowledged

    @invariant()
    def one_leader_is_a_member(self) -> None:
        group = self.harness.coordinator._groups.find("g")
        if group is not None and group.members and self.harness.state() == "Stable":
            assert group.leader_id is None or group.leader_id in group.members

    def teardown(self) -> None:
        """Nothing fails any more: all the living get their part within two rebalances."""
        for _ in range(len(self.harness.appends)):
            self.harness.commit()
        while self.harness.appends:
            self.harness.commit()
        self.harness.commits_at_once = True
        living = [number for number, client in enumerate(self.clients) if client.is_alive]
        for _ in range(2 * REBALANCE_MS // 1_000 + 60):
            for number in living:
                self.act(number)
            self.harness.wait(1_000)
        clients = [self.clients[number] for number in living]
        assert all(client.is_stable for client in clients)
        assert len({client.generation_id for client in clients}) <= 1
        self.committed_offsets_never_go_back()


GroupsMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, derandomize=True
)
TestGroups = GroupsMachine.TestCase
