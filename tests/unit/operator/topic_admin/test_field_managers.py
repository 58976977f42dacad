"""Which tool manages a Topic, and whether a Kafka client may change it all the same."""

from typing import Any

import pytest
from tidemark_operator.topic_admin.field_managers import (
    field_manager_of,
    managed_elsewhere_error,
    request_of,
)
from tidemark_protocol.error_codes import ErrorCode

HELM = {"labels": {"app.kubernetes.io/managed-by": "Helm"}}


def topic(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "orders", **metadata}}


def annotated(text: str, **metadata: Any) -> dict[str, Any]:
    return topic(annotations={"tidemark.dev/kafka-admin": text}, **metadata)


@pytest.mark.parametrize(
    ("metadata", "manager"),
    [
        ({}, ""),
        ({"labels": None, "annotations": None, "ownerReferences": None}, ""),
        ({"labels": {"app.kubernetes.io/managed-by": "kubectl"}}, ""),
        ({"ownerReferences": [{"kind": "Shop", "name": "main"}]}, ""),
        ({"ownerReferences": [{"kind": "Shop", "name": "main", "controller": True}]}, "Shop main"),
        ({"labels": {"argocd.argoproj.io/instance": "shop"}}, "Argo CD"),
        ({"annotations": {"argocd.argoproj.io/tracking-id": "shop"}}, "Argo CD"),
        ({"labels": {"helm.toolkit.fluxcd.io/name": "shop"}}, "Flux"),
        ({"annotations": {"helm.toolkit.fluxcd.io/name": "shop"}}, ""),
        (HELM, "Helm"),
        ({**HELM, "annotations": {"meta.helm.sh/release-name": "shop"}}, "Helm release shop"),
    ],
    ids=str,
)
def test_the_manager_is_read_from_owner_labels_and_annotations(
    metadata: dict[str, Any], manager: str
) -> None:
    assert field_manager_of(topic(**metadata)) == manager


def test_what_nobody_manages_may_be_changed() -> None:
    assert managed_elsewhere_error(topic()) is None
    assert managed_elsewhere_error(annotated("")) is None


def test_what_a_tool_manages_is_refused_with_its_name() -> None:
    error = managed_elsewhere_error(topic(**HELM))
    assert error is not None
    assert error.error is ErrorCode.POLICY_VIOLATION
    assert error.message.startswith("Topic orders is managed by Helm, which would revert")


def test_the_annotation_decides_either_way() -> None:
    assert managed_elsewhere_error(annotated("Allow", **HELM)) is None
    for said in ("Refuse", "allow", "yes"):  # any other word is no permission
        error = managed_elsewhere_error(annotated(said))
        assert error is not None
        assert f"tidemark.dev/kafka-admin={said}" in error.message


def test_the_request_that_wrote_a_topic_last_is_read_from_its_annotation() -> None:
    assert request_of(topic(annotations={"tidemark.dev/request": "r-1"})) == "r-1"
    assert request_of(topic(annotations=None)) == request_of(topic()) == ""
