"""`python -m bench.takeover`: the leading operator of 10,000 partitions is killed.

Local mode has one operator, whose brokers end with it. Here two operators take turns with one
SQLite file, as two pods do with the API server, and the brokers are children of the bench. The
second operator opens the file as soon as the kernel has taken its lock from the first. Noted are
when it leads, and when a client that asks for a topic then has it. Writes
build/bench-takeover.json.
"""

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.broker_runtime.broker_runtime import (
    BrokerProcess,
    ObservedBroker,
    ObservedPool,
)
from tidemark_operator.controller.clock import LeaseSystemClock
from tidemark_operator.manager import json_log
from tidemark_operator.manager.garbage import check_retained_once
from tidemark_operator.manager.local.apply import NAMESPACE
from tidemark_operator.manager.local.main import (
    SWITCH_INTERVAL_SECONDS,
    LocalCluster,
    LocalSettings,
)
from tidemark_operator.security.local_secret import LocalSecret
from tidemark_operator.store.lease import ControllerLease, LeaseSettings
from tidemark_operator.store.object_store import StoreError
from tidemark_operator.store.sqlite import SqliteStore
from tidemark_protocol.ids import BrokerId

from bench.systems import (
    HOST,
    BenchFailed,
    compile_as_in_images,
    end_processes,
    neighbouring_ports,
    wait_for,
    wait_until_serving,
)
from bench.topics import create, fill

ROOT = Path(__file__).parent.parent
DATA = ROOT / "build" / "bench" / "takeover"
BROKERS = 3
LOOK_SECONDS = 0.01
SETTLE_SECONDS = 5.0
LEAD_LIMIT_SECONDS = 60.0
POOL = "default/default"


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.takeover", description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--operator", nargs=2, type=int, help=argparse.SUPPRESS)  # ports
    options = parser.parse_args()
    if options.operator:
        return _operate(*options.operator)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started ends with it
    compile_as_in_images()
    found: dict[str, float] = {}

    def note(key: str, figure: float, unit: str) -> None:
        found[f"{key} ({unit})"] = round(figure, 3)
        print(f"{key}: {figure:,.2f} {unit}", flush=True)

    system = TwoOperators()
    try:
        system.start()
        wait_until_serving(system)
        fill(system, options.partitions, note)
        for number in range(options.kills):
            time.sleep(SETTLE_SECONDS)
            _kill(system, f"kill {number + 1}", note)
    except BenchFailed as error:
        print(f"bench-takeover: {error}", file=sys.stderr)
        return 1
    finally:
        system.stop()
    written = msgspec.json.format(msgspec.json.encode(found), indent=1)
    (ROOT / "build" / "bench-takeover.json").write_bytes(written)
    return 0


def _kill(system: "TwoOperators", name: str, note: Any) -> None:
    begun = time.monotonic()
    system.kill_leader()
    wait_for("another operator to lead", system.leads, seconds=LEAD_LIMIT_SECONDS)
    note(f"{name}: another operator leads", time.monotonic() - begun, "s")
    create(system, {name.replace(" ", "-"): 1})
    note(f"{name}: a new topic is led", time.monotonic() - begun, "s")
    system.start_another()


