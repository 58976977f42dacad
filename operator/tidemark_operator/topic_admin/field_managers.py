"""Find the field manager of a Topic object, and whether a client of Kafka may change it.

A Topic that a GitOps tool manages is changed in its source: a change from elsewhere would be
reverted, or drift from it unseen. All others accept changes from any writer, as objects do. The
annotation `tidemark.dev/kafka-admin: Allow | Refuse` on the Topic decides otherwise. Reasons:
docs/decisions/0030-topics-changed-over-kafka.md.

`RequestRejected` is why a client's change is not made: Kafka's code, and what to do.
"""

from dataclasses import dataclass

from tidemark_protocol.error_codes import ErrorCode

from tidemark_operator.api.kinds import Object


@dataclass(frozen=True, slots=True)
class RequestRejected:
    error: ErrorCode
    message: str


KAFKA_ADMIN_ANNOTATION = "tidemark.dev/kafka-admin"
ALLOW, REJECT = "Allow", "Refuse"
MADE_BY_LABEL = "tidemark.dev/made-by"
REQUEST_ANNOTATION = "tidemark.dev/request"  # of the request that it was made for

_ARGO = ("argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance")
_FLUX = ("kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name")


def request_of(topic: Object) -> str:
    """Return the client's request that wrote it last, "" where none did."""
    annotations = topic["metadata"].get("annotations") or {}
    return str(annotations.get(REQUEST_ANNOTATION, ""))


def field_manager_of(topic: Object) -> str:
    """Return the tool or owner that manages the Topic, or ""."""
    metadata = topic["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return f"{owner.get('kind')} {owner.get('name')}"
    if any(name in annotations or name in labels for name in _ARGO):
        return "Argo CD"
    if any(name in labels for name in _FLUX):
        return "Flux"
    if labels.get("app.kubernetes.io/managed-by") == "Helm":
        release = annotations.get("meta.helm.sh/release-name", "")
        return f"Helm release {release}" if release else "Helm"
    return ""


def managed_elsewhere_error(topic: Object) -> RequestRejected | None:
    """Return the error for a change or deletion of a managed Topic, or None."""
    name = topic["metadata"]["name"]
    said = (topic["metadata"].get("annotations") or {}).get(KAFKA_ADMIN_ANNOTATION, "")
    field_manager = field_manager_of(topic)
    if said == ALLOW or (not said and not field_manager):
        return None
    if said:
        return RequestRejected(
            ErrorCode.POLICY_VIOLATION,
            f"Topic {name} has annotation {KAFKA_ADMIN_ANNOTATION}={said}: change its manifest,"
            f" or set the annotation to {ALLOW}",
        )
    return RequestRejected(
        ErrorCode.POLICY_VIOLATION,
        f"Topic {name} is managed by {field_manager}, which would revert the change: change"
        f" it there, or annotate the Topic with {KAFKA_ADMIN_ANNOTATION}={ALLOW}",
    )
