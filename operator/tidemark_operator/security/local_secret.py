"""Know the senders of local mode: brokers and people by tokens of one secret (0170).

Who reaches the loopback address may read. Whatever changes something needs the token of a person
who can read the secret: other users of the machine and pages in a browser cannot.
"""

import os
import secrets
import stat
from pathlib import Path

from aiohttp import hdrs, web
from tidemark_protocol.access_messages import Principal
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.local_tokens import (
    SECRET_FILE,
    broker_of_subject,
    broker_token,
    verified_subject,
)

from tidemark_operator.security.authentication import (
    Sender,
    bearer_token,
    check_loopback_host,
    route_of,
)
from tidemark_operator.security.broker_identity import BrokerIdentity
from tidemark_operator.security.rejections import Reason, SenderRejected
from tidemark_operator.security.route_owners import Owner, Owners, is_action

SECRET_BYTES = 32
READS = (hdrs.METH_GET, hdrs.METH_HEAD)


class LocalSecret:
    """The secret of a data directory, and the token files of its brokers."""

    def __init__(self, data_dir: Path) -> None:
        """Read the secret, or make one. Raises OSError."""
        self.path = data_dir / SECRET_FILE
        self._tokens = data_dir / "tokens"
        self.secret = _read_or_create(self.path)

    def write_token_file(self, pool: str, broker_id: BrokerId) -> Path:
        """Return the file with a broker's token, which only this user can read. Raises OSError."""
        self._tokens.mkdir(mode=0o700, exist_ok=True)
        path = self._tokens / f"{pool.replace('/', '.')}-{broker_id}"
        _write_private(path, broker_token(self.secret, pool, broker_id).encode())
        return path


class ByLocalSecret:
    """Of the one port of local mode."""

    def __init__(self, secret: LocalSecret) -> None:
        self._secret = secret

    async def sender_of(self, request: web.Request, owners: Owners) -> Sender:
        check_loopback_host(request)
        token = bearer_token(request)
        if token is None:
            # Actions are served only with `--actions`, and check where a request comes from.
            needs_none = request.method in READS or is_action(route_of(request))
            if Owner.BROKERS in owners or not needs_none:
                raise SenderRejected(
                    Reason.NO_TOKEN,
                    f"a token is needed: `tidemark` makes it of {self._secret.path}, which"
                    " only the user of `tidemark dev` can read",
                )
            return None
        subject = verified_subject(self._secret.secret, token)
        if subject is None:
            raise SenderRejected(
                Reason.INVALID_TOKEN, f"the token was not made of {self._secret.path}"
            )
        broker = broker_of_subject(subject)
        if Owner.BROKERS in owners:
            if broker is None:
                raise SenderRejected(Reason.NOT_A_BROKER, "only brokers send this", sender=subject)
            return BrokerIdentity(*broker)
        if broker is not None and request.method not in READS:
            raise SenderRejected(
                Reason.NO_PERMISSION, "brokers change nothing here", sender=subject
            )
        return Principal(subject)


def _read_or_create(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            found, status = file.read(), os.fstat(file.fileno())
    except FileNotFoundError:
        found, status = b"", None
    is_private = status is not None and not stat.S_IMODE(status.st_mode) & 0o077
    if is_private and len(found.strip()) >= SECRET_BYTES:
        return found.strip()
    # One that others could read, or half of one: brokers get their tokens at each start.
    made = secrets.token_hex(SECRET_BYTES).encode()
    _write_private(path, made + b"\n")
    return made


def _write_private(path: Path, content: bytes) -> None:
    """Replace a file, which is never readable for others. Raises OSError."""
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    beside.replace(path)
