"""Implement ObjectStore by the Kubernetes API: raw JSON by path, a limit on every call.

409 of a create is AlreadyExists (or Conflict), 409 else Conflict, 404 of a write NotFound, 403
Forbidden and 400/401/405/413/415/422 Rejected with the server's sentence. A write whose response
was lost, timed out or was a server's error may have happened: OutcomeUnknown (S3). Nothing is
retried here; below, aiohttp sends a PUT or DELETE again if a reused connection had broken, so a
Conflict may be with one's own write. Reads have no resourceVersion, so they are quorum reads.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from kubernetes.aio import client, config

from tidemark_operator.api.kinds import Object, ResourceKind
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

# Inside the class `list` is the method.
Objects = list[Object]

# Decoding holds the loop, and with it the controller's answers to brokers: a megabyte takes some
# 20 ms. A slice of 128 partitions is a hundred times as large as a Topic, so pages go by bytes.
FIRST_PAGE_SIZE = 50
MAX_PAGE_SIZE = 500
PAGE_BYTES = 1024 * 1024
MAX_PAGES = 10_000
_REJECTIONS = frozenset({400, 401, 405, 413, 415, 422})
# Sent back before the request was looked at: it did not happen.
_NOT_HANDLED = frozenset({429, 503})


class KubernetesStore:
    """A store of the Kubernetes API.

    `namespaces` if "all namespaces" means only these, with a Role in each; empty: all. `left_out`
    are those of them in which nothing is read or written (`forbidden_namespaces`).
    """

    def __init__(
        self,
        api_client: Any,  # kubernetes.aio is typed in part only
        *,
        timeout_ms: int = 5000,
        namespaces: tuple[str, ...] = (),
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        self._api = api_client
        self._timeout_ms = timeout_ms
        self._namespaces = namespaces
        self._left_out = left_out

    def without(self, left_out: frozenset[str]) -> "KubernetesStore":
        """Return a store without these namespaces over the same connections."""
        return KubernetesStore(
            self._api,
            timeout_ms=self._timeout_ms,
            namespaces=self._namespaces,
            left_out=left_out,
        )

    async def close(self) -> None:
        await self._api.close()

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        try:
            return await self._call("GET", self._path(kind, namespace, name))
        except UnknownKind:
            raise
        except NotFound:
            return None

    async def list(
        self, kind: ResourceKind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        found: Objects = []
        for each in self._parts(namespace):
            items = [item async for page in self._pages(kind, each, labels) for item in page]
            found += sorted(items, key=_order)
        return found

    async def pages(self, kind: ResourceKind, namespace: str | None) -> AsyncIterator[Objects]:
        for each in self._parts(namespace):
            async for page in self._pages(kind, each, None):
                yield page

    async def create(self, kind: ResourceKind, item: Object) -> Object:
        return await self._call("POST", self._path(kind, item["metadata"]["namespace"]), item)

    async def review(self, kind: ResourceKind, spec: Object) -> Object:
        """Return the status of a review, which the API server answers and does not store."""
        item = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
        status: Object = (await self._call("POST", _path(kind, None), item)).get("status") or {}
        return status

    async def replace(self, kind: ResourceKind, item: Object) -> Object:
        _require_version(kind, item)
        return await self._call("PUT", self._item_path(kind, item), item)

    async def replace_status(self, kind: ResourceKind, item: Object) -> Object:
        _require_version(kind, item)
        return await self._call("PUT", self._item_path(kind, item) + "/status", item)

    async def delete(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        # Background, so that nothing a pod needs for its shutdown goes before it does.
        options: Object = {"propagationPolicy": "Background"}
        expected = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {name: value for name, value in expected.items() if value is not None}
        if preconditions:
            options["preconditions"] = preconditions
        try:
            await self._call("DELETE", self._path(kind, namespace, name), options)
        except NotFound:
            return

    def _parts(self, namespace: str | None) -> tuple[str | None, ...]:
        if namespace is None and self._namespaces:
            return tuple(each for each in self._namespaces if each not in self._left_out)
        return (namespace,)

    async def _pages(
        self, kind: ResourceKind, namespace: str | None, labels: Mapping[str, str] | None
    ) -> AsyncIterator[Objects]:
        query = {"limit": str(FIRST_PAGE_SIZE)}
        if labels:
            query["labelSelector"] = ",".join(f"{name}={labels[name]}" for name in sorted(labels))
        for _ in range(MAX_PAGES):
            path = f"{self._path(kind, namespace)}?{urlencode(query)}"
            data = await self._call_for_bytes("GET", path)
            page: Object = msgspec.json.decode(data)
            found: Objects = page.get("items") or []
            # Items of a list come without apiVersion and kind.
            yield [
                _trimmed({"apiVersion": kind.api_version, "kind": kind.kind, **item})
                for item in found
            ]
            following = page["metadata"].get("continue")
            if not following:
                return
            query["continue"] = following
            query["limit"] = str(_next_page_size(len(found), len(data)))
        raise StoreError(f"list of {kind.plural}: more than {MAX_PAGES} pages")

    def _path(self, kind: ResourceKind, namespace: str | None, name: str | None = None) -> str:
        if namespace in self._left_out:
            raise Forbidden(
                f"{kind.plural} in namespace {namespace}: not read, because permissions are missing"
            )
        return _path(kind, namespace, name)

    def _item_path(self, kind: ResourceKind, item: Object) -> str:
        return self._path(kind, item["metadata"]["namespace"], item["metadata"]["name"])

    async def _call(self, method: str, path: str, body: Object | None = None) -> Object:
        response: Object = msgspec.json.decode(await self._call_for_bytes(method, path, body))
        return _trimmed(response)

    async def _call_for_bytes(self, method: str, path: str, body: Object | None = None) -> bytes:
        what = f"{method} {path}"
        is_write = method != "GET"
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                status, data = await self._exchange(method, path, body)
        except aiohttp.ClientConnectorError as error:
            raise StoreError(f"{what}: no connection: {error}") from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            lost = OutcomeUnknown if is_write else StoreError
            detail = str(error) or type(error).__name__
            raise lost(f"{what}: no response within {self._timeout_ms} ms: {detail}") from error
        if 200 <= status < 300:
            return data
        raise _failure(method, what, status, data)

    async def _exchange(self, method: str, path: str, body: Object | None) -> tuple[int, bytes]:
        request = await self._api.param_serialize(
            method,
            path,
            header_params={"Accept": "application/json", "Content-Type": "application/json"},
            auth_settings=["BearerToken"],
        )
        _, url, headers, _, _ = request
        limit = aiohttp.ClientTimeout(total=self._timeout_ms / 1000)
        response = await self._api.rest_client.request(
            method, url, headers=headers, body=body, _request_timeout=limit
        )
        data: bytes = await response.read()
        return response.status, data


async def connect(
    *, kubeconfig: str | None = None, timeout_ms: int = 5000, namespaces: tuple[str, ...] = ()
) -> KubernetesStore:
    """Connect with the pod's ServiceAccount, else by `kubeconfig` or its default."""
    untyped: Any = config
    configuration = client.Configuration()
    try:
        untyped.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        await untyped.load_kube_config(config_file=kubeconfig, client_configuration=configuration)
    configuration.retries = None
    api_client = client.ApiClient(configuration)
    api_client.user_agent = "tidemark-operator"
    return KubernetesStore(api_client, timeout_ms=timeout_ms, namespaces=namespaces)


