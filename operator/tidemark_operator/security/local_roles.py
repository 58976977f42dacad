"""Evaluate the roles of local mode: a file of users and groups with RBAC rules.

```yaml
users:
  alice:
    - {resources: [topics], resourceNames: [orders], verbs: [produce, describe]}
groups:
  operators:
    - {resources: ["*"], verbs: ["*"]}
```

The rules have the fields of a Role's, and are matched as Kubernetes matches them. The file is read
again when it has changed. Without a file no client has any access.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import yaml
from tidemark_protocol.access_messages import Access, Principal

from tidemark_operator.security.local_users import USER_PREFIX
from tidemark_operator.security.subject_access_review import API_GROUP, ReviewUnavailable

ROLES_FILE = "roles.yaml"
MAX_ROLES_BYTES = 1024 * 1024
_ANY = "*"
FIRST_ROLES: dict[str, list[dict[str, list[str]]]] = {
    USER_PREFIX + "admin": [{"resources": [_ANY], "verbs": [_ANY]}],
    USER_PREFIX + "producer": [{"resources": ["topics"], "verbs": ["produce", "describe"]}],
    USER_PREFIX + "consumer": [
        {"resources": ["topics", "consumergroups"], "verbs": ["consume", "describe"]}
    ],
    USER_PREFIX + "viewer": [
        {"resources": ["topics", "consumergroups", "brokerpools"], "verbs": ["describe"]}
    ],
}


class RoleRule(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A rule of a Role; without names it is about all resources."""

    verbs: tuple[str, ...]
    resources: tuple[str, ...]
    api_groups: tuple[str, ...] = (API_GROUP,)
    resource_names: tuple[str, ...] = ()


class Roles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    users: dict[str, tuple[RoleRule, ...]] = {}
    groups: dict[str, tuple[RoleRule, ...]] = {}


def allows(rule: RoleRule, access: Access) -> bool:
    """Return whether a rule allows an access, as `rbac.RuleAllows` of Kubernetes."""
    return (
        _has(rule.verbs, access.verb.value)
        and _has(rule.api_groups, API_GROUP)
        and _has(rule.resources, access.kind.value)
        and (not rule.resource_names or access.name in rule.resource_names)
    )


def is_allowed(roles: Roles, principal: Principal, access: Access) -> bool:
    of_groups = (roles.groups.get(group, ()) for group in principal.groups)
    rules = [*roles.users.get(principal.name, ()), *(rule for found in of_groups for rule in found)]
    return any(allows(rule, access) for rule in rules)


def parse_roles(text: str) -> Roles:
    """Return the roles of a file. Raises ValueError with the place of the problem."""
    try:
        found: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    try:
        return msgspec.convert({} if found is None else found, Roles)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def create_roles(data_dir: Path) -> None:
    """Create the file of roles for the users of `tidemark dev --auth`, unless it exists.

    Each user may do what the chart's ClusterRole of that name allows, by a token or password and by
    a certificate, whose user has the name alone. Raises OSError.
    """
    path = data_dir / ROLES_FILE
    if not path.exists():
        temporary = path.with_name(path.name + ".new")
        certified = {name.removeprefix(USER_PREFIX): rules for name, rules in FIRST_ROLES.items()}
        roles = json.loads(json.dumps({"users": FIRST_ROLES | certified}))  # without aliases
        temporary.write_text(yaml.safe_dump(roles, sort_keys=False))
        temporary.replace(path)


class LocalRoles:
    """The roles file of a data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / ROLES_FILE
        self._read: tuple[int, int] | None = None  # time and size of what was read
        self._roles = Roles()

    async def review(self, principal: Principal, access: Access, namespace: str) -> bool:
        """Return whether an access is allowed. Raises ReviewUnavailable."""
        try:
            self._refresh()
        except (OSError, ValueError) as error:
            raise ReviewUnavailable(f"{self._path}: {error}") from error
        return is_allowed(self._roles, principal, access)

    def _refresh(self) -> None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._read, self._roles = None, Roles()
            return
        version = (found.st_mtime_ns, found.st_size)
        if version == self._read:
            return
        if found.st_size > MAX_ROLES_BYTES:
            raise ValueError(f"expected at most {MAX_ROLES_BYTES} bytes, found {found.st_size}")
        self._roles = parse_roles(self._path.read_text(encoding="utf-8"))
        self._read = version


def _has(values: tuple[str, ...], value: str) -> bool:
    return _ANY in values or value in values
