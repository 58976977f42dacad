"""What the API server's answers mean, over a real socket."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio import client
from tidemark_operator.api.kinds import CLUSTER_SCOPE, NODE, TOKEN_REVIEW, TOPIC, Object
from tidemark_operator.reconcile.indexed_store import IndexedStore
from tidemark_operator.store.kubernetes import KubernetesStore
from tidemark_operator.store.object_store import (
    AlreadyExists,
    Conflict,
    Forbidden,
    NamespaceTerminating,
    NotFound,
    OutcomeUnknown,
    Rejected,
    StoreError,
    UnknownKind,
)

ITEM: Object = {"metadata": {"name": "a", "namespace": "shop", "resourceVersion": "7"}}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Use = Callable[[KubernetesStore], Awaitable[Any]]


def answer(status: int, **body: Any) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status)

    return handler


def ask(handler: Handler, use: Use, *, namespaces: tuple[str, ...] = ()) -> Any:
    async def story() -> Any:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        configuration = client.Configuration()
        configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
        api_client = client.ApiClient(configuration)
        store = KubernetesStore(api_client, timeout_ms=300, namespaces=namespaces)
        try:
            return await use(store)
        finally:
            await store.close()
            await runner.cleanup()

    return asyncio.run(story())


@pytest.mark.parametrize(
    ("status", "reason", "error"),
    [
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (404, "NotFound", NotFound),
        (422, "Invalid", Rejected),
        (403, "Forbidden", Forbidden),
        (400, "BadRequest", Rejected),
        (401, "Unauthorized", Rejected),
        (429, "TooManyRequests", StoreError),
        (500, "InternalError", OutcomeUnknown),
        (504, "Timeout", OutcomeUnknown),
    ],
)
def test_a_writes_answer_has_one_meaning(status: int, reason: str, error: type) -> None:
    handler = answer(status, kind="Status", reason=reason, message="the sentence")
    with pytest.raises(StoreError) as caught:
        ask(handler, lambda store: store.create(TOPIC, ITEM))
    assert type(caught.value) is error
    assert "the sentence" in str(caught.value)


@pytest.mark.parametrize(
    "read", [lambda s: s.get(TOPIC, "shop", "a"), lambda s: s.list(TOPIC, "shop")]
)
def test_a_kind_that_is_not_served_is_no_absent_object(read: Use) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(status=404, text="404 page not found\n")  # as the API server does

    with pytest.raises(UnknownKind):
        ask(handler, read)


def test_a_refusal_is_the_servers_own_sentence() -> None:
    with pytest.raises(Rejected, match=r"^no such thing$"):
        ask(answer(422, message="no such thing"), lambda store: store.replace(TOPIC, ITEM))


def test_a_namespace_that_is_going_is_told_apart() -> None:
    causes = [{"reason": "NamespaceTerminating"}]
    handler = answer(403, reason="Forbidden", message="going", details={"causes": causes})
    with pytest.raises(NamespaceTerminating):
        ask(handler, lambda store: store.create(TOPIC, ITEM))


def test_a_write_whose_answer_is_lost_may_have_happened() -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    with pytest.raises(OutcomeUnknown):
        ask(silent, lambda store: store.replace(TOPIC, ITEM))


def test_a_write_whose_connection_broke_may_have_happened() -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    with pytest.raises(OutcomeUnknown):
        ask(broken, lambda store: store.create(TOPIC, ITEM))


def test_a_write_that_found_nobody_did_not_happen() -> None:
    async def use(_: KubernetesStore) -> None:
        configuration = client.Configuration()
        configuration.host = "http://127.0.0.1:1"
        store = KubernetesStore(client.ApiClient(configuration))
        try:
            await store.create(TOPIC, ITEM)
        finally:
            await store.close()

    with pytest.raises(StoreError) as caught:
        ask(answer(200), use)
    assert type(caught.value) is StoreError


def test_what_is_not_there_is_none() -> None:
    assert ask(answer(404, reason="NotFound"), lambda store: store.get(TOPIC, "shop", "a")) is None


def test_deleting_what_is_gone_is_fine() -> None:
    ask(answer(404, reason="NotFound"), lambda store: store.delete(TOPIC, "shop", "a"))


def test_delete_with_a_uid_deletes_only_that_object() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert request.path == "/apis/tidemark.dev/v1alpha1/namespaces/shop/topics/a"
        assert body == {"propagationPolicy": "Background", "preconditions": {"uid": "u"}}
        return web.json_response({})

    ask(handler, lambda store: store.delete(TOPIC, "shop", "a", uid="u"))


def test_delete_with_a_resource_version_deletes_only_what_was_read() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert body["preconditions"] == {"uid": "u", "resourceVersion": "7"}
        return web.json_response({})

    ask(handler, lambda store: store.delete(TOPIC, "shop", "a", uid="u", resource_version="7"))


def test_a_list_is_read_to_its_end_in_name_order() -> None:
    pages = {"": (["c", "a"], "more"), "more": (["b"], "")}

    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.query["labelSelector"] == "a=1,b=2"
        names, following = pages[request.query.get("continue", "")]
        items = [{"metadata": {"name": name}} for name in names]
        return web.json_response({"metadata": {"continue": following}, "items": items})

    found = ask(handler, lambda store: store.list(TOPIC, "shop", {"b": "2", "a": "1"}))
    assert [item["metadata"]["name"] for item in found] == ["a", "b", "c"]
    assert found[0]["kind"] == "Topic"


def test_list_pages_hold_about_a_megabyte() -> None:
    """Decoding a page holds the event loop."""
    limits = []
    sizes = {50: 500_000, 104: 3_000_000, 36: 100}

    async def handler(request: web.Request) -> web.StreamResponse:
        limit = int(request.query["limit"])
        limits.append(limit)
        text = "x" * (sizes[limit] // limit)
        items = [{"metadata": {"name": str(number)}, "text": text} for number in range(limit)]
        following = "more" if len(limits) < 3 else ""
        return web.json_response({"metadata": {"continue": following}, "items": items})

    ask(handler, lambda store: store.list(TOPIC, "shop"))
    assert limits == [50, 104, 36]


def test_index_is_filled_page_by_page() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        name, following = ("b", "") if "continue" in request.query else ("a", "more")
        item = {"metadata": {"name": name, "namespace": "shop", "uid": name}, "spec": {}}
        return web.json_response({"metadata": {"continue": following}, "items": [item]})

    async def use(store: KubernetesStore) -> list[str]:
        indexed = IndexedStore(store)
        await indexed.scan(TOPIC, "shop")
        return [key.name for key in indexed.index.topic_keys()]

    assert ask(handler, use) == ["a", "b"]


def test_field_managers_are_left_at_the_api_server() -> None:
    metadata = {"name": "a", "managedFields": [{"manager": "kubectl"}]}

    async def handler(request: web.Request) -> web.StreamResponse:
        item = {"metadata": metadata}
        is_list = request.path.endswith("topics")
        return web.json_response({"metadata": {}, "items": [item]} if is_list else item)

    assert ask(handler, lambda store: store.get(TOPIC, "shop", "a"))["metadata"] == {"name": "a"}
    (listed,) = ask(handler, lambda store: store.list(TOPIC, "shop"))
    assert listed["metadata"] == {"name": "a"}


def test_all_namespaces_are_the_watched_ones_where_rights_end_there() -> None:
    requested = []

    async def handler(request: web.Request) -> web.StreamResponse:
        requested.append(request.path)
        return web.json_response({"metadata": {}, "items": []})

    ask(handler, lambda store: store.list(TOPIC, None), namespaces=("a", "b"))
    assert requested == [
        "/apis/tidemark.dev/v1alpha1/namespaces/a/topics",
        "/apis/tidemark.dev/v1alpha1/namespaces/b/topics",
    ]


def test_a_replace_without_a_version_is_never_sent() -> None:
    with pytest.raises(ValueError, match="resourceVersion"):
        ask(
            answer(200),
            lambda store: store.replace(TOPIC, {"metadata": {"name": "a", "namespace": "shop"}}),
        )


def test_replace_status_sends_the_object_to_its_subresource() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.text())
        return web.json_response({"path": request.path, "body": body})

    responded = ask(handler, lambda store: store.replace_status(TOPIC, ITEM))
    assert responded["path"].endswith("/namespaces/shop/topics/a/status")
    assert responded["body"] == ITEM


def test_what_is_in_no_namespace_is_read_from_the_root() -> None:
    paths = []

    async def handler(request: web.Request) -> web.StreamResponse:
        paths.append(request.path)
        return web.json_response({"metadata": {"name": "n1"}})

    ask(handler, lambda store: store.get(NODE, CLUSTER_SCOPE, "n1"))
    assert paths == ["/api/v1/nodes/n1"]


def test_a_create_in_a_namespace_that_has_gone_is_known_as_such() -> None:
    gone = answer(
        404, reason="NotFound", message="no such namespace", details={"kind": "namespaces"}
    )
    with pytest.raises(NamespaceTerminating):
        ask(gone, lambda store: store.create(TOPIC, ITEM))
    with pytest.raises(NotFound):
        ask(answer(404, reason="NotFound"), lambda store: store.create(TOPIC, ITEM))


def test_a_review_is_created_and_its_status_returned() -> None:
    sent: list[tuple[str, str, Any]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        sent.append((request.method, request.path, await request.json()))
        return web.json_response({"status": {"authenticated": True}}, status=201)

    found = ask(handler, lambda store: store.review(TOKEN_REVIEW, {"token": "t"}))
    assert found == {"authenticated": True}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "t"}}
    assert sent == [("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body)]


def test_a_review_that_is_not_answered_is_an_error() -> None:
    for handler in (answer(403, reason="Forbidden", message="no"), answer(500)):
        with pytest.raises(StoreError):
            ask(handler, lambda store: store.review(TOKEN_REVIEW, {}))
    assert ask(answer(201), lambda store: store.review(TOKEN_REVIEW, {})) == {}