def _failure(method: str, what: str, status: int, data: bytes) -> StoreError:
    reason, message, causes, about = _words(data)
    text = f"{what}: {status} {reason}: {message}"
    if status == 404 and method == "POST" and about == "namespaces":
        return NamespaceTerminating(message)  # it has gone
    if status == 404:  # of a path that nobody serves it is bare text
        return NotFound(text) if reason == "NotFound" else UnknownKind(text)
    if status == 409:
        return AlreadyExists(text) if reason == "AlreadyExists" else Conflict(text)
    if "NamespaceTerminating" in causes:
        return NamespaceTerminating(message)
    if status == 403:
        return Forbidden(message or text)
    if status in _REJECTIONS:
        return Rejected(message or text)
    if method == "GET" or status in _NOT_HANDLED:
        return StoreError(text)
    return OutcomeUnknown(text)


def _words(data: bytes) -> tuple[str, str, tuple[str, ...], str]:
    """Return reason, message, causes and resource of a metav1.Status.

    A proxy's text is shortened.
    """
    try:
        response: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "", data[:200].decode(errors="replace"), (), ""
    if not isinstance(response, dict):
        return "", "", (), ""
    details = response.get("details") or {}
    causes = details.get("causes") or ()
    return (
        str(response.get("reason", "")),
        str(response.get("message", "")),
        tuple(str(cause.get("reason", "")) for cause in causes),
        str(details.get("kind", "")),
    )


def _trimmed(item: Object) -> Object:
    """Remove managedFields, which are as large as the rest and are not used.

    The API server keeps its own copy when an object is written without them.
    """
    if "metadata" in item:
        item["metadata"].pop("managedFields", None)
    return item


def _next_page_size(items: int, size_bytes: int) -> int:
    """Return how many objects of this page's size are PAGE_BYTES."""
    if not items:
        return FIRST_PAGE_SIZE
    return max(1, min(MAX_PAGE_SIZE, items * PAGE_BYTES // max(size_bytes, 1)))


def _path(kind: ResourceKind, namespace: str | None, name: str | None = None) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    item = f"/{quote(name, safe='')}" if name is not None else ""
    return f"{root}{scope}/{kind.plural}{item}"


def _require_version(kind: ResourceKind, item: Object) -> None:
    """Raise ValueError without a resourceVersion: the API server would overwrite the object."""
    if not item["metadata"].get("resourceVersion"):
        name = item["metadata"].get("name")
        raise ValueError(f"replace of {kind.kind} {name}: expected a resourceVersion, found none")


def _order(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
