"""Where commands find the cluster.

`--server` or TIDEMARK_SERVER (a broker or the controller); else local mode, if it answers on its
default address and no context or namespace is named; else the kubeconfig context, for what goes
through the Kubernetes API.
"""

import argparse
import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tidemark_cli.cluster_status import ClusterStatus, read_status
from tidemark_cli.failures import EXIT_USAGE, CommandFailed
from tidemark_cli.http_session import HttpSession, TimeLimits
from tidemark_cli.metadata import UnreadableAnswer

LOCAL_CONTROLLER_URL = "http://127.0.0.1:17070"
STATUS_PATH = "/v1/status"
PROBE_LIMITS = TimeLimits(2.0, 0.5)


@dataclass(frozen=True, slots=True)
class Target:
    """What was found: a controller (local mode), brokers, or only a kubeconfig context."""

    broker_urls: tuple[str, ...] = ()
    controller_url: str = ""
    kube_context: str | None = None
    status: ClusterStatus = field(default_factory=ClusterStatus)

    @property
    def is_kubernetes(self) -> bool:
        return not self.broker_urls and not self.controller_url


def add_target_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server",
        action="append",
        metavar="URL",
        help="a broker's or the controller's address, repeatable (default: $TIDEMARK_SERVER, "
        f"then local mode at {LOCAL_CONTROLLER_URL}, then the kubeconfig context)",
    )
    parser.add_argument("--context", help="kubeconfig context (default: the current one)")
    parser.add_argument("-n", "--namespace", help="namespace (default: the context's)")


async def find_target(arguments: argparse.Namespace) -> Target:
    """Raises CommandFailed when there is nothing to talk to."""
    named = list(arguments.server or ())
    if not named and os.environ.get("TIDEMARK_SERVER"):
        named = os.environ["TIDEMARK_SERVER"].split(",")
    if named:
        return await _target_at(tuple(_with_scheme(url) for url in named))
    wants_kubernetes = bool(arguments.context or arguments.namespace)
    status = None if wants_kubernetes else await controller_status(LOCAL_CONTROLLER_URL)
    if status is not None:
        return Target(status.broker_urls, LOCAL_CONTROLLER_URL, status=status)
    if wants_kubernetes or has_kubeconfig():
        return Target(kube_context=arguments.context)
    raise CommandFailed(
        expected="a cluster to talk to",
        found=f"no --server, nothing at {LOCAL_CONTROLLER_URL}, no kubeconfig",
        to_do="start one with `tidemark dev`, or name a broker: --server http://HOST:PORT",
        exit_code=EXIT_USAGE,
    )


async def find_brokers(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Addresses of brokers, for commands on the data path."""
    target = await find_target(arguments)
    if target.broker_urls:
        return target.broker_urls
    if target.is_kubernetes:
        raise CommandFailed(
            expected="the address of a broker",
            found="only a kubeconfig context; records do not travel through the Kubernetes API",
            to_do="name a broker that this machine reaches: --server http://HOST:8080, "
            "or run this command in the cluster (kubectl exec into a broker pod)",
            exit_code=EXIT_USAGE,
        )
    raise CommandFailed(
        expected="at least one broker",
        found=f"none registered at {target.controller_url}",
        to_do="look at `tidemark status` and wait until the brokers are up",
    )


async def controller_status(url: str, session: HttpSession | None = None) -> ClusterStatus | None:
    """The controller's view, or None when no controller answers there."""
    used = session or HttpSession()
    try:
        answer = await used.get(url + STATUS_PATH, PROBE_LIMITS)
        if answer.status != 200:
            return None
        return read_status(msgspec.json.decode(answer.body))
    except (OSError, msgspec.DecodeError, UnreadableAnswer):  # a timeout is an OSError too
        return None
    finally:
        if session is None:
            await used.close()


def has_kubeconfig() -> bool:
    named = os.environ.get("KUBECONFIG", "")
    candidates = [Path(name) for name in named.split(":") if name]
    return any(path.is_file() for path in candidates or [Path.home() / ".kube" / "config"])


async def _target_at(urls: tuple[str, ...]) -> Target:
    status = await controller_status(urls[0])
    if status is None:
        return Target(broker_urls=urls)
    return Target(status.broker_urls, urls[0], status=status)


def _with_scheme(address: str) -> str:
    address = address.strip().rstrip("/")
    return address if "://" in address else f"http://{address}"
