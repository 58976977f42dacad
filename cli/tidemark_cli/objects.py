"""Read Topics and BrokerPools and patch one, in local mode and on Kubernetes.

A change is a JSON merge patch (RFC 7396). The server that stores the object validates it as it does
manifests, and its error is printed unchanged.
"""

import argparse
from typing import Any

import aiohttp
import msgspec
from tidemark_client.errors import EXIT_USAGE, CommandFailed, not_found
from tidemark_client.kubernetes_objects import PLURALS, KubernetesObjects, Manifest
from tidemark_client.local_brokers import LOCAL_CONTROLLER_URL
from tidemark_client.local_secret import person_headers
from tidemark_client.targets import Target, find_api
from tidemark_client.trust import tls_context

LOCAL_NAMESPACE = "default"
TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=2)


async def read_object(arguments: argparse.Namespace, kind: str, name: str) -> Manifest:
    """Read an object as it is stored.

    Raises CommandFailed if there is none.
    """
    target = await find_api(arguments)
    if target.controller_url:
        return await _ask(target, "GET", kind, name, None)
    _check_has_objects(target)
    objects = await KubernetesObjects.connect(target.kube_context, arguments.namespace)
    async with objects:
        return await objects.get(kind, name)


async def list_objects(arguments: argparse.Namespace, kind: str) -> list[Manifest]:
    """List the objects of the namespace in name order; none where only brokers answer."""
    target = await find_api(arguments)
    if target.is_kubernetes:
        objects = await KubernetesObjects.connect(target.kube_context, arguments.namespace)
        async with objects:
            return await objects.list(PLURALS[kind])
    if not target.controller_url:
        return []
    status, response = await _exchange(target, "GET", f"/v1/{PLURALS[kind]}")
    return list(response["items"]) if status == 200 else []  # only local mode serves objects


async def patch_object(
    arguments: argparse.Namespace, kind: str, name: str, patch: dict[str, Any]
) -> Manifest:
    """Patch an object and return it as it is stored then."""
    target = await find_api(arguments)
    if target.controller_url:
        return await _ask(target, "PATCH", kind, name, patch)
    _check_has_objects(target)
    objects = await KubernetesObjects.connect(target.kube_context, arguments.namespace)
    async with objects:
        return await objects.patch(kind, name, patch)


async def create_object(arguments: argparse.Namespace, manifest: Manifest) -> Manifest:
    """Create an object and return it as it is stored then."""
    target = await find_api(arguments)
    kind, name = str(manifest["kind"]), str(manifest["metadata"]["name"])
    if target.controller_url:
        body = msgspec.json.encode(manifest)
        status, response = await _exchange(target, "POST", f"/v1/{PLURALS[kind]}", body)
        await _check_done(target, status, response, kind, name)
        made: Manifest = response
        return made
    _check_has_objects(target)
    objects = await KubernetesObjects.connect(target.kube_context, arguments.namespace)
    async with objects:
        return await objects.create(manifest)


async def delete_object(arguments: argparse.Namespace, kind: str, name: str) -> None:
    target = await find_api(arguments)
    if target.controller_url:
        status, response = await _exchange(target, "DELETE", f"/v1/{PLURALS[kind]}/{name}")
        await _check_done(target, status, response, kind, name)
        return
    _check_has_objects(target)
    objects = await KubernetesObjects.connect(target.kube_context, arguments.namespace)
    async with objects:
        await objects.delete(kind, name)


async def object_namespace(arguments: argparse.Namespace) -> str:
    """Return the namespace of this command's objects."""
    target = await find_api(arguments)
    if not target.is_kubernetes:
        return LOCAL_NAMESPACE
    objects = await KubernetesObjects.connect(target.kube_context, arguments.namespace)
    async with objects:
        return objects.namespace


def _check_has_objects(target: Target) -> None:
    if not target.is_kubernetes:
        raise CommandFailed(
            "A broker has no objects: name the controller.",
            expected="the controller of a local cluster, or a kubeconfig context",
            found=f"a broker at {target.broker_urls[0]}, which has no Topic objects",
            to_do=f"name the controller: --server {LOCAL_CONTROLLER_URL}, or use --context",
            exit_code=EXIT_USAGE,
        )


async def _ask(
    target: Target, method: str, kind: str, name: str, patch: dict[str, Any] | None
) -> Manifest:
    body = None if patch is None else msgspec.json.encode(patch)
    status, response = await _exchange(target, method, f"/v1/{PLURALS[kind]}/{name}", body)
    await _check_done(target, status, response, kind, name)
    found: Manifest = response
    return found


async def _check_done(target: Target, status: int, answer: Any, kind: str, name: str) -> None:
    if status == 200:
        return
    if status == 404:
        if not (isinstance(answer, dict) and answer.get("problems")):
            raise CommandFailed(
                f"The controller at {target.controller_url} serves no {kind} objects.",
                expected="the controller of `tidemark dev`",
                found="a controller on Kubernetes",
                to_do="remove --server and use the kubeconfig context",
                exit_code=EXIT_USAGE,
            )
        _, listed = await _exchange(target, "GET", f"/v1/{PLURALS[kind]}")
        known = [item["metadata"]["name"] for item in listed.get("items", ())]
        raise not_found(kind, name, known)
    problems = answer.get("problems") if isinstance(answer, dict) else None
    sentences = [str(each).removeprefix(f"{kind} {name}: ") for each in problems or ()]
    found = "; ".join(sentences or [f"HTTP {status} {answer}"])
    if status >= 500:  # of the store: nothing about the command is wrong
        raise CommandFailed(
            f"{kind} {name!r} could not be stored: {found}",
            to_do="if the disk of the data directory is full, free space; then try again",
        )
    raise CommandFailed(
        f"{kind} {name!r} was rejected: {found}",
        to_do="correct the command; `tidemark status` shows what exists",
    )


async def _exchange(
    target: Target, method: str, path: str, body: bytes | None = None
) -> tuple[int, Any]:
    """Send a request and return status and JSON of the response; {} if it is not JSON."""
    headers = {} if method == "GET" else await person_headers(target.controller_url)
    url = target.controller_url + path
    try:
        async with (
            aiohttp.ClientSession(timeout=TIMEOUT, trust_env=False) as session,
            session.request(
                method, url, data=body, headers=headers, ssl=tls_context(url) or True
            ) as response,
        ):
            if response.content_type != "application/json":
                return response.status, {}
            return response.status, msgspec.json.decode(await response.read())
    except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError) as error:
        raise CommandFailed(
            f"The controller at {target.controller_url} does not respond.",
            expected=f"a response of the controller at {target.controller_url}",
            found=str(error) or type(error).__name__,
            to_do="check that `tidemark dev` runs",
        ) from error
