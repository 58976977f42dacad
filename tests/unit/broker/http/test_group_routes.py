"""GET /groups: sent group by group, as a broker may coordinate many."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from tidemark_broker.coordinator.core.offsets_records import CommittedOffset
from tidemark_broker.coordinator.core.requests import (
    DescribedGroup,
    FetchedOffset,
    GroupReport,
    GroupsReport,
)
from tidemark_broker.http.group_routes import GroupsDocument
from tidemark_protocol.error_codes import ErrorCode

from tests.unit.broker.http.fake_broker import broker_state, fake_broker
from tests.unit.broker.http.test_server import run, serving


def a_group(name: str, *offsets: int) -> GroupReport:
    committed = tuple(
        FetchedOffset("orders", number, CommittedOffset(offset, -1, "", 1_000, -1))
        for number, offset in enumerate(offsets)
    )
    return GroupReport(DescribedGroup(ErrorCode.NONE, name, "Empty"), committed)


def test_groups_with_their_offsets() -> None:
    report = GroupsReport((a_group("a", 5, 6), a_group("b")), is_partial=lambda: True)
    broker = fake_broker(groups=lambda: report)
    body = asyncio.run(broker.client.get("/groups")).json()
    assert (body["broker_id"], body["is_loading"]) == (0, True)
    assert [group["group"] for group in body["groups"]] == ["a", "b"]
    assert [found["offset"] for found in body["groups"][0]["offsets"]] == [5, 6]


def test_no_groups_are_a_document_too() -> None:
    body = asyncio.run(fake_broker().client.get("/groups?of=broker")).json()
    assert body == {"broker_id": 0, "groups": [], "is_loading": False}


def test_what_became_partial_while_it_was_sent_says_so() -> None:
    has_another_coordinator = False

    def groups() -> Iterator[GroupReport]:
        nonlocal has_another_coordinator
        yield a_group("a")
        has_another_coordinator = True  # and its other groups are left out

    report = GroupsReport(groups(), is_partial=lambda: has_another_coordinator)
    body = asyncio.run(fake_broker(groups=lambda: report).client.get("/groups")).json()
    assert (len(body["groups"]), body["is_loading"]) == (1, True)
    GroupsDocument.model_validate(body)


def test_many_groups_are_not_one_piece_of_work() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    seen_at: list[int] = []

    def groups() -> Iterator[GroupReport]:
        for number in range(20):
            seen_at.append(turns)
            yield a_group(f"{number}", 1)

    async def scenario() -> None:
        broker = fake_broker(groups=lambda: GroupsReport(groups=groups()))
        counting = asyncio.create_task(count_turns())
        response = await broker.client.get("/groups")
        counting.cancel()
        assert len(response.json()["groups"]) == 20

    asyncio.run(scenario())
    assert len(set(seen_at)) == 20, "others had their turn before each"


def test_groups_of_the_pool_are_asked_of_every_broker() -> None:
    async def scenario() -> None:
        there = fake_broker(
            broker_id=1,
            groups=lambda: GroupsReport((a_group("b", 5), a_group("c")), is_partial=lambda: True),
        )
        async with serving(there.app) as port:
            known = (
                broker_state(0),
                broker_state(1, port),
                broker_state(2, 1),  # nobody listens there
                replace(broker_state(3, 1), is_fenced=True),
            )
            here = fake_broker(brokers=known, groups=lambda: GroupsReport((a_group("a", 1),)))
            found = (await here.client.get("/groups")).json()
            alone = (await here.client.get("/groups?of=broker")).json()
        assert [group["group"] for group in found["groups"]] == ["a", "b", "c"]
        assert [each["offset"] for each in found["groups"][1]["offsets"]] == [5]
        assert (found["is_loading"], found["missing_brokers"]) == (True, [2])
        GroupsDocument.model_validate(found)
        assert [group["group"] for group in alone["groups"]] == ["a"]

    run(scenario)


def test_groups_of_something_else_are_refused() -> None:
    assert asyncio.run(fake_broker().client.get("/groups?of=all")).status == 400
