"""What all pods share: restricted rights, and a digest that shows a changed template."""

from tidemark_operator.resources.pod_template import (
    restricted_container,
    restricted_pod,
    template_digest,
)


def test_a_digest_shows_a_change_at_any_depth() -> None:
    template = {"spec": {"containers": [{"image": "image:1", "args": ["a", "b"]}]}}
    changed = {"spec": {"containers": [{"image": "image:1", "args": ["b", "a"]}]}}
    assert template_digest(template) != template_digest(changed)
    assert template_digest({}) != template_digest({"spec": {}})


def test_a_digest_depends_on_no_order_of_fields_and_stays_from_release_to_release() -> None:
    """Another digest of the same template would restart every broker."""
    assert template_digest({"a": 1, "b": {"c": 2, "d": 3}}) == "932875ab5b23eb47"
    assert template_digest({"b": {"d": 3, "c": 2}, "a": 1}) == "932875ab5b23eb47"


def test_a_pod_runs_as_a_user_without_rights_to_whom_its_volumes_belong() -> None:
    context = restricted_pod()
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == context["runAsGroup"] == context["fsGroup"] != 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_the_platform_may_assign_user_and_groups() -> None:
    context = restricted_pod(None)
    assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_each_caller_gets_a_context_of_its_own_to_add_to() -> None:
    restricted_pod()["runAsNonRoot"] = False
    restricted_container()["capabilities"]["drop"].clear()
    assert restricted_pod()["runAsNonRoot"] is True
    assert restricted_container()["capabilities"] == {"drop": ["ALL"]}
