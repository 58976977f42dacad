"""Which broker a pod is: only as the operator made it, and only while it is there."""

import asyncio
import copy
from collections.abc import Callable

import pytest
from tidemark_operator.api.kinds import Object
from tidemark_operator.security.broker_identity import BrokerIdentity, BrokerPods, broker_pod
from tidemark_operator.security.rejections import Reason, SenderRejected
from tidemark_operator.security.token_review import ReviewedToken
from tidemark_protocol.access_messages import Principal
from tidemark_protocol.ids import BrokerId

from tests.unit.operator.security.api_server import StoredPods, pod

ONE = BrokerIdentity("shop/default", BrokerId(1))


def bound(
    name: str = "default-1", uid: str = "uid-1", account: str = "system:serviceaccount:shop:default"
) -> ReviewedToken:
    return ReviewedToken(Principal(account), 0.0, name, uid)


def rejected(pods: BrokerPods, token: ReviewedToken) -> SenderRejected:
    with pytest.raises(SenderRejected) as caught:
        asyncio.run(pods.identity_of(token))
    return caught.value


def test_a_pod_speaks_as_the_broker_that_it_was_made_for() -> None:
    api = StoredPods(pod())
    pods = BrokerPods(api.read)
    assert [asyncio.run(pods.identity_of(bound())) for _ in range(3)] == [ONE] * 3
    assert api.reads == 1
    pods.on_pod(pod(2, "uid-2"))  # the watch saw it first
    found = asyncio.run(pods.identity_of(bound("default-2", "uid-2")))
    assert (found.broker_id, api.reads) == (2, 1)


def test_a_message_as_another_broker_or_of_another_pool_is_rejected() -> None:
    ONE.check("shop/default", BrokerId(1))
    for pool, broker_id in (("shop/default", 2), ("shop/other", 1), ("bank/default", 1)):
        with pytest.raises(SenderRejected, match="a broker speaks for itself only") as caught:
            ONE.check(pool, BrokerId(broker_id))
        assert (caught.value.reason, caught.value.status) == (Reason.OTHER_BROKER, 403)


def test_a_pod_that_is_gone_speaks_for_no_broker() -> None:
    api = StoredPods(pod())
    pods = BrokerPods(api.read)
    asyncio.run(pods.identity_of(bound()))
    api.pods.clear()
    pods.on_pod_gone(pod())
    assert rejected(pods, bound()).reason is Reason.NOT_A_BROKER


def test_the_pod_that_follows_is_another_one() -> None:
    api = StoredPods(pod(uid="uid-2"))
    pods = BrokerPods(api.read)
    pods.on_pod(pod(uid="uid-1"))
    pods.on_pod(pod(uid="uid-2"))  # without an event of the first one's end
    assert rejected(pods, bound(uid="uid-1")).reason is Reason.NOT_A_BROKER
    assert asyncio.run(pods.identity_of(bound(uid="uid-2"))) == ONE


def test_tokens_of_no_pod_of_other_users_and_of_other_pods_are_rejected() -> None:
    load = {"metadata": {"name": "load", "namespace": "shop", "uid": "uid-9"}, "spec": {}}
    pods = BrokerPods(StoredPods(pod(), load).read)
    assert "is not bound to a pod" in str(rejected(pods, bound("", "")))
    assert "is not bound to a pod" in str(rejected(pods, bound(account="jane")))
    # The same ServiceAccount as the brokers' pods.
    assert "pod shop/load is no broker" in str(rejected(pods, bound("load", "uid-9")))
    other = "system:serviceaccount:bank:default"
    assert "pod bank/default-1 is no broker" in str(rejected(pods, bound(account=other)))
    pods.on_pod(pod())
    assert "pod bank/default-1 is no broker" in str(rejected(pods, bound(account=other)))


def test_a_pod_that_cannot_be_read_is_no_broker_yet() -> None:
    api = StoredPods(pod())
    api.is_away = True
    assert rejected(BrokerPods(api.read), bound()).reason is Reason.NOT_REVIEWED


def test_a_pod_that_only_looks_like_a_brokers_is_none() -> None:
    assert broker_pod(pod()) is not None
    changes: tuple[Callable[[Object], None], ...] = (
        lambda found: found["metadata"].update(name="other"),
        lambda found: found["metadata"].update(ownerReferences=[]),
        lambda found: found["metadata"].update(labels={}),
        lambda found: found["metadata"]["ownerReferences"][0].update(controller=False),
        lambda found: found["metadata"]["ownerReferences"][0].update(name="another"),
        lambda found: found["metadata"]["labels"].update({"tidemark.dev/broker-id": "2"}),
    )
    for change in changes:
        changed = copy.deepcopy(pod())
        change(changed)
        assert broker_pod(changed) is None


def test_a_broker_without_a_token_is_known_by_its_address_until_it_sends_one() -> None:
    pods = BrokerPods(StoredPods().read)
    assert pods.at_address("10.0.0.1") is None
    pods.on_pod(pod())
    assert pods.at_address("10.0.0.1") == ONE
    assert pods.at_address("10.0.0.2") is None
    asyncio.run(pods.identity_of(bound()))
    assert pods.at_address("10.0.0.1") is None
    pods.on_pod(pod(podIP="10.0.0.1"))  # a later event of the same pod
    assert pods.at_address("10.0.0.1") is None


def test_an_address_that_two_pods_had_or_that_an_ended_pod_had_is_nobodys() -> None:
    pods = BrokerPods(StoredPods().read)
    pods.on_pod(pod())
    pods.on_pod(pod(2, "uid-2"))
    assert pods.at_address("10.0.0.1") is None
    pods.on_pod(pod(2, "uid-2", phase="Failed"))
    assert pods.at_address("10.0.0.1") == ONE
    pods.on_pod_gone(pod())
    assert pods.at_address("10.0.0.1") is None
