"""`tidemark apply -f FILE`: manifests to local mode's controller or to the Kubernetes API server.

Local mode checks them against the same schemas and rules as the CRDs do; the sentences come from
there, not from here.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

import aiohttp
import msgspec
from rich.console import Console
from tidemark_protocol.manifests import UnreadableManifest, read_objects

from tidemark_cli.arguments import LOCAL_CONTROLLER_URL
from tidemark_cli.failures import EXIT_OK, EXIT_USAGE, CommandFailed
from tidemark_cli.kubernetes_objects import Applied, KubernetesObjects, Manifest
from tidemark_cli.output import Output
from tidemark_cli.targets import find_target

HELP = "create or change topics and broker pools from manifests"
APPLY_PATH = "/v1/apply"
APPLY_TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=2)
MAX_MANIFEST_BYTES = 4 * 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--file",
        dest="files",
        action="append",
        required=True,
        metavar="FILE",
        help="YAML manifests, repeatable; - is stdin",
    )


async def run(arguments: argparse.Namespace, output: Output) -> int:
    text = "\n---\n".join(_read(name) for name in arguments.files)
    manifests = read_manifests(text)
    target = await find_target(arguments)
    if target.controller_url:
        applied = await apply_at_controller(target.controller_url, manifests)
    elif target.is_kubernetes:
        objects = await KubernetesObjects.connect(target.kube_context, arguments.namespace)
        async with objects:
            applied = [await objects.apply(manifest) for manifest in manifests]
    else:
        raise CommandFailed(
            expected="the controller of a local cluster, or a kubeconfig context",
            found=f"a broker at {target.broker_urls[0]}, which takes no manifests",
            to_do=f"name the controller: --server {LOCAL_CONTROLLER_URL}, or use --context",
            exit_code=EXIT_USAGE,
        )
    for entry in applied:
        output.result(entry, partial(_draw, entry))
    return EXIT_OK


def _draw(applied: Applied, console: Console) -> None:
    console.print(f"{applied.kind.lower()}/{applied.name} {applied.action}")


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
    """POST of the YAML documents; a refusal's text is the controller's own."""
    body = b"\n---\n".join(map(msgspec.json.encode, manifests))  # JSON is YAML
    try:
        async with (
            aiohttp.ClientSession(timeout=APPLY_TIMEOUT, trust_env=False) as session,
            session.post(
                url + APPLY_PATH, data=body, headers={"Content-Type": "application/yaml"}
            ) as response,
        ):
            data = await response.read()
            status = response.status
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise CommandFailed(
            expected=f"the controller at {url} to answer",
            found=str(error) or type(error).__name__,
            to_do="check that `tidemark dev` runs",
        ) from error
    if status not in (200, 201):
        raise CommandFailed(
            expected="manifests that the controller accepts",
            found=_refusal(data),
            to_do="correct the manifest and apply it again",
        )
    return _read_applied(data, manifests)


def _refusal(data: bytes) -> str:
    try:
        body = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data[:500].decode(errors="replace")
    if isinstance(body, dict):
        found = next((body[key] for key in ("problems", "detail", "error") if key in body), body)
        return "; ".join(map(str, found)) if isinstance(found, list) else str(found)
    return str(body)


def _read_applied(data: bytes, manifests: list[Manifest]) -> list[Applied]:
    """What the answer says per object; where it says nothing, only that it was applied."""
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


def _read(name: str) -> str:
    if name == "-":
        return sys.stdin.read(MAX_MANIFEST_BYTES)
    try:
        with Path(name).open(encoding="utf-8") as file:
            return file.read(MAX_MANIFEST_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(
            expected=f"a readable manifest {name}",
            found=str(error),
            to_do="check the path given with -f",
            exit_code=EXIT_USAGE,
        ) from error
