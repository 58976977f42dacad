"""Find the token that brokers ask of clients: in the file that TIDEMARK_TOKEN_FILE names.

It is read for each request, because Kubernetes renews the tokens of pods.
"""

import os
from pathlib import Path

TOKEN_FILE = "TIDEMARK_TOKEN_FILE"


def authorization() -> dict[str, str]:
    """Return the header of a request to a broker; empty without a token.

    Raises OSError if the file cannot be read.
    """
    path = os.environ.get(TOKEN_FILE, "")
    return {"Authorization": f"Bearer {Path(path).read_text().strip()}"} if path else {}
