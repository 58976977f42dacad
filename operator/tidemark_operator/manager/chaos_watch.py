"""Watch ChaosExperiments and their Jobs with kopf in a thread of its own.

As in watch.py, handlers pass on keys only; if kopf ends, `on_end` is called and the process has to
end.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import kopf

from tidemark_operator.api.kinds import CHAOS_EXPERIMENT, JOB
from tidemark_operator.manager.watch import watch_settings
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.resources.chaos_job import JOB_SELECTOR, experiment_of


class ChaosWatch:
    """Run the watches; the callbacks are called in kopf's thread and must not block."""

    def __init__(
        self,
        namespaces: tuple[str, ...],
        *,
        on_key: Callable[[WorkKey], None],
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        self._namespaces = namespaces
        self._on_key = on_key
        self._on_end = on_end
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop the watches, blocking for `timeout_s` at most; the thread is a daemon."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        error: BaseException | None = None
        settings = watch_settings()
        settings.watching.label_selectors["batch/v1", "jobs"] = JOB_SELECTOR
        try:
            asyncio.run(
                kopf.operator(
                    registry=self._registry(),
                    settings=settings,
                    clusterwide=False,
                    namespaces=self._namespaces,
                    standalone=True,
                    stop_flag=self._stop,
                )
            )
        except BaseException as problem:  # a driver's top: whatever ended it is passed on
            error = problem
        self._on_end(error)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(id="account", registry=registry)(kopf.login_with_service_account)
        kopf.on.login(id="kubeconfig", registry=registry)(kopf.login_with_kubeconfig)
        kind = CHAOS_EXPERIMENT

        @kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)
        async def on_experiment(namespace: str | None, name: str | None, **_: Any) -> None:
            self._on_key(WorkKey(kind.kind, namespace or "", name or ""))

        @kopf.on.event(JOB.group, JOB.version, JOB.plural, registry=registry)
        async def on_job(body: kopf.Body, namespace: str | None, **_: Any) -> None:
            experiment = experiment_of(dict(body))
            if experiment is not None:
                self._on_key(WorkKey(kind.kind, namespace or "", experiment))

        return registry
