"""Keep the users of local mode in one file of the data directory, which only its owner may read.

`users.json`: {"users": [{"name", "token", "password", "groups", "expiresAtMs"}]}. Only the name is
required. It is read again when it changed, so a user that is removed is one no more within a
second; a file that cannot be read has no users. `tidemark dev --auth` makes it, and writes each
user's token to `tokens/<name>`.
"""

import base64
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from tidemark_protocol.access_messages import Principal, pool_audience

from tidemark_operator.security.clients import PasswordUser, ReviewedClient

USERS_FILE = "users.json"
TOKENS_DIRECTORY = "tokens"
FIRST_USERS = ("admin", "producer", "consumer", "viewer")
USER_PREFIX = "tidemark:user:"
TOKEN_BYTES = 32
TOKEN_LIFETIME_S = 10 * 365 * 86_400  # as its claims say it; expiresAtMs is what counts

log = logging.getLogger(__name__)


class LocalUser(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    name: str
    token: str = ""
    password: str = ""
    groups: tuple[str, ...] = ()
    expires_at_ms: int = 0  # of the token, wall clock; 0: never

    @property
    def principal(self) -> Principal:
        return Principal(USER_PREFIX + self.name, ("system:authenticated", *self.groups))


class _File(msgspec.Struct, frozen=True):
    users: tuple[LocalUser, ...] = ()


class LocalUsers:
    """The users of one data directory. Implements ClientDirectory for all its pools."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / USERS_FILE
        self._read_at: tuple[int, int, int] | None = None
        self._by_token: dict[bytes, LocalUser] = {}
        self._by_name: dict[str, LocalUser] = {}

    async def review_token(self, pool: str, token: str, *, source: str) -> ReviewedClient:
        del pool, source
        self._refresh()
        user = self._by_token.get(_digest(token))
        if user is None:
            return ReviewedClient(None, reason="no user has it")
        return ReviewedClient(user.principal, user.expires_at_ms)

    async def find_user(self, pool: str, name: str) -> PasswordUser | None:
        del pool
        self._refresh()
        user = self._by_name.get(name)
        if user is None or not user.password:
            return None
        return PasswordUser(user.principal, user.password)

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
            version = (status.st_mtime_ns, status.st_size, status.st_ino)
            if version == self._read_at:
                return
            users = read_users(self._path)
            self._read_at = version
        except (OSError, msgspec.DecodeError) as error:
            log.error("file of users not readable", extra={"error": str(error)[:500]})
            users, self._read_at = (), None
        self._by_token = {_digest(user.token): user for user in users if user.token}
        self._by_name = {user.name: user for user in users}


def read_users(path: Path) -> tuple[LocalUser, ...]:
    """Read a file of users. Raises OSError and msgspec.DecodeError."""
    return msgspec.json.decode(path.read_bytes(), type=_File).users


def create_users(data_dir: Path, names: Sequence[str] = FIRST_USERS) -> tuple[LocalUser, ...]:
    """Create the file of users unless it exists, and a file with the token of each user."""
    path = data_dir / USERS_FILE
    try:
        users = read_users(path)
    except FileNotFoundError:
        users = tuple(
            LocalUser(
                name=name,
                token=new_token(name),
                password=secrets.token_urlsafe(TOKEN_BYTES),
            )
            for name in names
        )
        write_private(path, msgspec.json.format(msgspec.json.encode(_File(users)), indent=2))
    directory = data_dir / TOKENS_DIRECTORY
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for user in users:
        if user.token and user.name == Path(user.name).name:
            write_private(directory / user.name, user.token.encode())
    return users


def new_token(name: str, *, lifetime_s: int = TOKEN_LIFETIME_S) -> str:
    """Return a random token in the form of a JWT, which Java's and librdkafka's handlers require.

    Its signature is not checked: a token is valid if it is in the file of users.
    """
    now_s = int(time.time())
    header = {"alg": "none", "typ": "JWT"}
    claims = {
        "sub": USER_PREFIX + name,
        "iat": now_s,
        "exp": now_s + lifetime_s,
        "aud": [pool_audience("default/default")],
    }
    parts = (msgspec.json.encode(header), msgspec.json.encode(claims))
    encoded = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts]
    return ".".join((*encoded, secrets.token_urlsafe(TOKEN_BYTES)))


def salt_key_of(data_dir: Path) -> bytes:
    """Return the key of SCRAM salts of this data directory: they are no secret, but its own."""
    return hashlib.sha256(f"tidemark local {data_dir}".encode()).digest()


def write_private(path: Path, content: bytes) -> None:
    """Replace a file that only its owner may read. Raises OSError."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
        file.write(content)
    temporary.replace(path)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
