"""Find the cluster that a command works on.

It is `--server` or TIDEMARK_SERVER (a broker or the controller); else local mode, if it answers on
its default address and no context or namespace is named; else the kubeconfig context, for what uses
the Kubernetes API. Brokers are those of one pool: `--pool`, or the topic's.
"""

import argparse
import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from tidemark_client.cluster_status import ClusterStatus, read_status
from tidemark_client.errors import EXIT_USAGE, CommandFailed, not_found
from tidemark_client.http_session import HttpSession, TimeLimits
from tidemark_client.local_brokers import (
    LOCAL_CONTROLLER_URL,
    LocalBroker,
    clusters,
    local_brokers,
    runs_dev,
)
from tidemark_client.metadata import UnreadableResponse
from tidemark_client.trust import LOOPBACK, is_local_tls

STATUS_PATH = "/v1/status"
DEFAULT_POOL = "default"
PROBE_LIMITS = TimeLimits(2.0, 0.5)
RESPONDS = (200, 401)
START_SECONDS = 10.0  # as long as a command waits for a pool that starts
START_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that was found: a controller (local mode), brokers, or a kubeconfig context."""

    broker_urls: tuple[str, ...] = ()
    controller_url: str = ""
    kube_context: str | None = None
    status: ClusterStatus = field(default_factory=ClusterStatus)

    @property
    def is_kubernetes(self) -> bool:
        return not self.broker_urls and not self.controller_url


async def find_target(arguments: argparse.Namespace) -> Target:
    """Find the cluster.

    Raises CommandFailed if there is none.
    """
    named = list(arguments.server or ())
    if not named and os.environ.get("TIDEMARK_SERVER"):
        named = os.environ["TIDEMARK_SERVER"].split(",")
    if named:
        return await _target_at(tuple(_with_scheme(url) for url in named))
    wants_kubernetes = bool(arguments.context or arguments.namespace)
    local_url = _local_url(LOCAL_CONTROLLER_URL)
    status = None if wants_kubernetes else await _status_of_dev(local_url)
    if status is not None:
        return Target(status.broker_urls, local_url, status=status)
    if has_kubeconfig():
        return Target(kube_context=arguments.context)
    if wants_kubernetes:
        raise await _no_kubeconfig()
    if found := clusters(local_brokers()):
        raise await _elsewhere(found)
    raise CommandFailed(
        "No cluster found.",
        expected="a local cluster, --server, or a kubeconfig",
        found=f"no --server, nothing at {LOCAL_CONTROLLER_URL}, no kubeconfig",
        to_do="start one with `tidemark dev`, or name a broker: --server http://HOST:PORT",
        exit_code=EXIT_USAGE,
    )


async def find_api(arguments: argparse.Namespace) -> Target:
    """Return where this command's objects are, as it was found first: a status may be large."""
    if getattr(arguments, "api_target", None) is None:
        arguments.api_target = await find_target(arguments)
    found: Target = arguments.api_target
    return found


async def _elsewhere(found: dict[str, LocalBroker]) -> CommandFailed:
    """Return the error that brokers of this machine belong to other controllers or a killed one."""
    reported, alive = [], []
    for address, broker in sorted(found.items()):
        url = _local_url(f"http://{address}")
        does_response = await controller_status(url) is not None
        alive += [url] if does_response else []
        gone = "" if does_response else ", not running: its brokers stop without it"
        reported.append(f"{url} (data in {broker.data_dir}{gone})")
    return CommandFailed(
        f"No controller at {LOCAL_CONTROLLER_URL}; found on this machine: {', '.join(reported)}.",
        to_do=f"use it: --server {alive[0]}"
        if alive
        else f"start it again: tidemark dev --data-dir {next(iter(found.values())).data_dir}",
        exit_code=EXIT_USAGE,
    )


async def _no_kubeconfig() -> CommandFailed:
    is_local = await controller_status(_local_url(LOCAL_CONTROLLER_URL)) is not None
    return CommandFailed(
        "--context and --namespace need a kubeconfig, and there is none."
        + (" Local mode has no namespaces." if is_local else ""),
        to_do="remove them"
        if is_local
        else "set KUBECONFIG, or name a broker: --server http://HOST:PORT",
        exit_code=EXIT_USAGE,
    )


async def find_brokers(
    arguments: argparse.Namespace, *, topic: str | None = None
) -> tuple[str, ...]:
    """Return addresses of brokers of one pool, for commands on the data path.

    `topic`: default `arguments.topic`, where the command has one. Waits a moment for a pool that
    starts. Raises CommandFailed."""
    target = await find_target(arguments)
    if target.is_kubernetes:
        raise CommandFailed(
            "Records are not available through the Kubernetes API.",
            expected="the address of a broker",
            found="only a kubeconfig context",
            to_do="name a broker that is reachable from this machine: --server http://HOST:8080,"
            " or run this command in the cluster (kubectl exec into a broker pod)",
            exit_code=EXIT_USAGE,
        )
    if not target.controller_url:
        return target.broker_urls
    return await _started_brokers(arguments, target, topic or getattr(arguments, "topic", None))


