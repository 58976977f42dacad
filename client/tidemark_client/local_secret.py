"""Present the user of this machine to a controller of local mode, for requests that change things.

The controller names the file of its secret; a user who can read it may change what it guards.
The token is made of the secret, which itself is never sent. Only a listener of this user gets it:
another user of the machine could listen in the controller's place.
"""

import os
import stat
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import msgspec
from tidemark_protocol.local_tokens import SECRET_FILE, person_token

from tidemark_client.errors import CommandFailed
from tidemark_client.trust import tls_context

LOCAL_PATH = "/v1/local"
TIMEOUT = aiohttp.ClientTimeout(total=10, sock_connect=2)
MAX_SECRET_BYTES = 4096
SOCKET_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTENS = "0A"


async def person_headers(controller_url: str) -> dict[str, str]:
    """Return the headers of this user; none for a controller that wants none.

    Raises CommandFailed if the secret is another user's.
    """
    path = await _secret_file(controller_url)
    if path is None:
        return {}
    try:
        _check_listener(controller_url)
        secret = _read_own(path)
    except OSError as error:
        raise CommandFailed(
            f"The controller at {controller_url} accepts changes of another user only.",
            expected=f"a readable file {path} with mode 0600",
            found=error.strerror or str(error),
            to_do="run the command as the user that runs `tidemark dev`, on the same machine",
        ) from error
    return {"Authorization": f"Bearer {person_token(secret)}"}


async def _secret_file(controller_url: str) -> Path | None:
    """Return the file that the controller names; None if it names none or does not respond."""
    url = controller_url + LOCAL_PATH
    try:
        async with (
            aiohttp.ClientSession(timeout=TIMEOUT, trust_env=False) as session,
            session.get(url, allow_redirects=False, ssl=tls_context(url) or True) as response,
        ):
            found = msgspec.json.decode(await response.read()) if response.status == 200 else {}
    except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError):
        return None
    named = found.get("secretFile") if isinstance(found, dict) else None
    return Path(named) if isinstance(named, str) else None


def _check_listener(controller_url: str) -> None:
    """Check that this user, or root, listens at the controller's port, where Linux tells it.

    Raises OSError.
    """
    port = urlsplit(controller_url).port
    for table in SOCKET_TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:  # no Linux
            continue
        for words in map(str.split, lines):
            address, state, user = words[1], words[3], int(words[7])
            is_there = state == LISTENS and int(address.rpartition(":")[2], 16) == port
            if is_there and user not in (0, os.getuid()):
                raise OSError(f"another user's process (uid {user}) listens at port {port}")


def _read_own(path: Path) -> bytes:
    """Read a file that is a secret of this user: no other file's content is of use to a controller.

    Raises OSError.
    """
    if path.name != SECRET_FILE:
        raise OSError(f"expected a file named {SECRET_FILE}")
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise OSError("it is another user's, or others can read it")
        return file.read(MAX_SECRET_BYTES).strip()
