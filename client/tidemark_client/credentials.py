"""Find the token that brokers ask of clients: in the file that TIDEMARK_TOKEN_FILE names.

It is read for each request, because Kubernetes renews the tokens of pods.
"""

import os
from pathlib import Path

from tidemark_client.errors import EXIT_USAGE, CommandFailed

TOKEN_FILE = "TIDEMARK_TOKEN_FILE"


def authorization() -> dict[str, str]:
    """Return the header of a request to a broker; empty without a token.

    Raises CommandFailed if the file cannot be read.
    """
    token = read_token()
    return {"Authorization": f"Bearer {token}"} if token else {}


def read_token() -> str:
    """Return the token; empty if no file is named.

    Raises CommandFailed if the file cannot be read or has no token.
    """
    path = os.environ.get(TOKEN_FILE, "")
    if not path:
        return ""
    try:
        token = Path(path).read_text(encoding="ascii").strip()
        problem = "" if token and token.isprintable() else "no token"
    except (OSError, ValueError) as error:
        token, problem = "", getattr(error, "strerror", None) or "no ASCII text"
    if problem:
        raise CommandFailed(
            f"File {path} cannot be used.",
            expected="a token",
            found=problem,
            to_do=f"check --token-file, or {TOKEN_FILE}",
            exit_code=EXIT_USAGE,
        )
    return token