class TwoOperators:
    """`System` of bench.systems, as far as this bench needs it."""

    name = "tidemark"
    brokers = BROKERS

    def __init__(self) -> None:
        first = neighbouring_ports(2 * BROKERS + 2)
        self._kafka, self._http = first, first + BROKERS
        self._controllers = [first + 2 * BROKERS, first + 2 * BROKERS + 1]
        self.bootstrap = ",".join(f"{HOST}:{first + number}" for number in range(BROKERS))
        self._operators: dict[int, subprocess.Popen[bytes]] = {}  # by port, the leader first
        self._brokers: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        shutil.rmtree(DATA, ignore_errors=True)
        DATA.mkdir(parents=True)
        self.start_another()
        wait_for("the first operator to lead", self.leads, seconds=LEAD_LIMIT_SECONDS)
        self.start_another()
        addresses = ",".join(f"{HOST}:{port}" for port in self._controllers)
        secret = LocalSecret(DATA)
        for number in range(BROKERS):
            directory = DATA / f"broker-{number}"
            directory.mkdir()
            http = self._http + number
            token_file = secret.write_token_file(POOL, BrokerId(number))
            self._brokers.append(
                self._run(
                    f"broker-{number}.log",
                    *("tidemark_broker.main", "--broker-id", str(number), "--pool", POOL),
                    *("--rack", f"rack-{number}", "--data-dir", str(directory)),
                    *("--host", HOST, "--advertised-host", HOST, "--http-port", str(http)),
                    *("--advertised-http-url", f"http://{HOST}:{http}"),
                    *("--kafka-port", str(self._kafka + number), "--controllers", addresses),
                    *("--controller-token-file", str(token_file)),
                )
            )

    def start_another(self) -> None:
        port = next(each for each in self._controllers if each not in self._operators)
        arguments = ("bench.takeover", "--operator", str(port), str(self._kafka))
        self._operators[port] = self._run(f"operator-{port}.log", *arguments)

    def kill_leader(self) -> None:
        port = next(iter(self._operators))
        killed = self._operators.pop(port)
        killed.kill()
        killed.wait()

    def leads(self) -> bool:
        url = f"http://{HOST}:{next(iter(self._operators))}/healthz"
        with suppress(OSError), urllib.request.urlopen(url, timeout=1) as response:
            return bool(msgspec.json.decode(response.read())["leads"])
        return False

    def stop(self) -> None:
        end_processes(self._brokers)
        end_processes(list(self._operators.values()))
        shutil.rmtree(DATA, ignore_errors=True)

    def _run(self, log_name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (DATA / log_name).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *arguments], stdout=log, stderr=log, start_new_session=True
            )


# ---- one of the operators


def _operate(controller_port: int, kafka_port: int) -> int:
    """Once the file is free."""
    json_log.set_up("info")
    check_retained_once()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    store = _opened(DATA / "tidemark.sqlite")
    settings = LocalSettings(BROKERS, DATA, kafka_port + BROKERS, kafka_port, controller_port, ())
    return uvloop.run(_run(settings, store))


def _opened(path: Path) -> SqliteStore:
    while True:
        with suppress(StoreError):
            return SqliteStore(path)
        time.sleep(LOOK_SECONDS)


async def _run(settings: LocalSettings, store: SqliteStore) -> int:
    try:
        return await OneOfTwo(settings, store).run()
    finally:
        store.close()


class OneOfTwo(LocalCluster):
    """Its brokers run already, and the Lease has had another holder."""

    def __init__(self, settings: LocalSettings, store: SqliteStore) -> None:
        super().__init__(settings, store)
        self.runtime.observe = _all_run  # type: ignore[method-assign]
        self._lease = ControllerLease(
            store,
            str(os.getpid()),
            f"{HOST}:{settings.controller_port}",
            leader=self._leading,
            clock=LeaseSystemClock(),
            settings=LeaseSettings(NAMESPACE),
            is_holder_terminated=_is_ended,
        )

    def _ports(self) -> list[int]:
        return [self._settings.controller_port]


async def _all_run(pool: BrokerPool) -> ObservedPool:
    running = (BrokerId(number) for number in range(pool.spec.replicas))
    return ObservedPool(
        brokers=tuple(
            ObservedBroker(
                number,
                BrokerProcess.RUNNING,
                instance="1",
                storage_policy=pool.spec.deletion_policy,
            )
            for number in running
        )
    )


async def _is_ended(identity: str) -> bool:
    return await asyncio.to_thread(Path("/proc", identity).exists) is False


if __name__ == "__main__":
    sys.exit(main())
