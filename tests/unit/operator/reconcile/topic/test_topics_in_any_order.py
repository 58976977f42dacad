"""Users make and delete Topics of few names while turns overlap and events come late: in the end a
topicName has one owner, and no data is served that no Topic has."""

import asyncio
import copy
import random

import pytest
from tidemark_operator.api.kinds import TOPIC, Object

from tests.support.reconcile_harness import NAMESPACE
from tests.support.waiting import run
from tests.unit.operator.reconcile.test_reconcile_cost import CallStore, OrderStore

OBJECTS, NAMES, POLICIES = ("a", "b", "c"), ("x", "y"), ("Retain", "Delete")
QUIET_LOOKS = 20  # of 2 ms each: Topics that wait, and late statuses, are due in 3 ms


class UnevenStore(CallStore):
    """Each call takes some steps of the loop."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    async def _count(self, call: str) -> None:
        await super()._count(call)
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)


class Users:
    def __init__(self, shop: OrderStore, chance: random.Random) -> None:
        self._shop = shop
        self._chance = chance
        self._unannounced: list[tuple[Object, bool]] = []  # object, whether it was deleted

    async def act(self) -> None:
        chance, objects = self._chance, self._shop.store.objects
        name = chance.choice(OBJECTS)
        if (TOPIC.kind, NAMESPACE, name) not in objects:
            spec = {"topicName": chance.choice(NAMES), "deletionPolicy": chance.choice(POLICIES)}
            made = self._shop.store.put(TOPIC, name, spec={"partitions": 3, **spec})
            made["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{chance.randrange(60):02}Z"
            self._unannounced.append((copy.deepcopy(made), False))
        elif chance.random() < 0.6:
            self._unannounced.append((objects.pop((TOPIC.kind, NAMESPACE, name)), True))
        for each in chance.sample(OBJECTS, len(OBJECTS)):  # of one object they keep their order
            first = next((e for e in self._unannounced if e[0]["metadata"]["name"] == each), None)
            if first is not None and chance.random() < 0.6:
                self._notify(first)
        for _ in range(chance.randrange(12)):
            await asyncio.sleep(0)

    async def notify_the_rest(self) -> None:
        while self._unannounced:
            self._notify(self._unannounced[0])
            await asyncio.sleep(0)

    def _notify(self, event: tuple[Object, bool]) -> None:
        self._unannounced.remove(event)
        self._shop.tell(event[0], is_deleted=event[1])


async def until_quiet(shop: OrderStore) -> None:
    looks = 0
    while looks < QUIET_LOOKS:
        before = shop.store.version
        await asyncio.sleep(0.002)
        looks = looks + 1 if shop.store.version == before else 0


def check(shop: OrderStore) -> None:
    topics = [item for (kind, _, _), item in shop.store.objects.items() if kind == TOPIC.kind]
    owned = {
        topic.get("status", {}).get("topicId") or topic["metadata"]["uid"]: topic
        for topic in topics
    }
    views = shop.controller.views
    served = [topic_id for topic_id, view in views.items() if not view.is_retained]
    assert set(served) <= owned.keys()
    names = [views[topic_id].topic.topic for topic_id in served]
    assert len(names) == len(set(names))
    for topic_id, topic in owned.items():
        reason = shop.ready(topic["metadata"]["name"])
        assert (reason == "AllPartitionsLed") == (topic_id in served)
        assert reason in ("AllPartitionsLed", "TopicNameTaken", "SliceNameTaken")


@pytest.mark.parametrize("seed", [3, 16, 45, 48, 73, 102])
def test_names_have_one_owner_whatever_the_order(seed: int) -> None:
    async def scenario() -> None:
        chance = random.Random(seed)
        shop = OrderStore(
            0,
            UnevenStore(chance),
            waiting_interval_ms=3,
            waiting_turns_per_second=1000,
            status_interval_ms=1,
        )
        users = Users(await shop.open(), chance)
        async with shop.working():
            for _ in range(25):
                await users.act()
            await users.notify_the_rest()
            await until_quiet(shop)
        check(shop)

    run(scenario)
