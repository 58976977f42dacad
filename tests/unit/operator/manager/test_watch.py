"""What is watched, what its events wake, and that the chart gives the rights for it."""

import asyncio
import re
from pathlib import Path
from typing import Any

from tidemark_operator.manager.watch import ClusterWatch, ObjectEvent
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.resources.persistent_volume_claim import claim_manifest
from tidemark_protocol.ids import BrokerId

from tests.support.api_objects import broker_pool

RULES = Path(__file__).parents[4] / "charts/tidemark/templates/_names.tpl"
POOL = broker_pool(replicas=2, image="image", imagePullPolicy="Never", storage={"size": "1Gi"})


def handlers_of(watch: ClusterWatch) -> dict[str, Any]:
    """By the plural of what they are called for."""
    every = watch._registry()._watching.get_all_handlers()
    found = {}
    for handler in every:
        assert handler.selector is not None
        found[str(handler.selector.any_name or handler.selector.plural)] = handler.fn
    return found


def watch_into(keys: list[WorkKey]) -> ClusterWatch:
    def ignore(value: Any) -> None:
        pass

    return ClusterWatch(
        namespaces=(),
        on_object=ignore,
        on_pod=ignore,
        on_key=keys.append,
        on_trouble=ignore,
        on_end=ignore,
    )


def test_a_claim_that_changed_or_went_wakes_its_pool() -> None:
    keys: list[WorkKey] = []
    on_claim = handlers_of(watch_into(keys))["persistentvolumeclaims"]
    asyncio.run(on_claim(body=claim_manifest(POOL, BrokerId(1)), namespace="shop"))
    asyncio.run(on_claim(body={"metadata": {"name": "of-somebody-else"}}, namespace="shop"))
    assert keys == [WorkKey("BrokerPool", "shop", "default")]


def test_the_chart_allows_every_watch() -> None:
    rules = re.findall(r"resources: \[(.*?)\].*\n  verbs: \[(.*?)\]", RULES.read_text())
    allowed = {name for names, verbs in rules if "watch" in verbs for name in names.split(", ")}
    assert set(handlers_of(watch_into([]))) == allowed


def test_pods_of_brokers_are_followed_for_their_identities() -> None:
    found: list[ObjectEvent] = []

    def ignore(value: Any) -> None:
        pass

    watch = ClusterWatch(
        namespaces=(),
        on_object=ignore,
        on_pod=found.append,
        on_key=ignore,
        on_trouble=ignore,
        on_end=ignore,
    )
    on_pod = handlers_of(watch)["pods"]
    pod = {"metadata": {"name": "default-1", "namespace": "shop", "labels": {}}}
    for event_type in (None, "MODIFIED", "DELETED"):
        asyncio.run(on_pod(event={"type": event_type, "object": pod}, namespace="shop"))
    assert [event.is_deleted for event in found] == [False, False, True]
