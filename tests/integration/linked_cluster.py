"""`tidemark dev` whose controller and brokers reach each other only over links that can be cut.

The same controller, runtime and brokers; each broker is told the ports of its links. Cuts are set
by `PUT /cuts` with `[[from, to], ...]` (-1: the controller) on the control port.
"""

import os
import sys
from pathlib import Path

import uvloop
from aiohttp import web
from tidemark_chaos.links import CONTROLLER, Links
from tidemark_operator.manager import json_log
from tidemark_operator.manager.local.main import LocalCluster, LocalSettings
from tidemark_operator.store.sqlite import SqliteStore
from tidemark_protocol.ids import BrokerId

BROKERS = 3
POOL = "default/default"
CONTROL, CONTROLLER_LINKS, HTTP_LINKS, KAFKA_LINKS = 7, 8, 11, 14  # behind the cluster's own ports
PORTS = 17


class LinkedCluster:
    def __init__(self, first_port: int, data_dir: Path) -> None:
        self._first_port = first_port
        self._data_dir = data_dir
        self._links = Links(self._pid_of, (CONTROLLER, *range(BROKERS)))
        self._cluster: LocalCluster | None = None

    async def run(self) -> int:
        first = self._first_port
        await self._open_links()
        runner = web.AppRunner(self._control())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", first + CONTROL).start()
        store = SqliteStore(self._data_dir / "tidemark.sqlite")
        settings = LocalSettings(BROKERS, self._data_dir, first + 1, first + 1 + BROKERS, first, ())
        self._cluster = LocalCluster(settings, store, more_arguments=self._arguments)
        try:
            return await self._cluster.run()
        finally:
            await runner.cleanup()
            await self._links.close()
            store.close()

    async def _open_links(self) -> None:
        first = self._first_port
        for broker in range(BROKERS):
            await self._links.open_link(
                first + CONTROLLER_LINKS + broker, CONTROLLER, first, dialer=broker
            )
            await self._links.open_link(first + HTTP_LINKS + broker, broker, first + 1 + broker)
            await self._links.open_link(
                first + KAFKA_LINKS + broker, broker, first + 1 + BROKERS + broker
            )

    def _arguments(self, broker_id: BrokerId) -> tuple[str, ...]:
        first = self._first_port
        return (
            *("--controllers", f"127.0.0.1:{first + CONTROLLER_LINKS + broker_id}"),
            *("--advertised-http-port", str(first + HTTP_LINKS + broker_id)),
            *("--advertised-kafka-port", str(first + KAFKA_LINKS + broker_id)),
        )

    def _pid_of(self, place: int) -> int | None:
        if place == CONTROLLER:
            return os.getpid()
        if self._cluster is None:
            return None
        return self._cluster.runtime.pid(POOL, BrokerId(place))

    def _control(self) -> web.Application:
        async def put_truncations(request: web.Request) -> web.Response:
            self._links.cut((int(source), int(to)) for source, to in await request.json())
            return web.Response(status=204)

        app = web.Application()
        app.router.add_put("/cuts", put_truncations)
        return app


def main() -> int:
    first_port, data_dir = int(sys.argv[1]), Path(sys.argv[2])
    (data_dir / "logs").mkdir(parents=True, exist_ok=True)

    async def run() -> int:
        return await LinkedCluster(first_port, data_dir).run()

    with (data_dir / "logs" / "operator.log").open("a") as log_file:
        json_log.set_up("info", file=log_file)
        return uvloop.run(run())


if __name__ == "__main__":
    sys.exit(main())
