"""Read a token from a file that is replaced while it is in use, as the kubelet rotates tokens."""

import time
from collections.abc import Callable
from pathlib import Path

REREAD_SECONDS = 60.0


class TokenFile:
    def __init__(
        self, path: Path | None, *, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Create it; without a path there is never a token."""
        self._path = path
        self._monotonic_s = monotonic_s
        self._token = ""
        self._reread_at_s = float("-inf")

    def token(self) -> str:
        """Return the token, read within the last minute; "" if there is none.

        A file that cannot be read now leaves the token that it had.
        """
        now_s = self._monotonic_s()
        if self._path is not None and now_s >= self._reread_at_s:
            self._reread_at_s = now_s + REREAD_SECONDS
            try:
                self._token = self._path.read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError):
                self._reread_at_s = now_s + 1.0
        return self._token

    def headers(self) -> dict[str, str]:
        """Return the header that presents the token; none without a token."""
        token = self.token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def expire(self) -> None:
        """Read the file at the next use: a server rejected the token."""
        self._reread_at_s = float("-inf")
