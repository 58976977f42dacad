"""Print what `tidemark dev` says once it is ready: addresses, and commands to try."""

import asyncio
import contextlib
import shlex
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp
from tidemark_protocol.condition_reasons import LASTING_REASONS

from tidemark_operator.api.kinds import BROKER_POOL, TOPIC, Object
from tidemark_operator.controller.core.views import BrokerView
from tidemark_operator.controller.service import ControllerService, NotController
from tidemark_operator.manager.local.apply import NAMESPACE
from tidemark_operator.security.broker_trust import BrokerTrust
from tidemark_operator.store.object_store import ObjectStore

DEFAULT_CONTROLLER_PORT = 17070
POLL_SECONDS = 0.1
SLOW_SECONDS = 20.0  # then it tells what it waits for, and again at each change


@dataclass(frozen=True, slots=True)
class PoolReadiness:
    name: str
    wanted: int
    active: tuple[BrokerView, ...]


@dataclass(frozen=True, slots=True)
class Readiness:
    pools: tuple[PoolReadiness, ...]
    topics: tuple[str, ...]  # that are served
    waiting: tuple[str, ...]  # topics that are about to be
    refused: tuple[str, ...]  # sentences of topics that stay as they are

    @property
    def is_ready(self) -> bool:
        are_up = all(len(pool.active) >= pool.wanted for pool in self.pools)
        return bool(self.pools) and are_up and not self.waiting

    @property
    def progress(self) -> str:
        up = sum(len(pool.active) for pool in self.pools)
        wanted = sum(pool.wanted for pool in self.pools)
        waiting = f", waiting for topics {', '.join(self.waiting[:5])}" if self.waiting else ""
        return f"{up} of {wanted} brokers up{waiting}"


async def answers(pool: str, view: BrokerView, trust: BrokerTrust) -> bool:
    """Return whether a broker's HTTP API is loaded, which is a moment after it is active.

    One that asks for a token is.
    """
    timeout = aiohttp.ClientTimeout(total=2.0)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.get(
                f"{view.endpoints.advertised_http_url}/brokers",
                **trust.options(pool, view.broker_id, view.endpoints),
            ) as response,
        ):
            return response.status in (HTTPStatus.OK, HTTPStatus.UNAUTHORIZED)
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


async def readiness_of(
    store: ObjectStore, controller: ControllerService, trust: BrokerTrust
) -> Readiness:
    pools = []
    for pool in await store.list(BROKER_POOL, NAMESPACE):
        name = str(pool["metadata"]["name"])
        key = f"{NAMESPACE}/{name}"
        views: tuple[BrokerView, ...] = ()
        with contextlib.suppress(NotController):
            views = controller.brokers(key)
        active = [view for view in views if view.is_active and await answers(key, view, trust)]
        pools.append(PoolReadiness(name, int(pool["spec"].get("replicas", 1)), tuple(active)))
    topics = await store.list(TOPIC, NAMESPACE)
    states = [(_topic_name(topic), _ready(topic)) for topic in topics]
    return Readiness(
        tuple(pools),
        tuple(name for name, ready in states if ready.get("status") == "True"),
        tuple(
            name
            for name, ready in states
            if ready.get("status") != "True" and ready.get("reason") not in LASTING_REASONS
        ),
        tuple(
            f"Topic {topic['metadata']['name']} is not ready: {ready['message']}"
            for topic, (_, ready) in zip(topics, states, strict=True)
            if ready.get("status") != "True" and ready.get("reason") in LASTING_REASONS
        ),
    )


async def notify_when_ready(
    read: Callable[[], Awaitable[Readiness]],
    tell: Callable[[str], None],
    *,
    controller_url: str,
    data_dir: object,
    ca_file: object = None,
    token_file: object = None,
) -> None:
    loop = asyncio.get_running_loop()
    began_s, reported = loop.time(), ""
    while not (found := await read()).is_ready:
        if loop.time() - began_s > SLOW_SECONDS and found.progress != reported:
            reported = found.progress
            tell(f"still starting: {reported}; logs are in {data_dir}/logs")
        await asyncio.sleep(POLL_SECONDS)
    for line in ready_lines(found, controller_url, data_dir, ca_file, token_file):
        tell(line)


def ready_lines(
    found: Readiness,
    controller_url: str,
    data_dir: object,
    ca_file: object = None,
    token_file: object = None,
) -> list[str]:
    lines = [
        f"ready: {found.progress}, {_count(len(found.topics), 'topic')} with leaders",
        *found.refused,
    ]
    for pool in found.pools:
        http = ",".join(view.endpoints.advertised_http_url for view in pool.active)
        kafka = ",".join(f"{v.endpoints.host}:{v.endpoints.kafka_port}" for v in pool.active)
        lines += [f"  pool {pool.name}:", f"    HTTP        {http}", f"    Kafka       {kafka}"]
    lines.append(f"  controller    {controller_url}")
    lines.append(f"  data, logs    {data_dir}")
    if ca_file is not None:
        lines.append(f"  trust         {ca_file} (ssl.ca.location of Kafka clients)")
    is_default = controller_url.endswith(f":{DEFAULT_CONTROLLER_PORT}")
    server = "" if is_default else f" --server {controller_url}"
    lines.append("try in another terminal:")
    if token_file is not None:
        lines.append(f"  export TIDEMARK_TOKEN_FILE={shlex.quote(str(token_file))}")
    return [*lines, *_commands(found.topics, server)]


def _commands(topics: Iterable[str], server: str) -> list[str]:
    visible = sorted(topic for topic in topics if not topic.startswith("__"))
    topic = visible[0] if visible else "orders"
    first = [] if visible else [f"  tidemark topics create {topic}{server}"]
    last = [f"  tidemark status{server}"] if visible else []
    return [
        *first,
        f"  tidemark produce {topic} hello{server}",
        f"  tidemark consume {topic} --from earliest --max 1{server}",
        *last,
        "Ctrl-C stops the cluster",
    ]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _topic_name(topic: Object) -> str:
    return str(topic["spec"].get("topicName") or topic["metadata"]["name"])


def _ready(topic: Object) -> Object:
    conditions = (topic.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == "Ready"), {})
