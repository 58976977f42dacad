"""A pool's feed: a page that gets a snapshot and changes knows what the controller shows."""

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark_operator.controller.core.views import BrokerView, TopicView
from tidemark_operator.manager.web.pool_feed import (
    MAX_KEPT_CHANGES,
    PARTITIONS_PER_PART,
    Message,
    PoolFeed,
)
from tidemark_protocol.controller_messages import Endpoints
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import Member, PartitionState, TopicState

from tests.unit.operator.manager.web.page_model import PageModel

HOSTILE = '<img src=x onerror="alert(1)">\u202e\u0645\u0631\u062d\u0628\u0627' + "x" * 215


def partition(number: int, leader: int = 0, epoch: int = 0) -> PartitionState:
    member = Member(BrokerId(leader), BrokerEpoch(1))
    brokers = (BrokerId(0), BrokerId(1))
    leader_epoch, partition_epoch = LeaderEpoch(epoch), PartitionEpoch(epoch)
    one = BrokerEpoch(1)
    return PartitionState(
        number, brokers, BrokerId(leader), one, leader_epoch, (member,), (), partition_epoch, 1
    )


def topic(name: str, *partitions: PartitionState, object_name: str = "") -> TopicView:
    state = TopicState(name, TopicId(f"id-{name}"), len(partitions), 2)
    return TopicView(state, partitions, object_name or name, "Retain", is_retained=False)


def broker(number: int, state: str = "Active") -> BrokerView:
    endpoints = Endpoints("10.0.0.1", 9092, 8080, "http://x")
    return BrokerView(BrokerId(number), BrokerEpoch(1), state, endpoints, "", "a")


def put(feed: PoolFeed, view: TopicView) -> None:
    for _ in feed.set_topic(view.topic.topic_id, view):
        pass


def remove(feed: PoolFeed, name: str) -> None:
    for _ in feed.set_topic(TopicId(f"id-{name}"), None):
        pass


def opened(feed: PoolFeed) -> PageModel:
    page = PageModel()
    event = "begin"
    for part in feed.snapshot():
        page.message(event, json.loads(part))
        event = "part"
    return page


def send(page: PageModel, *messages: Message | None) -> None:
    for message in messages:
        if message is not None:
            page.read(message.body.decode())


def test_change_carries_only_the_partitions_that_changed() -> None:
    feed = PoolFeed("shop/default", 1)
    before = topic("orders", *map(partition, range(600)))
    put(feed, before)
    feed.seal()
    page = opened(feed)
    changed = list(before.partitions)
    changed[400] = partition(400, leader=1, epoch=1)
    put(feed, replace(before, partitions=tuple(changed)))
    sealed = feed.seal()
    assert sealed is not None
    (told,) = json.loads(sealed.body.split(b"data: ")[1])["topics"]
    assert [row[0] for row in told["rows"]] == [400]
    assert "head" not in told
    send(page, sealed)
    assert page.knows([replace(before, partitions=tuple(changed))])


def test_parts_are_bounded_and_encoded_once() -> None:
    feed = PoolFeed("shop/default", 1)
    before = topic("orders", *map(partition, range(2000)))
    put(feed, before)
    for number in range(300):
        put(feed, topic(f"small-{number}", partition(0)))
    feed.seal()
    sizes = [
        sum(len(each["rows"]) for each in json.loads(part).get("topics", ()))
        for part in list(feed.snapshot())[1:]
    ]
    assert sum(sizes) == 2300
    assert max(sizes) <= 2 * PARTITIONS_PER_PART
    known = feed._topics[TopicId("id-orders")].parts
    changed = (*before.partitions[:-1], partition(1999, leader=1, epoch=1))
    put(feed, replace(before, partitions=changed))
    parts = feed._topics[TopicId("id-orders")].parts
    assert parts[-1] is None
    assert all(part is before for part, before in zip(parts[:-1], known, strict=False))