async def _started_brokers(
    arguments: argparse.Namespace, target: Target, topic: str | None
) -> tuple[str, ...]:
    """Wait until a broker is up and the topic, if known, has a leader; return the brokers."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + START_SECONDS
    status = target.status
    while True:
        pool = pool_of(status, arguments.pool, topic)
        found = status.of_pool(pool)
        is_led = topic is None or not any(
            view.is_leaderless for view in found.topics if view.topic == topic
        )
        is_up = found.active_urls and (is_led or not found.is_starting)
        if is_up and any(await asyncio.gather(*map(_responses, found.active_urls))):
            return found.active_urls
        if loop.time() >= ends_s:
            break
        await asyncio.sleep(START_POLL_SECONDS)
        status = await controller_status(target.controller_url) or status
    if found.broker_urls:
        return found.broker_urls  # requests to them report what is wrong
    raise CommandFailed(
        f"BrokerPool {pool!r} has no broker yet ({found.starting_sentence})."
        if found.brokers
        else f"BrokerPool {pool!r} has no broker.",
        to_do="run `tidemark status` and wait until brokers are up",
    )


async def _responses(url: str) -> bool:
    """Return whether a broker's HTTP API responds; it is active a moment before that.

    One that asks for a token does.
    """
    session = HttpSession(authenticates=True)
    try:
        return (await session.get(f"{url}/brokers", PROBE_LIMITS)).status in RESPONDS
    except OSError:  # a timeout is one too
        return False
    finally:
        await session.close()


def pool_of(status: ClusterStatus, named: str | None, topic: str | None) -> str:
    """Return the pool that a command means.

    Raises CommandFailed if none or several match.
    """
    pools = status.pools
    if named is not None:
        if pools and named not in pools:
            raise not_found("BrokerPool", named, pools, to_do="choose one of them with --pool")
        return named
    having = sorted({view.pool for view in status.topics if view.topic == topic})
    if len(having) > 1:
        raise CommandFailed(
            f"Topic {topic!r} is in several pools: {', '.join(having)}",
            to_do="choose one with --pool",
            exit_code=EXIT_USAGE,
        )
    if having:
        return having[0]
    return pools[0] if len(pools) == 1 else DEFAULT_POOL


async def _status_of_dev(url: str) -> ClusterStatus | None:
    """Return the controller's view; wait for a `tidemark dev` that is starting."""
    status = await controller_status(url)
    parts = urlsplit(url)
    if status is not None or parts.hostname not in LOOPBACK or not parts.port:
        return status
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + START_SECONDS
    while status is None and loop.time() < ends_s and runs_dev(parts.port):
        await asyncio.sleep(START_POLL_SECONDS)
        status = await controller_status(url)
    return status


async def uptime_ms(target: Target) -> int | None:
    """Return how long a `tidemark dev` runs; None for other targets."""
    if not target.controller_url:
        return None
    session = HttpSession()
    try:
        response = await session.get(f"{target.controller_url}/v1/local", PROBE_LIMITS)
        if response.status != 200:
            return None
        return int(msgspec.json.decode(response.body)["uptimeMs"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    finally:
        await session.close()


async def controller_status(url: str, session: HttpSession | None = None) -> ClusterStatus | None:
    """Return the controller's view, or None if no controller answers.

    Raises CommandFailed for one that does not let this command read it.
    """
    used = session or HttpSession()
    try:
        response = await used.get(url + STATUS_PATH, PROBE_LIMITS)
        if response.status in (401, 403):
            _check_is_no_controller(url, response.body)
        if response.status != 200:
            return None
        return read_status(msgspec.json.decode(response.body))
    except (OSError, msgspec.DecodeError, UnreadableResponse):  # a timeout is an OSError too
        return None
    finally:
        if session is None:
            await used.close()


def _check_is_no_controller(url: str, body: bytes) -> None:
    """Raise CommandFailed if a controller rejected the request; another server may have."""
    try:
        found = str(msgspec.json.decode(body)["problem"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return
    raise CommandFailed(
        f"The controller at {url} does not let this command read it.",
        expected="`tidemark dev` at a loopback address, or a kubeconfig context",
        found=found,
        to_do="leave --server out, and use the kubeconfig context",
    )


def has_kubeconfig() -> bool:
    named = os.environ.get("KUBECONFIG", "")
    candidates = [Path(name) for name in named.split(":") if name]
    return any(path.is_file() for path in candidates or [Path.home() / ".kube" / "config"])


async def _target_at(urls: tuple[str, ...]) -> Target:
    status = await _status_of_dev(urls[0])
    if status is None:
        return Target(broker_urls=urls)
    return Target(status.broker_urls, urls[0], status=status)


def _with_scheme(address: str) -> str:
    # The address of the live page, which `tidemark dev` prints first, is copied as well.
    address = address.strip().rstrip("/").removesuffix("/ui")
    return address if "://" in address else _local_url(f"http://{address}")


def _local_url(url: str) -> str:
    """Return the URL with https if a `tidemark dev --tls` has that port."""
    parts = urlsplit(url)
    if parts.hostname in LOOPBACK and parts.port and is_local_tls(parts.port):
        return f"https://{parts.netloc}"
    return url
