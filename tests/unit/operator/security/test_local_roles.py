"""The roles of local mode are matched as Kubernetes matches the rules of Roles."""

import asyncio
import os
from pathlib import Path

import pytest
from tidemark_operator.security.local_roles import (
    ROLES_FILE,
    LocalRoles,
    create_roles,
    is_allowed,
    parse_roles,
)
from tidemark_operator.security.subject_access_review import ReviewUnavailable
from tidemark_protocol.access_messages import Access, Principal, ResourceKind, Verb

ALICE = Principal("alice", ("writers",))
ROLES = parse_roles("""
users:
  alice:
    - {resources: [topics], resourceNames: [orders], verbs: [produce]}
    - {apiGroups: [""], resources: ["*"], verbs: ["*"]}
groups:
  writers:
    - {apiGroups: ["*"], resources: [consumergroups], verbs: ["*"]}
""")


def topic(verb: Verb, name: str) -> Access:
    return Access(verb, ResourceKind.TOPIC, name)


@pytest.mark.parametrize(
    ("access", "expected"),
    [
        (topic(Verb.PRODUCE, "orders"), True),
        (topic(Verb.PRODUCE, "other"), False),
        (topic(Verb.PRODUCE, ""), False),  # all topics
        (topic(Verb.CONSUME, "orders"), False),
        (Access(Verb.DELETE, ResourceKind.GROUP, "g"), True),
        (Access(Verb.DELETE, ResourceKind.GROUP), True),
        (Access(Verb.ALTER, ResourceKind.POOL, "default"), False),
    ],
)
def test_rules_are_matched(access: Access, expected: bool) -> None:
    assert is_allowed(ROLES, ALICE, access) is expected
    assert not is_allowed(ROLES, Principal("bob"), access)


@pytest.mark.parametrize(
    "text", ["users: [1]", "users: {a: [{verbs: [x]}]}", "x: 1", "{", "users: {a: [{verb: x}]}"]
)
def test_a_malformed_file_is_refused_with_the_place(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_roles(text)


def test_the_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    async def run() -> None:
        roles, file = LocalRoles(tmp_path), tmp_path / ROLES_FILE
        access = topic(Verb.PRODUCE, "orders")
        assert not await roles.review(ALICE, access, "local")
        file.write_text("users: {alice: [{resources: [topics], verbs: [produce]}]}")
        assert await roles.review(ALICE, access, "local")
        file.write_text("users: {alice: [")
        os.utime(file, ns=(1, 1))
        with pytest.raises(ReviewUnavailable, match=ROLES_FILE):
            await roles.review(ALICE, access, "local")
        file.unlink()
        assert not await roles.review(ALICE, access, "local")

    asyncio.run(run())


def test_the_first_users_may_do_what_their_names_say(tmp_path: Path) -> None:
    create_roles(tmp_path)
    roles = parse_roles((tmp_path / ROLES_FILE).read_text())

    def may(user: str) -> set[Verb]:
        principal = Principal(f"tidemark:user:{user}")
        access = (Access(verb, ResourceKind.TOPIC, "orders") for verb in Verb)
        return {each.verb for each in access if is_allowed(roles, principal, each)}

    assert may("admin") == set(Verb)
    assert may("producer") == {Verb.PRODUCE, Verb.DESCRIBE}
    assert may("consumer") == {Verb.CONSUME, Verb.DESCRIBE}
    assert may("viewer") == {Verb.DESCRIBE}
    assert may("stranger") == set()


def test_a_file_of_roles_that_exists_is_kept(tmp_path: Path) -> None:
    (tmp_path / ROLES_FILE).write_text("users: {}")
    create_roles(tmp_path)
    assert (tmp_path / ROLES_FILE).read_text() == "users: {}"
