"""The CEL rules of crds/replicationaudits.yaml in Python, with the same sentences."""

import re
from collections.abc import Iterator

from tidemark_operator.stores.object_store import Object

SPARK_NAME = re.compile("[a-z]([-a-z0-9]{0,41}[a-z0-9])?")


def audit_faults(audit: Object) -> Iterator[str]:
    if len(audit["metadata"]["name"]) > 52:
        yield "metadata.name is at most 52 characters long"
    source = audit["spec"]["source"]
    if ("prometheus" in source) == ("files" in source):
        yield "source names either prometheus or files"
    if "spark" not in audit["spec"]:
        return
    if audit["spec"]["engine"] != "Spark":
        yield "spec.spark is for engine Spark only"
    if not SPARK_NAME.fullmatch(audit["metadata"]["name"]):
        yield (
            "with spec.spark metadata.name is at most 43 characters long, a-z, 0-9 and -,"
            " and starts with a letter"
        )


def audit_change_faults(audit: Object, old: Object) -> Iterator[str]:
    """Everything about an audit may change."""
    return iter(())
