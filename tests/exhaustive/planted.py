"""Bugs planted into the production cores, and the situation from which a short search finds each.

Each takes one guard away (or the pair of guards that stand behind one another: removing either
alone leaves the other, so nothing is lost; such pairs say so). Found bugs prove that the search
looks where it should.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import tidemark_operator.controller.in_sync_replicas as in_sync_replicas
import tidemark_operator.controller.registration as registration
from tidemark_broker.replication.effects import LeaderEffect, TruncateLog
from tidemark_broker.replication.follower import FollowerFetch, PartitionFollower
from tidemark_broker.replication.leader import PartitionLeader
from tidemark_operator.controller.standing import Standings
from tidemark_protocol.controller_messages import InSyncProposal
from tidemark_protocol.error_codes import ErrorCode

from tests.exhaustive.search import Bounds
from tests.small_world.small_controller import SmallStore

Patch = tuple[object, str, Any]  # of what, which attribute, by what


@dataclass(frozen=True)
class Planted:
    name: str
    patches: tuple[Patch, ...]
    situation: str  # lines of a transcript
    bounds: Bounds
    breaks: str  # the invariant

    @contextmanager
    def planted(self) -> Iterator[None]:
        with ExitStack() as stack:
            for of_what, attribute, replacement in self.patches:
                stack.enter_context(mock.patch.object(of_what, attribute, replacement))
            yield


def _cut_to_watermark(self: PartitionFollower, _diverging: object, log: Any) -> TruncateLog:
    return TruncateLog(min(self.high_watermark, log.log_end_offset))


def _drops_what_was_refused(
    self: PartitionLeader, proposal: InSyncProposal, error: ErrorCode, _now_ms: int
) -> tuple[LeaderEffect, ...]:
    """As Kafka does on INELIGIBLE_REPLICA."""
    if self.pending_proposal == proposal and error is ErrorCode.INELIGIBLE_REPLICA:
        self._pending = None
    return ()


def _writes_whatever_is_stored(self: SmallStore, _expected: object, wanted: Any) -> bool:
    self.partition = wanted
    return True


def _looks_at_the_offset_only(self: PartitionFollower, fetch: FollowerFetch, log: Any) -> bool:
    return fetch.leader_epoch == self.leader_epoch and fetch.fetch_offset == log.log_end_offset


def _accepts_any_epoch(_self: PartitionLeader, _epoch: int) -> ErrorCode:
    return ErrorCode.NONE


def yes(*_args: object, **_named: object) -> bool:
    return True


def no(*_args: object, **_named: object) -> bool:
    return False


LEADS_UNHEARD = """world leader=1
append 1 old
fetch 2
{}
balance
push 0
push 2
fetch 2"""

PLANTED = (
    Planted(
        "expand without the check of the epoch's start",
        ((PartitionLeader, "_has_reached_epoch_start", yes),),
        """world isr=0,1
append 0 a
append 0 b
fetch 1
fetch 1
fetch 1 answer
kill 0
fence 0
push 1
push 2""",
        Bounds(records=0, faults=1, kinds=("fetch",)),
        "I6",
    ),
    Planted(
        "expand below the high watermark",
        ((PartitionLeader, "_has_reached_watermark", yes),),
        "world isr=0,1",
        Bounds(records=2, faults=0),
        "I6",
    ),
    Planted(
        "watermark by the applied ISR instead of the maximal one",
        ((PartitionLeader, "_waited_for", lambda self: self.in_sync_replicas),),
        "world isr=0,1",
        Bounds(records=1, faults=1, kinds=("fetch",)),
        "I6",
    ),
    Planted(
        "watermark below min ISR",
        ((PartitionLeader, "_may_commit", yes),),
        "world",
        Bounds(records=1, faults=2, kinds=("kill",)),
        "I6",
    ),
    Planted(
        "truncation to the high watermark",
        ((PartitionFollower, "_truncation", _cut_to_watermark),),
        "world isr=0,1\nappend 0 a\nfetch 1\nfetch 1 answer\npush 2\nfetch 2",
        Bounds(records=1, faults=1, kinds=("kill",)),
        "I",
    ),
    Planted(
        "no broker epoch is looked at when a fetch comes (a pair)",
        (
            (PartitionLeader, "_is_former_life", no),
            (PartitionLeader, "_counts_for", yes),
        ),
        """world
append 0 a
fetch 1
fetch 2
fetch 1
fetch 2
append 0 b
fetch 1
fetch 1 request
kill 1
restart 1 keep=0
activate 1
push 0
push 1
fetch 1""",
        Bounds(records=0, faults=1, kinds=("fetch",)),
        "I6",
    ),
    Planted(
        "a refused expand that raises no partition epoch, and is dropped (a pair)",
        (
            (in_sync_replicas, "raised", lambda partition: partition),
            (PartitionLeader, "on_answer", _drops_what_was_refused),
        ),
        "world isr=0,1\nfetch 2\npropose 0 late",
        Bounds(records=1, faults=1, kinds=("fence",)),
        "I",
    ),
    Planted(
        "progress kept over an epoch that was missed (S27)",
        ((PartitionLeader, "_is_next_epoch_of", yes),),
        LEADS_UNHEARD.format("fetch 2"),
        Bounds(records=0, faults=1, kinds=("kill",)),
        "I6",
    ),
    Planted(
        "no leader epoch is looked at when a fetch comes",
        ((PartitionLeader, "_leader_epoch_error", _accepts_any_epoch),),
        LEADS_UNHEARD.format("fetch 2 request"),
        Bounds(records=0, faults=1, kinds=("kill",)),
        "I6",
    ),
    Planted(
        "every start counts as clean",
        ((registration, "is_clean_start", yes),),
        "world\nappend 0 a\nfetch 1\nfetch 2\nfetch 1\nfetch 2",
        Bounds(records=0, faults=2, kinds=("kill",)),
        "I6",
    ),
    Planted(
        "every disk counts as the one that was there",
        ((registration, "is_same_disk", yes),),
        """world flush=Always
append 0 a
fetch 1
fetch 2
flush 1
flush 2
fetch 1
fetch 2
flush 0""",
        Bounds(records=0, faults=2, kinds=("kill",)),
        "I6",
    ),
    Planted(
        "void entries may lead",
        ((Standings, "is_valid", yes),),
        "world\nappend 0 a\nfetch 1\nfetch 2\nfetch 1\nfetch 2",
        Bounds(records=0, faults=2, kinds=("kill",)),
        "I6",
    ),
    Planted(
        "a write that asks not what is stored",
        ((SmallStore, "compare_and_set", _writes_whatever_is_stored),),
        "world isr=0,1\nfetch 2\npropose 0 late",
        Bounds(records=0, faults=1, kinds=("fence",)),
        "I14",
    ),
    Planted(
        "an answer to a question of before counts",
        ((PartitionFollower, "_is_for_this_moment", yes),),
        "world\nappend 0 a\nfetch 1 answer\nfetch 1",
        Bounds(records=1, faults=0),
        "I7",
    ),
    Planted(
        "an answer counts whose question was asked before the log was cut and filled again",
        ((PartitionFollower, "_is_for_this_moment", _looks_at_the_offset_only),),
        """world leader=1
append 1 old
balance
push 0
append 0 new
push 1
push 2
fetch 2
fetch 2
fetch 1 request""",
        Bounds(records=0, faults=0),
        "I2",
    ),
)