def test_snapshot_stays_of_its_moment_while_the_pool_changes() -> None:
    feed = PoolFeed("shop/default", 1)
    before = topic("orders", partition(0))
    put(feed, before)
    feed.seal()
    parts = feed.snapshot()
    put(feed, topic("orders", partition(0, leader=1, epoch=1)))
    remove(feed, "orders")
    page = PageModel()
    page.message("begin", json.loads(next(parts)))
    for part in parts:
        page.message("part", json.loads(part))
    assert page.knows([before])


def test_page_that_returns_gets_what_it_missed() -> None:
    feed = PoolFeed("shop/default", 7)
    put(feed, topic("orders", partition(0)))
    feed.set_brokers([broker(0)])
    feed.seal()
    page = opened(feed)
    assert page.version == "7.1"
    put(feed, topic("orders", partition(0, leader=1, epoch=1)))
    feed.seal()
    feed.set_brokers([broker(0, "Fenced")])
    feed.seal()
    missed = feed.changes_after(page.version)
    assert missed is not None
    send(page, *missed)
    assert page.knows([topic("orders", partition(0, leader=1, epoch=1))])
    assert (page.version, page.brokers) == ("7.3", {0: "Fenced"})
    assert feed.changes_after("7.3") == []


def test_other_versions_need_a_snapshot() -> None:
    feed = PoolFeed("shop/default", 7)
    for epoch in range(MAX_KEPT_CHANGES + 2):
        put(feed, topic("orders", partition(0, epoch=epoch)))
        feed.seal()
    newest = MAX_KEPT_CHANGES + 2
    hostile = ("", "7", "7.", "6.3", "7.x", f"7.{newest + 1}", "7." + "9" * 400, "7.-1", "7.1")
    assert [feed.changes_after(version) for version in hostile] == [None] * len(hostile)
    missed = feed.changes_after(f"7.{newest - 1}")
    assert missed is not None
    assert len(missed) == 1


def test_nothing_new_is_no_change() -> None:
    feed = PoolFeed("shop/default", 1)
    view = topic("orders", partition(0))
    put(feed, view)
    feed.set_brokers([broker(0)])
    feed.seal()
    put(feed, replace(view))
    feed.set_brokers([broker(0)])
    assert feed.seal() is None


def test_hostile_name_is_data() -> None:
    feed = PoolFeed("shop/default", 1)
    put(feed, topic(HOSTILE, partition(0)))
    page = opened(feed)
    assert [head["topic"] for head in page.heads.values()] == [HOSTILE]
    sealed = feed.seal()
    assert sealed is not None
    assert sealed.body.count(b"\n\n") == 1


def test_topic_without_a_leader_is_read_again_with_time() -> None:
    feed = PoolFeed("shop/default", 1)
    put(feed, topic("orders", partition(0, leader=-1)))
    assert feed.leaderless == {"id-orders"}
    put(feed, topic("orders", partition(0)))
    assert feed.leaderless == set()


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 2)),
        st.tuples(st.just("remove"), st.sampled_from("abc"), st.just(0), st.just(0)),
        st.tuples(st.just("seal"), st.just(""), st.just(0), st.just(0)),
        st.tuples(st.just("open"), st.just(""), st.just(0), st.just(0)),
        st.tuples(st.just("leave"), st.just(""), st.just(0), st.just(0)),
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(OPERATIONS)
def test_every_page_knows_what_is_shown(operations: list[tuple[str, str, int, int]]) -> None:
    """Pages open, leave and return at any moment; after a last change all know the same."""
    feed = PoolFeed("shop/default", 1)
    shown: dict[str, TopicView] = {}
    pages: list[PageModel] = []
    away: list[PageModel] = []
    for epoch, (name, of, count, leader) in enumerate([*operations, ("seal", "", 0, 0)]):
        if name == "put":
            shown[of] = topic(of, *(partition(number, leader, epoch) for number in range(count)))
            put(feed, shown[of])
        elif name == "remove":
            shown.pop(of, None)
            remove(feed, of)
        elif name == "seal":
            sealed = feed.seal()
            for page in pages:
                send(page, sealed)
        elif name == "open":
            pages.append(opened(feed))
        elif pages:
            away.append(pages.pop())
    for page in away:
        missed = feed.changes_after(page.version)
        assert missed is not None
        send(page, *missed)
    assert all(page.knows(shown.values()) for page in pages + away)
