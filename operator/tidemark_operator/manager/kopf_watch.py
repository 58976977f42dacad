"""Run kopf's watches in a thread of its own; if they end, the process has to end too."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

import kopf


class KopfWatch(ABC):
    """The watches of one process; a subclass says what is watched, and by which labels."""

    def __init__(
        self,
        namespaces: tuple[str, ...],
        on_end: Callable[[BaseException | None], None],
        *,
        is_clusterwide: bool = False,
    ) -> None:
        """Create it; `on_end` is called in that thread."""
        self._is_clusterwide = is_clusterwide
        self._namespaces = namespaces
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

    @abstractmethod
    def _registry(self) -> kopf.OperatorRegistry:
        """Return the handlers; they must not block."""

    @abstractmethod
    def _selectors(self) -> dict[tuple[str, str], str]:
        """Return label selectors by API version and plural, which the API server applies."""

    def _run(self) -> None:
        error: BaseException | None = None
        settings = _watch_settings()
        settings.watching.label_selectors.update(self._selectors())
        try:
            asyncio.run(
                kopf.operator(
                    registry=self._registry(),
                    settings=settings,
                    clusterwide=self._is_clusterwide,
                    namespaces=self._namespaces,
                    standalone=True,
                    stop_flag=self._stop,
                )
            )
        except BaseException as problem:  # a driver's top: whatever ended it is passed on
            error = problem
        self._on_end(error)


def new_registry() -> kopf.OperatorRegistry:
    """Return a registry that logs in as the pod's account, or else by the kubeconfig."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(id="account", registry=registry)(kopf.login_with_service_account)
    kopf.on.login(id="kubeconfig", registry=registry)(kopf.login_with_kubeconfig)
    return registry


def _watch_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True  # no watch of CRDs and namespaces: fewer rights
    settings.peering.standalone = True  # a Lease decides who leads
    settings.posting.enabled = False
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    # Bookmarks come every minute: a watch that is silent for longer is dead.
    settings.watching.inactivity_timeout = 70
    # Lists in pieces: decoding a large one holds the GIL, and the controller's loop with it.
    settings.watching.chunk_size = 100
    settings.networking.request_timeout = 30
    return settings
