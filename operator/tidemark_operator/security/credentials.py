"""Find users of old clients in Secrets of a pool's namespace, by the label of such Secrets.

A Secret with the label `tidemark.dev/kafka-credentials: "true"` has the keys `username` and
`password`. The annotation `tidemark.dev/principal` names its user: a ServiceAccount of the same
namespace, or `tidemark:user:...`; without it the user is `tidemark:user:<username>`. Another
principal is not accepted, because Secrets would make any user then. A name that two
Secrets have belongs to neither.
"""

import base64
import binascii
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tidemark_protocol.access_messages import Principal

from tidemark_operator.api.kinds import Object
from tidemark_operator.security.clients import PasswordUser, ReviewUnavailable
from tidemark_operator.store.object_store import Forbidden, StoreError

CREDENTIALS_LABEL = "tidemark.dev/kafka-credentials"
PRINCIPAL_ANNOTATION = "tidemark.dev/principal"
USER_PREFIX = "tidemark:user:"
FRESH_SECONDS = 5.0  # of one list of a namespace
MAX_NAMESPACES = 1_000

log = logging.getLogger(__name__)

# The Secrets of a namespace that have the label. Raises StoreError.
ListSecrets = Callable[[str], Awaitable[list[Object]]]


@dataclass(frozen=True, slots=True)
class _Listed:
    users: dict[str, PasswordUser]
    until_s: float


class CredentialSecrets:
    def __init__(self, list_secrets: ListSecrets, *, monotonic_s: Callable[[], float]) -> None:
        self._list_secrets = list_secrets
        self._monotonic_s = monotonic_s
        self._listed: dict[str, _Listed] = {}

    async def find(self, namespace: str, name: str) -> PasswordUser | None:
        """Return a user of the namespace. Raises ReviewUnavailable."""
        listed = self._listed.get(namespace)
        if listed is None or self._monotonic_s() >= listed.until_s:
            listed = await self._read(namespace)
        return listed.users.get(name)

    async def _read(self, namespace: str) -> _Listed:
        try:
            secrets = await self._list_secrets(namespace)
        except Forbidden as error:
            log.error(
                "no permission to list Secrets with Kafka credentials",
                extra={"namespace": namespace, "error": str(error)[:300]},
            )
            secrets = []
        except StoreError as error:
            raise ReviewUnavailable(str(error)) from error
        listed = _Listed(users_of(secrets), self._monotonic_s() + FRESH_SECONDS)
        self._listed.pop(namespace, None)
        while len(self._listed) >= MAX_NAMESPACES:
            del self._listed[next(iter(self._listed))]
        self._listed[namespace] = listed
        return listed


def users_of(secrets: list[Object]) -> dict[str, PasswordUser]:
    """Return the users of these Secrets by their names; log those that are not valid."""
    found: dict[str, PasswordUser] = {}
    doubled: set[str] = set()
    for secret in secrets:
        metadata = secret["metadata"]
        named = _user(secret)
        if isinstance(named, str):
            _log_invalid(metadata, named)
            continue
        name, user = named
        if name in found:
            doubled.add(name)
            _log_invalid(metadata, "another Secret has the same username")
        found[name] = user
    return {name: user for name, user in found.items() if name not in doubled}


def _user(secret: Object) -> tuple[str, PasswordUser] | str:
    """Return name and user of a Secret, or what is wrong with it."""
    data, metadata = secret.get("data") or {}, secret["metadata"]
    try:
        name, password = (
            base64.b64decode(data[key], validate=True).decode() for key in ("username", "password")
        )
    except (KeyError, binascii.Error, ValueError):
        return "expected the keys username and password in UTF-8"
    if not name or not password:
        return "expected a username and a password, found an empty one"
    namespace = metadata["namespace"]
    annotations = metadata.get("annotations") or {}
    principal = _principal(annotations.get(PRINCIPAL_ANNOTATION, USER_PREFIX + name), namespace)
    if principal is None:
        return (
            f"annotation {PRINCIPAL_ANNOTATION}: expected {USER_PREFIX}NAME or"
            f" system:serviceaccount:{namespace}:NAME"
        )
    return name, PasswordUser(principal, password)


def _principal(name: str, namespace: str) -> Principal | None:
    accounts = f"system:serviceaccount:{namespace}:"
    if name.startswith(accounts) and name != accounts:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        return Principal(name, (*groups, "system:authenticated"))
    if name.startswith(USER_PREFIX) and name != USER_PREFIX:
        return Principal(name, ("system:authenticated",))
    return None


def _log_invalid(metadata: Object, problem: str) -> None:
    log.warning(
        "Secret with Kafka credentials is not valid",
        extra={
            "namespace": metadata.get("namespace"),
            "secret": metadata.get("name"),
            "problem": problem,
        },
    )
