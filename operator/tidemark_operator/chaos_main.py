"""Wire up `tidemark-chaos-controller`: ChaosExperiments of the namespaces that the chart names.

One pod, without a Lease: its Deployment replaces it by deleting the old one first, and each step is
idempotent. Experiments run in Jobs; the operator knows nothing of them.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import uvloop

from tidemark_operator.api.kinds import CHAOS_EXPERIMENT, Object
from tidemark_operator.api.schemas import load_schema
from tidemark_operator.manager.chaos_watch import ChaosWatch
from tidemark_operator.manager.json_log import set_up
from tidemark_operator.reconcile.chaos.reconciler import ChaosReconciler
from tidemark_operator.reconcile.work_queue import WorkQueue
from tidemark_operator.resources.chaos_job import ChaosJobSettings
from tidemark_operator.resources.pod_template import USER_ID
from tidemark_operator.store import kubernetes
from tidemark_operator.store.object_store import StoreError

log = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0  # what a watch missed waits this long at most
FIRST_SWEEP_SECONDS = 2.0


class SettingsError(Exception):
    """A setting that cannot be; the text says which, and what was expected."""


@dataclass(frozen=True, slots=True)
class ChaosSettings:
    namespaces: tuple[str, ...]
    jobs: ChaosJobSettings
    log_level: str = "info"
    kubeconfig: str | None = None  # outside of a pod


def read_settings(environment: Mapping[str, str]) -> ChaosSettings:
    """Read the settings of the pod's environment.

    Raises SettingsError.
    """
    names = ("POD_NAMESPACE", "TIDEMARK_CHAOS_NAMESPACES", "TIDEMARK_CHAOS_IMAGE")
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise SettingsError(f"{', '.join(missing)}: expected a value, found none")
    namespaces = environment["TIDEMARK_CHAOS_NAMESPACES"].split(",")
    return ChaosSettings(
        namespaces=tuple(name.strip() for name in namespaces if name.strip()),
        jobs=ChaosJobSettings(
            image=environment["TIDEMARK_CHAOS_IMAGE"],
            image_pull_policy=environment.get("TIDEMARK_CHAOS_PULL_POLICY", "IfNotPresent"),
            service_account="tidemark-chaos-runner",
            operator_namespace=environment["POD_NAMESPACE"],
            resources=_resources(environment.get("TIDEMARK_CHAOS_RESOURCES", "{}")),
            image_pull_secrets=_pull_secrets(environment.get("TIDEMARK_CHAOS_PULL_SECRETS", "")),
            user_id=_user_id(environment.get("TIDEMARK_POD_USER_ID", str(USER_ID))),
        ),
        log_level=environment.get("TIDEMARK_LOG_LEVEL", "info"),
        kubeconfig=environment.get("KUBECONFIG"),
    )


def _resources(text: str) -> Object:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"TIDEMARK_CHAOS_RESOURCES: expected JSON: {error}") from error
    if not isinstance(found, dict):
        raise SettingsError(f"TIDEMARK_CHAOS_RESOURCES: expected an object, found {text[:80]}")
    return found


def _pull_secrets(text: str) -> tuple[Object, ...]:
    return tuple({"name": name.strip()} for name in text.split(",") if name.strip())


def _user_id(text: str) -> int | None:
    if text and not (text.isdecimal() and int(text)):
        raise SettingsError(f"TIDEMARK_POD_USER_ID: expected a number above 0, found {text[:80]!r}")
    return int(text) if text else None


async def run(settings: ChaosSettings) -> None:
    """Run the controller until SIGTERM or SIGINT. Raises what ended the watch or the worker."""
    store = await kubernetes.connect(kubeconfig=settings.kubeconfig, namespaces=settings.namespaces)
    reconciler, queue = ChaosReconciler(store, settings.jobs), WorkQueue()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    ended: asyncio.Future[BaseException | None] = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def end(error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result(error)

    def from_thread(act: Callable[[Any], None], value: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: we are ending
            loop.call_soon_threadsafe(act, value)

    watch = ChaosWatch(
        settings.namespaces,
        on_key=lambda key: from_thread(queue.add, key),
        on_end=lambda error: from_thread(end, error),
    )
    watch.start()
    log.info("chaos controller started", extra={"namespaces": ", ".join(settings.namespaces)})
    try:
        async with asyncio.TaskGroup() as tasks:
            parts = [
                tasks.create_task(queue.work(reconciler.reconcile), name="reconcile"),
                tasks.create_task(_sweep(reconciler, queue, settings.namespaces), name="sweep"),
                tasks.create_task(stop.wait(), name="stop"),
            ]
            await asyncio.wait((parts[-1], ended), return_when=asyncio.FIRST_COMPLETED)
            for part in parts:
                part.cancel()
    finally:
        await asyncio.to_thread(watch.stop)
        await store.close()
    if ended.done() and not stop.is_set():
        raise RuntimeError("the watch ended") from ended.result()


async def _sweep(
    reconciler: ChaosReconciler, queue: WorkQueue, namespaces: tuple[str, ...]
) -> None:
    """Add every experiment now and then: also those whose watch event was missed."""
    while True:
        seconds = SWEEP_SECONDS
        try:
            for key in await reconciler.all_keys(namespaces):
                queue.add_swept(key)
        except StoreError as error:
            seconds = FIRST_SWEEP_SECONDS
            log.warning("resync failed, the next one is scheduled", extra={"error": str(error)})
        await asyncio.sleep(seconds)


def main() -> None:
    try:
        settings = read_settings(os.environ)
    except SettingsError as error:
        sys.exit(f"tidemark-chaos-controller: {error}")
    set_up(settings.log_level)
    load_schema(CHAOS_EXPERIMENT.kind)  # of all kinds: the loop must not wait for that
    try:
        uvloop.run(run(settings))
    except RuntimeError as error:
        cause = error.__cause__ or error
        log.error("chaos controller stopped", extra={"error": repr(cause)})
        sys.exit(1)


if __name__ == "__main__":
    main()
