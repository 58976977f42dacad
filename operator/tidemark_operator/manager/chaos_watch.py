"""Watch ChaosExperiments and their Jobs with kopf in a thread of its own.

As in watch.py, handlers pass on keys only; if kopf ends, `on_end` is called and the process has to
end.
"""

from collections.abc import Callable
from typing import Any

import kopf

from tidemark_operator.api.kinds import CHAOS_EXPERIMENT, JOB
from tidemark_operator.manager.kopf_watch import KopfWatch, new_registry
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.resources.chaos_job import JOB_SELECTOR, experiment_of


class ChaosWatch(KopfWatch):
    """Run the watches; the callbacks are called in kopf's thread and must not block."""

    def __init__(
        self,
        namespaces: tuple[str, ...],
        *,
        on_key: Callable[[WorkKey], None],
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        super().__init__(namespaces, on_end)
        self._on_key = on_key

    def _selectors(self) -> dict[tuple[str, str], str]:
        return {("batch/v1", "jobs"): JOB_SELECTOR}

    def _registry(self) -> kopf.OperatorRegistry:
        registry = new_registry()
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
