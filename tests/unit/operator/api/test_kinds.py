"""The kinds of objects: their API versions as manifests have them."""

import pytest
from tidemark_operator.api import kinds
from tidemark_operator.api.kinds import ResourceKind

ALL = [value for value in vars(kinds).values() if isinstance(value, ResourceKind)]


@pytest.mark.parametrize(
    ("kind", "api_version"),
    [(kinds.POD, "v1"), (kinds.JOB, "batch/v1"), (kinds.TOPIC, "tidemark.dev/v1alpha1")],
)
def test_an_api_version_has_its_group_unless_that_is_the_core_group(
    kind: ResourceKind, api_version: str
) -> None:
    assert kind.api_version == api_version


def test_no_two_kinds_share_a_path() -> None:
    assert len(ALL) > 10
    assert len({(kind.group, kind.plural) for kind in ALL}) == len(ALL)
    assert len({(kind.group, kind.kind) for kind in ALL}) == len(ALL)
