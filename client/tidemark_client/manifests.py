"""Read manifests and apply them at a controller."""

import aiohttp
import msgspec
from tidemark_protocol.manifests import UnreadableManifest, read_objects

from tidemark_client.errors import EXIT_USAGE, CommandFailed
from tidemark_client.kubernetes_objects import Applied, Manifest
from tidemark_client.local_secret import person_headers
from tidemark_client.trust import tls_context

APPLY_PATH = "/v1/apply"
APPLY_TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=2)
MAX_MANIFEST_BYTES = 4 * 1024 * 1024


def read_manifests(text: str) -> list[Manifest]:
    """Return the objects of YAML documents. Raises CommandFailed with the place."""
    try:
        documents = read_objects(text)
    except UnreadableManifest as error:
        raise CommandFailed(
            expected="YAML",
            found=str(error),
            to_do="correct the manifest at that line",
            exit_code=EXIT_USAGE,
        ) from error
    for number, document in enumerate(documents, start=1):
        metadata = document.get("metadata") if isinstance(document, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not name or "kind" not in document or "apiVersion" not in document:
            raise CommandFailed(
                expected="objects with apiVersion, kind and metadata.name",
                found=f"document {number}: {str(document)[:100]}",
                to_do="start from examples/orders.yaml",
                exit_code=EXIT_USAGE,
            )
    if not documents:
        raise CommandFailed(
            expected="at least one manifest",
            found="an empty file",
            to_do="start from examples/orders.yaml",
            exit_code=EXIT_USAGE,
        )
    return documents


async def apply_at_controller(url: str, manifests: list[Manifest]) -> list[Applied]:
    """Post the manifests to the controller; an error has the controller's own text."""
    body = b"\n---\n".join(map(msgspec.json.encode, manifests))  # JSON is YAML
    headers = {"Content-Type": "application/yaml", **await person_headers(url)}
    try:
        async with (
            aiohttp.ClientSession(timeout=APPLY_TIMEOUT, trust_env=False) as session,
            session.post(
                url + APPLY_PATH, data=body, headers=headers, ssl=tls_context(url) or True
            ) as response,
        ):
            data = await response.read()
            status = response.status
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise CommandFailed(
            expected=f"a response of the controller at {url}",
            found=str(error) or type(error).__name__,
            to_do="check that `tidemark dev` runs",
        ) from error
    if status not in (200, 201):
        raise CommandFailed(
            expected="manifests that the controller accepts",
            found=_rejection(data),
            to_do="correct the manifest and apply it again",
        )
    return _read_applied(data, manifests)


def _rejection(data: bytes) -> str:
    try:
        body = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data[:500].decode(errors="replace")
    if isinstance(body, dict):
        found = next((body[key] for key in ("problems", "detail", "error") if key in body), body)
        return "; ".join(map(str, found)) if isinstance(found, list) else str(found)
    return str(body)


def _read_applied(data: bytes, manifests: list[Manifest]) -> list[Applied]:
    """Return the result of each object; `applied` where the response has no entry for it."""
    try:
        body = msgspec.json.decode(data)
    except msgspec.DecodeError:
        body = None
    listed = body.get("applied", body.get("objects")) if isinstance(body, dict) else body
    actions: dict[tuple[str, str], str] = {}
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict):
            action = entry.get("action") or entry.get("result") or "applied"
            actions[str(entry.get("kind")), str(entry.get("name"))] = str(action)
    return [
        Applied(kind, name, actions.get((kind, name), "applied"))
        for manifest in manifests
        for kind, name in [(str(manifest["kind"]), str(manifest["metadata"]["name"]))]
    ]
