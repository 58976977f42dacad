"""Serve what local mode adds to the controller's API: manifests, and process ids in the status.

`POST /v1/apply` takes YAML documents and answers `{"applied": [{kind, name, action}]}`, or 422 with
`{"problems": [sentences]}`. `DELETE /v1/topics/{name}` deletes a Topic object. GET and PATCH of
`/v1/{topics,brokerpools}/{name}` read one object, and change it by a JSON merge patch; without a
name GET answers `{"items": [objects]}`, and POST creates an object (JSON), or answers 409. `GET
/v1/local` answers `{"uptimeMs": N, "secretFile": PATH}`: what is not up yet may only be starting,
and whatever changes something needs a token that is made of that file.
"""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from aiohttp import web

from tidemark_operator.api.kinds import TOPIC, ResourceKind
from tidemark_operator.manager.local.apply import (
    KINDS,
    NAMESPACE,
    ManifestRejected,
    apply_manifests,
    create_object,
    patch_object,
)
from tidemark_operator.store.object_store import AlreadyExists, ObjectStore, StoreError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MAX_MANIFEST_BYTES = 4 * 1024 * 1024


def add_local_routes(
    app: web.Application,
    store: ObjectStore,
    *,
    secret_file: Path,
    now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
) -> None:
    began_ms = now_ms()

    async def local(_: web.Request) -> web.Response:
        return _json(200, {"uptimeMs": now_ms() - began_ms, "secretFile": str(secret_file)})

    async def apply(request: web.Request) -> web.Response:
        text = await _manifests(request)
        return _json(200, {"applied": await apply_manifests(store, text)})

    async def delete_topic(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if await store.get(TOPIC, NAMESPACE, name) is None:
            return _json(404, {"problems": [f"expected a Topic named {name}, found none"]})
        await store.delete(TOPIC, NAMESPACE, name)
        return _json(200, {"deleted": name})

    async def read(request: web.Request) -> web.Response:
        kind, name = _kind(request), request.match_info["name"]
        found = await store.get(kind, NAMESPACE, name)
        if found is None:
            return _json(404, {"problems": [f"expected a {kind.kind} named {name}, found none"]})
        return _json(200, found)

    async def create(request: web.Request) -> web.Response:
        text = await _manifests(request)
        try:
            return _json(200, await create_object(store, _kind(request), text))
        except AlreadyExists as error:
            return _json(409, {"problems": [str(error)]})

    async def listing(request: web.Request) -> web.Response:
        return _json(200, {"items": await store.list(_kind(request), NAMESPACE)})

    async def patch(request: web.Request) -> web.Response:
        kind, name = _kind(request), request.match_info["name"]
        patch = await _manifests(request)
        return _json(200, await patch_object(store, kind, name, patch.encode()))

    app.router.add_get("/v1/local", local)
    app.router.add_get("/v1/{plural:topics|brokerpools}", _reported(listing))
    app.router.add_post("/v1/{plural:topics|brokerpools}", _reported(create))
    app.router.add_get("/v1/{plural:topics|brokerpools}/{name}", _reported(read))
    app.router.add_patch("/v1/{plural:topics|brokerpools}/{name}", _reported(patch))
    app.router.add_post("/v1/apply", _reported(apply))
    app.router.add_delete("/v1/topics/{name}", _reported(delete_topic))


def _reported(handler: Handler) -> Handler:
    """Answer rejections in their words: 422 for a manifest, 503 for the store."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except ManifestRejected as rejected:
            return _json(422, {"problems": rejected.problems})
        except StoreError as error:
            return _json(503, {"problems": [str(error)]})

    return answer


async def _manifests(request: web.Request) -> str:
    """Return the body. Raises ManifestRejected."""
    body = await request.read()  # the application has a limit of its own too
    if len(body) > MAX_MANIFEST_BYTES:
        raise ManifestRejected([f"expected at most {MAX_MANIFEST_BYTES} bytes, found more"])
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise ManifestRejected([f"expected UTF-8, found {error}"]) from error


def _kind(request: web.Request) -> ResourceKind:
    plural = request.match_info["plural"]
    return next(kind for kind in KINDS.values() if kind.plural == plural)


def _json(status: int, body: object) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(body), content_type="application/json"
    )
