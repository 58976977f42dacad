"""Bugs planted into the production cores, and the situation from which a short search finds each.

Each takes one guard away (or the pair of guards that stand behind one another: removing either
alone leaves the other, so nothing is lost; such pairs say so). Found bugs prove that the search
looks where it should.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tidemark_protocol.error_codes import ErrorCode

from tests.model.search import Bounds
from tests.mutation.edits import Patch, at, patched, returns, test, value, wrap


@dataclass(frozen=True)
class InjectedBug:
    name: str
    patches: tuple[Patch, ...]
    situation: str  # lines of a transcript
    bounds: Bounds
    breaks: str  # the invariant

    @contextmanager
    def injected(self) -> Iterator[None]:
        with patched(self.patches):
            yield


def _drops_what_was_rejected(original: Any) -> Any:
    """As Kafka does on INELIGIBLE_REPLICA."""

    def on_response(self: Any, proposal: Any, error: ErrorCode, now_ms: int) -> Any:
        if self.pending_proposal == proposal and error is ErrorCode.INELIGIBLE_REPLICA:
            self._pending = None
        return ()

    return on_response


TO_WATERMARK = "TruncateLog(min(self.high_watermark, log.log_end_offset))"
WITHOUT_RAISE = "Verdict(ErrorCode.INELIGIBLE_REPLICA, partition)"
BY_OFFSET_ONLY = (
    "fetch.leader_epoch == self.leader_epoch and fetch.fetch_offset == log.log_end_offset"
)
LEADS_UNHEARD = """world leader=1
append 1 old
fetch 2
{}
balance
push 0
push 2
fetch 2"""

INJECTED_BUGS = (
    InjectedBug(
        "expand without the check of the epoch's start",
        (at("join-past-epoch-start", returns(True)),),
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
    InjectedBug(
        "expand below the high watermark",
        (at("join-at-watermark", returns(True)),),
        "world isr=0,1",
        Bounds(records=2, faults=0),
        "I6",
    ),
    InjectedBug(
        "watermark by the applied ISR instead of the maximal one",
        (at("watermark-waits-for-maximal-isr", returns("self.in_sync_replicas")),),
        "world isr=0,1",
        Bounds(records=1, faults=1, kinds=("fetch",)),
        "I6",
    ),
    InjectedBug(
        "watermark below min ISR",
        (at("watermark-waits-for-min-isr", returns(True)),),
        "world",
        Bounds(records=1, faults=2, kinds=("kill",)),
        "I6",
    ),
    InjectedBug(
        "truncation to the high watermark",
        (
            at(
                "truncate-by-leader-epoch",
                returns(TO_WATERMARK),
            ),
        ),
        "world isr=0,1\nappend 0 a\nfetch 1\nfetch 1 answer\npush 2\nfetch 2",
        Bounds(records=1, faults=1, kinds=("kill",)),
        "I",
    ),
    InjectedBug(
        "no broker epoch is looked at when a fetch comes (a pair)",
        (
            at("fetch-not-of-earlier-life", returns(False)),
            at("fetch-counts-for-its-own-life", returns(True)),
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
    InjectedBug(
        "a refused expand that raises no partition epoch, and is dropped (a pair)",
        (
            at(
                "refused-join-raises-partition-epoch",
                value(WITHOUT_RAISE),
            ),
            at("refusal-keeps-proposal-pending", wrap(_drops_what_was_rejected)),
        ),
        "world isr=0,1\nfetch 2\npropose 0 late",
        Bounds(records=1, faults=1, kinds=("fence",)),
        "I",
    ),
    InjectedBug(
        "progress kept over an epoch that was missed (S27)",
        (at("progress-kept-in-next-epoch-only", returns(True)),),
        LEADS_UNHEARD.format("fetch 2"),
        Bounds(records=0, faults=1, kinds=("kill",)),
        "I6",
    ),
    InjectedBug(
        "no leader epoch is looked at when a fetch comes",
        (at("fetch-in-same-leader-epoch", returns("ErrorCode.NONE")),),
        LEADS_UNHEARD.format("fetch 2 request"),
        Bounds(records=0, faults=1, kinds=("kill",)),
        "I6",
    ),
    InjectedBug(
        "every start counts as clean",
        (at("clean-start", returns(True)),),
        "world\nappend 0 a\nfetch 1\nfetch 2\nfetch 1\nfetch 2",
        Bounds(records=0, faults=2, kinds=("kill",)),
        "I6",
    ),
    InjectedBug(
        "every disk counts as the one that was there",
        (at("same-disk", returns(True)),),
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
    InjectedBug(
        "void entries may lead",
        (at("void-entry", returns(True)),),
        "world\nappend 0 a\nfetch 1\nfetch 2\nfetch 1\nfetch 2",
        Bounds(records=0, faults=2, kinds=("kill",)),
        "I6",
    ),
    InjectedBug(
        "a write that asks not what is stored",
        (at("small-store-compares", test(False)),),
        "world isr=0,1\nfetch 2\npropose 0 late",
        Bounds(records=0, faults=1, kinds=("fence",)),
        "I14",
    ),
    InjectedBug(
        "an answer to a question of before counts",
        (at("answer-to-present-fetch", returns(True)),),
        "world\nappend 0 a\nfetch 1 answer\nfetch 1",
        Bounds(records=1, faults=0),
        "I7",
    ),
    InjectedBug(
        "an answer counts whose question was asked before the log was cut and filled again",
        (
            at(
                "answer-to-present-fetch",
                returns(BY_OFFSET_ONLY),
            ),
        ),
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
