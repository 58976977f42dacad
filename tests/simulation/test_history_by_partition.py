"""Sends of which the topic is not known, or not the only one: where they are judged."""

from dataclasses import replace

import pytest
from tidemark_chaos.history_checker import Kind, Operation, Outcome, check

from tests.simulation.checks.history_by_partition import placed

FORMER, NEXT, UNTOLD = "former/1", "next/1", "/1"
SENT = Operation(
    process="producer-1",
    kind=Kind.SEND,
    outcome=Outcome.OK,
    partition=NEXT,
    values=(506,),
    offsets=(0,),
    invoked_us=1,
    completed_us=9,
    acks=-1,
    is_idempotent=True,
)


def read_in(partition: str, at_us: int) -> Operation:
    return Operation(
        process="consumer-0",
        kind=Kind.POLL,
        outcome=Outcome.OK,
        partition=partition,
        values=(506,),
        offsets=(0,),
        invoked_us=at_us,
        completed_us=at_us,
        high_watermark=1,
    )


READ_IN_BOTH = [read_in(FORMER, 3), read_in(NEXT, 10)]


def test_what_is_sent_again_may_lie_in_the_topic_before_too() -> None:
    """Seed 11001072: the answer was lost, and the topic made anew before it was sent again."""
    verdict = check(placed([*READ_IN_BOTH, SENT]))
    assert verdict.is_clean, verdict.anomalies


def test_what_is_sent_once_lies_in_one_topic() -> None:
    once = replace(SENT, is_idempotent=False)
    verdict = check(placed([*READ_IN_BOTH, once]))
    assert [entry.name for entry in verdict.failures] == ["unknown-value"]


@pytest.mark.parametrize("place", [FORMER, NEXT])
def test_a_send_that_was_told_no_topic_belongs_where_it_was_read(place: str) -> None:
    unannounced = replace(SENT, partition=UNTOLD, outcome=Outcome.INFO, offsets=())
    sends = [each for each in placed([read_in(place, 3), unannounced]) if each.kind is Kind.SEND]
    assert [each.partition for each in sends] == [place]


def test_a_send_that_nobody_read_stays_where_it_was_thought_to_go() -> None:
    unannounced = replace(SENT, partition=UNTOLD, outcome=Outcome.INFO, offsets=())
    assert list(placed([unannounced])) == [unannounced]
