"""Create, change and read Tidemark's objects by the Kubernetes API, for the command line."""

from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import msgspec
from tidemark_protocol.manifests import with_manifest

from tidemark_client.cluster_status import ClusterStatus, status_of_objects
from tidemark_client.errors import EXIT_USAGE, CommandFailed

GROUP = "tidemark.dev"
VERSION = "v1alpha1"
PLURALS = {"Topic": "topics", "BrokerPool": "brokerpools"}
REPLACE_ATTEMPTS = 3
STRICT = {"field_validation": "Strict"}  # what the server does not know is rejected, not dropped

OPERATOR_LABELS = "app.kubernetes.io/name=tidemark,app.kubernetes.io/component=operator"

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Applied:
    kind: str
    name: str
    action: str  # created | configured | unchanged | applied


class KubernetesObjects:
    """A connection to an API server; an async context manager."""

    def __init__(self, api_client: Any, namespace: str) -> None:
        from kubernetes.aio import client

        self._api_client = api_client
        self._namespace = namespace
        self._objects: Any = client.CustomObjectsApi(api_client)
        self._failure: type[Exception] = client.ApiException

    @classmethod
    async def connect(cls, context: str | None, namespace: str | None) -> Self:
        from kubernetes.aio import client  # slow to import: only where needed
        from kubernetes.aio import config as typed_config

        config: Any = typed_config

        try:
            await config.load_kube_config(context=context)
            _, active = config.list_kube_config_contexts()
        except Exception as error:  # the library has no common class of its errors
            raise CommandFailed(
                "The kubeconfig context cannot be used.",
                expected="a usable kubeconfig context",
                found=str(error),
                to_do="check KUBECONFIG and --context, or name a broker with --server",
                exit_code=EXIT_USAGE,
            ) from error
        default = ((active or {}).get("context") or {}).get("namespace")
        return cls(client.ApiClient(), namespace or default or "default")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._api_client.close()

    async def apply(self, manifest: Manifest) -> Applied:
        """Create the object, or change it as `kubectl apply` does, by compare-and-set."""
        kind, name = str(manifest["kind"]), str(manifest["metadata"]["name"])
        plural = PLURALS.get(kind)
        if plural is None or manifest["apiVersion"] != f"{GROUP}/{VERSION}":
            raise CommandFailed(
                expected=f"kind Topic or BrokerPool of {GROUP}/{VERSION}",
                found=f"{kind} of {manifest['apiVersion']}",
                to_do="apply other kinds with kubectl",
                exit_code=EXIT_USAGE,
            )
        namespace = str(manifest["metadata"].get("namespace") or self._namespace)
        place = (GROUP, VERSION, namespace, plural)
        for _ in range(REPLACE_ATTEMPTS):
            try:
                return await self._apply_once(place, kind, name, manifest)
            except self._failure as error:
                if getattr(error, "status", 0) not in (404, 409):
                    raise _rejected(kind, name, error) from error
        raise CommandFailed(
            expected=f"no concurrent change of {kind} {name}",
            found=f"{REPLACE_ATTEMPTS} conflicting writes",
            to_do="apply it again",
        )

    async def get(self, kind: str, name: str) -> Manifest:
        place = (GROUP, VERSION, self._namespace, PLURALS[kind])
        try:
            found: Manifest = await self._objects.get_namespaced_custom_object(*place, name)
        except self._failure as error:
            raise _rejected(kind, name, error) from error
        return found

    @property
    def namespace(self) -> str:
        return self._namespace

    async def create(self, manifest: Manifest) -> Manifest:
        """Create an object and return what is stored."""
        kind, name = str(manifest["kind"]), str(manifest["metadata"]["name"])
        place = (GROUP, VERSION, self._namespace, PLURALS[kind])
        try:
            made: Manifest = await self._objects.create_namespaced_custom_object(
                *place, manifest, **STRICT
            )
        except self._failure as error:
            raise _rejected(kind, name, error) from error
        return made

    async def delete(self, kind: str, name: str) -> None:
        place = (GROUP, VERSION, self._namespace, PLURALS[kind])
        try:
            await self._objects.delete_namespaced_custom_object(*place, name)
        except self._failure as error:
            raise _rejected(kind, name, error) from error

    async def patch(self, kind: str, name: str, patch: dict[str, Any]) -> Manifest:
        """Apply a JSON merge patch and return what is stored."""
        place = (GROUP, VERSION, self._namespace, PLURALS[kind])
        try:
            changed: Manifest = await self._objects.patch_namespaced_custom_object(
                *place, name, patch, _content_type="application/merge-patch+json", **STRICT
            )
        except self._failure as error:
            raise _rejected(kind, name, error) from error
        return changed

    async def _apply_once(
        self, place: tuple[str, str, str, str], kind: str, name: str, manifest: Manifest
    ) -> Applied:
        try:
            current = await self._objects.get_namespaced_custom_object(*place, name)
        except self._failure as error:
            if getattr(error, "status", 0) != 404:
                raise
            wanted = with_manifest(None, manifest)
            await self._objects.create_namespaced_custom_object(*place, wanted, **STRICT)
            return Applied(kind, name, "created")
        wanted = with_manifest(current, manifest)
        changed = await self._objects.replace_namespaced_custom_object(
            *place, name, wanted, **STRICT
        )
        is_same = changed["metadata"]["resourceVersion"] == current["metadata"]["resourceVersion"]
        return Applied(kind, name, "unchanged" if is_same else "configured")

    async def cluster_status(self) -> ClusterStatus:
        return status_of_objects(
            await self.list("brokers"),
            await self.list("partitionslices"),
        )

    async def list(self, plural: str) -> list[Manifest]:
        try:
            response = await self._objects.list_namespaced_custom_object(
                GROUP, VERSION, self._namespace, plural
            )
        except self._failure as error:
            raise _rejected(plural, self._namespace, error) from error
        except OSError as error:
            raise CommandFailed(
                expected="a response of the Kubernetes API server",
                found=str(error),
                to_do="check the kubeconfig context, or name a broker with --server",
            ) from error
        return list(response["items"])

    async def config_map(self, name: str) -> Manifest | None:
        """Return a ConfigMap of the namespace as far as its binary data, or None."""
        from kubernetes.aio import client

        maps: Any = client.CoreV1Api(self._api_client)
        try:
            found = await maps.read_namespaced_config_map(name, self._namespace)
        except self._failure as error:
            if getattr(error, "status", 0) == 404:
                return None
            raise _rejected("ConfigMap", name, error) from error
        except OSError as error:
            raise _rejected("ConfigMap", name, error) from error
        return {"binaryData": dict(found.binary_data or {})}

    async def operator_pods(self) -> tuple[tuple[str, str], ...]:
        """Return (namespace, name) of the operator's running pods, where we may list them.

        Raises CommandFailed if there is none.
        """
        from kubernetes.aio import client

        pods: Any = client.CoreV1Api(self._api_client)
        wanted = {"label_selector": OPERATOR_LABELS, "field_selector": "status.phase=Running"}
        try:
            try:
                found = await pods.list_pod_for_all_namespaces(**wanted)
            except self._failure as error:
                if getattr(error, "status", 0) != 403:
                    raise
                found = await pods.list_namespaced_pod(self._namespace, **wanted)
        except (self._failure, OSError) as error:
            raise _rejected("pods", self._namespace, error) from error
        names = tuple((each.metadata.namespace, each.metadata.name) for each in found.items)
        if not names:
            raise CommandFailed(
                expected=f"a running pod with labels {OPERATOR_LABELS}",
                found="none",
                to_do="check the operator's Deployment, or name its namespace with -n",
            )
        return names


def _rejected(kind: str, name: str, error: Exception) -> CommandFailed:
    body = str(getattr(error, "body", "") or error)
    message = _message(body)
    if getattr(error, "status", 0) == 404:
        if f'"{name}" not found' in message:  # the kind is known, the object is not there
            return CommandFailed(f"{kind} {name!r} not found.", expected=kind, found=message)
        return CommandFailed(
            f"The API server does not know {kind}.{GROUP}.",
            to_do="install Tidemark's chart (charts/tidemark) first",
        )
    return CommandFailed(
        f"{kind} {name!r} was rejected: {message[:1000]}",
        to_do="correct the manifest, or get the permission for this",
    )


def _message(body: str) -> str:
    """Return the message of a metav1.Status, or the text itself."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body
    return str(found.get("message") or body) if isinstance(found, dict) else body
