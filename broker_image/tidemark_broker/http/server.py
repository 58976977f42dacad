"""How uvicorn runs inside the broker's own event loop."""

import asyncio
from collections.abc import Callable

from tidemark_broker.http.app import AsgiApp
from tidemark_broker.http.limits import ServerLimits


async def serve(
    app: AsgiApp,
    *,
    host: str,
    port: int,
    stop: asyncio.Event,
    on_listening: Callable[[int], None] = lambda port: None,
    limits: ServerLimits = ServerLimits(),  # noqa: B008
) -> None:
    """Serves until `stop` is set, then ends open requests within `graceful_stop_seconds`.

    `on_listening(port)` is called once connections are accepted (port 0: the one chosen). Raises
    OSError when the address cannot be bound."""
    raise NotImplementedError
