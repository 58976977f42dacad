"""A broker's whole HTTP side, as one thing to load.

FastAPI and uvicorn take longer to import than a broker needs to open its logs and to register, so
`main` loads this module in a worker thread meanwhile; early connections wait in the backlog.
"""

import asyncio
import socket

from tidemark_broker.http.answers import AsgiApp
from tidemark_broker.http.app import create_app
from tidemark_broker.http.broker_view import BrokerView
from tidemark_broker.http.server import serve
from tidemark_broker.runtime.broker import Broker


class BrokerHttp:
    """Made in any thread, served by the broker's event loop."""

    def __init__(self, broker: Broker) -> None:
        self.app: AsgiApp = create_app(
            BrokerView(
                partitions=broker.partitions,
                broker_id=broker.settings.broker_id,
                pool=broker.settings.pool,
                incarnation=broker.incarnation,
                is_ready=broker.is_ready,
                crc_failures=broker.partitions.crc_failures,
            )
        )

    async def serve(self, listener: socket.socket, stop: asyncio.Event) -> None:
        """Until `stop` is set, then ends open requests."""
        await serve(self.app, listener, stop=stop)
