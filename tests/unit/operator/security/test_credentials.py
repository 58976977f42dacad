"""Users of labelled Secrets: who they are, and which Secrets count."""

import asyncio
import base64
from typing import Any

import pytest
from tidemark_operator.security.clients import ReviewUnavailable
from tidemark_operator.security.credentials import CredentialSecrets, users_of
from tidemark_operator.store.object_store import Forbidden, StoreError
from tidemark_protocol.access_messages import Principal


def secret(name: str = "s", *, principal: str | None = None, **keys: str) -> dict[str, Any]:
    keys = keys or {"username": "tim", "password": "secret"}
    annotations = {} if principal is None else {"tidemark.dev/principal": principal}
    return {
        "metadata": {"namespace": "shop", "name": name, "annotations": annotations},
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in keys.items()},
    }


def test_a_user_is_named_after_its_username() -> None:
    user = users_of([secret()])["tim"]
    assert user.password == "secret"
    assert user.principal == Principal("tidemark:user:tim", ("system:authenticated",))


def test_a_user_may_be_a_service_account_of_its_own_namespace() -> None:
    user = users_of([secret(principal="system:serviceaccount:shop:orders")])["tim"]
    assert user.principal.name == "system:serviceaccount:shop:orders"
    assert "system:serviceaccounts:shop" in user.principal.groups


@pytest.mark.parametrize(
    "principal",
    [
        "kubernetes-admin",
        "system:admin",
        "system:serviceaccount:kube-system:default",
        "system:serviceaccount:shop:",
        "system:serviceaccount:shopping:orders",
        "system:masters",
        "tidemark:user:",
        "",
    ],
)
def test_no_secret_makes_its_user_anybody_else(principal: str) -> None:
    assert users_of([secret(principal=principal)]) == {}


def test_a_name_of_two_secrets_belongs_to_neither() -> None:
    other = secret("other", username="ann", password="p")
    assert set(users_of([secret("a"), secret("b"), other, secret("c")])) == {"ann"}


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"username": "dGlt"},
        {"username": "dGlt", "password": "!"},
        {"username": "dGlt", "password": ""},
        {"username": "", "password": "dGlt"},
        {"username": "/w==", "password": "dGlt"},
    ],
)
def test_malformed_secrets_have_no_user(data: Any) -> None:
    assert users_of([secret() | {"data": data}]) == {}


def test_secrets_are_listed_again_after_some_seconds() -> None:
    now_s, lists = [0.0], list[str]()

    async def listed(namespace: str) -> list[dict[str, Any]]:
        lists.append(namespace)
        return [secret()]

    async def scenario() -> None:
        secrets = CredentialSecrets(listed, monotonic_s=lambda: now_s[0])
        for now_s[0] in (0.0, 4.0, 6.0):
            assert await secrets.find("shop", "tim") is not None
            assert await secrets.find("shop", "ann") is None
        assert lists == ["shop", "shop"]

    asyncio.run(scenario())


def test_without_the_permission_there_are_no_users_and_without_an_answer_nothing_is_known() -> None:
    errors: list[StoreError] = [Forbidden("no"), StoreError("timeout")]

    async def failed(_: str) -> list[dict[str, Any]]:
        raise errors.pop(0)

    async def scenario() -> None:
        assert await CredentialSecrets(failed, monotonic_s=float).find("shop", "tim") is None
        with pytest.raises(ReviewUnavailable):
            await CredentialSecrets(failed, monotonic_s=float).find("shop", "tim")

    asyncio.run(scenario())
