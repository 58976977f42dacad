"""Ask the Kubernetes API from a pod: objects, watches, commands in containers, deletions of pods.

The rights are those of the pod's service account. Each call has a time limit, and raises
CommandFailed with the server's sentence when it is rejected or lost.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from tidemark_client.errors import CommandFailed

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CALL_SECONDS = 10.0
WATCH_SECONDS = 300
MAX_LINE_BYTES = 16 * 1024 * 1024
LEASE = "tidemark-controller"  # of the operator; its holder leads
STDOUT = 1  # the channel of a command's output, as the first byte of a message
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")

Manifest = dict[str, Any]


class PodsApi:
    """A connection to the API server, for one namespace; an async context manager."""

    def __init__(
        self, url: str, namespace: str, *, account: Path, tls: ssl.SSLContext | None
    ) -> None:
        """Create it; `account` holds the token, which is read again for each call: it expires."""
        self.namespace = namespace
        self._url = url.rstrip("/")
        self._account = account
        connector = aiohttp.TCPConnector(ssl=True if tls is None else tls)
        self._session = aiohttp.ClientSession(connector=connector, read_bufsize=MAX_LINE_BYTES)

    @classmethod
    def of_pod(cls, namespace: str, environment: Mapping[str, str] = os.environ) -> Self:
        """Return a connection with the rights of this pod's service account."""
        host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
        host = f"[{host}]" if ":" in host else host
        tls = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        return cls(f"https://{host}:{port}", namespace, account=ACCOUNT, tls=tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    # ---- objects of Tidemark

    async def get(self, plural: str, name: str) -> Manifest | None:
        """Return an object, or None if there is none."""
        return await self._call("GET", self._path(plural, name), is_missing_fine=True)

    async def create(self, plural: str, manifest: Manifest) -> None:
        await self._call("POST", self._path(plural), manifest)

    async def delete(self, plural: str, name: str) -> None:
        """Delete an object; a missing one is no error."""
        await self._call("DELETE", self._path(plural, name), is_missing_fine=True)

    async def patch_status(self, plural: str, name: str, fields: Manifest) -> None:
        """Set fields of a status by a merge patch; all others stay."""
        await self._call("PATCH", f"{self._path(plural, name)}/status", {"status": fields})

    async def watch(self, plural: str) -> AsyncIterator[tuple[str, Manifest]]:
        """Yield all objects of a kind, then their changes, until the server ends the watch."""
        path = self._path(plural)
        listed = await self._call("GET", path) or {}
        for item in listed["items"]:
            yield "ADDED", item
        query = {
            "watch": "1",
            "resourceVersion": listed["metadata"]["resourceVersion"],
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        limit = aiohttp.ClientTimeout(total=WATCH_SECONDS + CALL_SECONDS, sock_connect=CALL_SECONDS)
        async with self._session.get(
            f"{self._url}{path}?{urlencode(query)}", headers=await self._headers(), timeout=limit
        ) as response:
            async for line in response.content:
                event = msgspec.json.decode(line)
                yield str(event.get("type", "")), dict(event.get("object") or {})

    # ---- pods

    async def pods(self, labels: str, namespace: str | None = None) -> list[Manifest]:
        query = urlencode({"labelSelector": labels})
        listed = await self._call("GET", f"{self._pods(namespace)}?{query}") or {}
        return list(listed.get("items") or ())

    async def delete_pod(
        self, name: str, *, namespace: str | None = None, is_forced: bool = False
    ) -> None:
        """Delete a pod; a missing one is no error."""
        options: Manifest = {"gracePeriodSeconds": 0} if is_forced else {}
        path = f"{self._pods(namespace)}/{quote(name, safe='')}"
        await self._call("DELETE", path, options, is_missing_fine=True)

    async def execute(self, pod: str, command: Sequence[str]) -> str:
        """Run a command in a pod's container and return what it printed.

        What was printed counts, also if the container ends before the command does.
        """
        query = [("stdout", "1"), ("stderr", "1"), *(("command", word) for word in command)]
        url = f"{self._url}{self._pods(None)}/{quote(pod, safe='')}/exec?{urlencode(query)}"
        printed = b""
        try:
            async with (
                asyncio.timeout(CALL_SECONDS),
                self._session.ws_connect(
                    url, headers=await self._headers(), protocols=PROTOCOLS
                ) as socket,
            ):
                async for message in socket:
                    data = message.data
                    if isinstance(data, bytes) and data[:1] == bytes([STDOUT]):
                        printed += data[1:]
        except (OSError, TimeoutError, aiohttp.ClientError) as error:
            if not printed:
                raise _failed(f"a command in pod {pod}", str(error) or "no response") from error
        return printed.decode(errors="replace")

    async def leading_operator(self, namespace: str) -> str:
        """Return the name of the operator's pod that holds the Lease, or an empty string."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{LEASE}"
        lease = await self._call("GET", path, is_missing_fine=True) or {}
        return str((lease.get("spec") or {}).get("holderIdentity") or "").partition("/")[0]

    async def create_config_map(self, manifest: Manifest) -> None:
        await self._call("POST", f"/api/v1/namespaces/{self.namespace}/configmaps", manifest)

    # ---- calls

    def _path(self, plural: str, name: str = "") -> str:
        item = f"/{quote(name, safe='')}" if name else ""
        return f"/apis/tidemark.dev/v1alpha1/namespaces/{self.namespace}/{plural}{item}"

    def _pods(self, namespace: str | None) -> str:
        return f"/api/v1/namespaces/{namespace or self.namespace}/pods"

    async def _headers(self) -> dict[str, str]:
        token = await asyncio.to_thread((self._account / "token").read_text)
        return {"Authorization": f"Bearer {token.strip()}", "Accept": "application/json"}

    async def _call(
        self, method: str, path: str, body: Manifest | None = None, *, is_missing_fine: bool = False
    ) -> Manifest | None:
        """Return the response; None for a missing object that may be missing."""
        headers = await self._headers()
        kind = "merge-patch+json" if method == "PATCH" else "json"
        headers["Content-Type"] = f"application/{kind}"
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with (
                asyncio.timeout(CALL_SECONDS),
                self._session.request(
                    method, f"{self._url}{path}", headers=headers, data=data
                ) as response,
            ):
                answer = await response.read()
        except (OSError, TimeoutError, aiohttp.ClientError) as error:
            found = str(error) or f"no response within {CALL_SECONDS:g} s"
            raise _failed(f"{method} {path}", found) from error
        if response.status == 404 and is_missing_fine:
            return None
        if not response.ok:
            raise _failed(f"{method} {path}", f"{response.status} {_message(answer)}")
        found_object: Manifest = msgspec.json.decode(answer)
        return found_object


def _failed(what: str, found: str) -> CommandFailed:
    return CommandFailed(
        expected=f"the API server to do: {what}",
        found=found,
        to_do="check the Role of the service account, and the API server",
    )


def _message(answer: bytes) -> str:
    """Return the message of a metav1.Status, or the text itself."""
    try:
        found = msgspec.json.decode(answer)
    except msgspec.DecodeError:
        return answer[:500].decode(errors="replace")
    return str(found.get("message") or "")[:500] if isinstance(found, dict) else ""
