"""The CEL rules of crds/replicationaudits.yaml in Python, with the same sentences."""

from collections.abc import Iterator

from tidemark_operator.stores.object_store import Object


def audit_faults(audit: Object) -> Iterator[str]:
    if len(audit["metadata"]["name"]) > 52:
        yield "metadata.name is at most 52 characters long"
    source = audit["spec"]["source"]
    if ("prometheus" in source) == ("files" in source):
        yield "source names either prometheus or files"


def audit_change_faults(audit: Object, old: Object) -> Iterator[str]:
    """Everything about an audit may change."""
    return iter(())
