"""Run the certificate authorities on Kubernetes: of the controller API, and of each pool with TLS.

Their Secrets are in the operator's own namespace: who may read Secrets of a pool's namespace reads
no authority's key there. What is to be trusted is a ConfigMap `<pool>-trust` in the pool's.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Mapping

from tidemark_protocol.access_messages import SIGN_CERTIFICATE_PATH, SignCertificateRequest
from tidemark_protocol.certificate_names import CONTROLLER_NAME
from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.kinds import BROKER_POOL, CONFIG_MAP, POD, SERVICE, Object
from tidemark_operator.api.objects import parse_unchecked
from tidemark_operator.broker_runtime.broker_runtime import PoolCertificates
from tidemark_operator.broker_runtime.pods import observed_listener
from tidemark_operator.controller.broker_call import BrokerCall, broker_call
from tidemark_operator.manager.outside_addresses import (
    awaits_balancer,
    has_changing_addresses,
    outside_addresses,
)
from tidemark_operator.resources.broker_pod import security_of
from tidemark_operator.resources.names import LISTENER_LABEL, broker_name, pool_labels
from tidemark_operator.resources.secret import trust_config_map, trust_name
from tidemark_operator.security.authorities import Authorities, AuthorityName, CurrentAuthorities
from tidemark_operator.security.broker_subject import broker_subject
from tidemark_operator.security.broker_trust import BrokerTrust
from tidemark_operator.security.certificate_authority import CertificateSubject, InvalidAuthority
from tidemark_operator.security.plan_certificates import Lives
from tidemark_operator.security.roll_over import asked_at_s
from tidemark_operator.security.server_context import controller_context, load_certificate
from tidemark_operator.security.sign_certificate import BrokerCertificate, CertificateSigner
from tidemark_operator.store.object_store import ObjectStore, Rejected, StoreError
from tidemark_operator.store.typed_store import TypedStore

CHECK_SECONDS = 60.0
# How soon a broker asks again whether its certificate has the names of now, which are addresses of
# nodes or load balancers; sooner while a load balancer has no address.
NAMES_SECONDS = 60.0
FIRST_NAMES_SECONDS = 5.0
RETRY_SECONDS = 5.0

_log = logging.getLogger(__name__)


class OperatorTls:
    def __init__(
        self,
        store: ObjectStore,
        namespace: str,
        *,
        wall_clock_s: Callable[[], float],
        is_leading: Callable[[], bool],
        trust: BrokerTrust,
        lives: Lives | None = None,
        on_change: Callable[[BrokerPool], None] = lambda _: None,
    ) -> None:
        """Create it; `on_change` is called when the authorities of a pool are others."""
        self._on_change = on_change
        self.context: ssl.SSLContext = controller_context()
        self._store = store
        self._typed = TypedStore(store)
        self._namespace = namespace
        self._wall_clock_s = wall_clock_s
        self._is_leading = is_leading
        self._trust = trust
        self._authorities = Authorities(store, lives=lives or Lives(), wall_clock_s=wall_clock_s)
        self._signer = CertificateSigner(self._authorities, self._subject_of, is_leading=is_leading)
        self._controllers: CurrentAuthorities | None = None
        self._renewed_at_s = 0.0
        self._certificates: dict[str, PoolCertificates] = {}

    def certificates_of(self, pool: str) -> PoolCertificates | None:
        """Return the authorities of a pool as last seen, or None before that."""
        return self._certificates.get(pool)

    @property
    def pools(self) -> Mapping[str, PoolCertificates]:
        """Return the authorities of all pools with TLS."""
        return self._certificates

    @property
    def controller_ends_s(self) -> tuple[float, float]:
        """Return the ends of the controller's authority and certificate; 0: not known yet."""
        if self._controllers is None:
            return 0.0, 0.0
        end_s = self._renewed_at_s + self._authorities.lives.certificate_s
        return self._controllers.issuer.ends_s, min(end_s, self._controllers.issuer.ends_s)

    def calls(self) -> dict[str, BrokerCall]:
        return {SIGN_CERTIFICATE_PATH: broker_call(SignCertificateRequest, self._signer.sign)}

    async def run(self) -> None:
        """Create and renew until cancelled.

        Without rights on Secrets the operator goes on, and serves pools without TLS.
        """
        reported = ""
        while True:
            try:
                await self._refresh()
                reported, pause_s = "", CHECK_SECONDS
            except (StoreError, InvalidAuthority) as error:
                pause_s = RETRY_SECONDS
                if str(error) != reported:
                    reported = str(error)
                    _log.error("certificates not renewed, retrying", extra={"reason": reported})
            await asyncio.sleep(pause_s)

    async def ensure_trust(self, pool: BrokerPool) -> None:
        """Write the ConfigMap that the pool's brokers and clients trust.

        Raises StoreError; Rejected if the user's authority cannot be used; InvalidAuthority.
        """
        controllers = await self._authorities.current(self._controller())
        asked_s = _asked_at_s(pool)
        current = await self._pool_authorities(pool, asked_s)
        self._trust.trust(pool.pool, current.bundle)
        stored = await self._store.get(CONFIG_MAP, pool.namespace, trust_name(pool.name))
        wanted = trust_config_map(
            pool.namespace,
            pool.name,
            current.bundle_of_clients,
            current.bundle + controllers.bundle,
            stored,
        )
        if stored is None:
            await self._store.create(CONFIG_MAP, wanted)
        elif stored.get("data") != wanted["data"]:
            await self._store.replace(CONFIG_MAP, wanted)

    async def _pool_authorities(self, pool: BrokerPool, asked_s: int) -> CurrentAuthorities:
        source = pool.spec.security.tls.authority
        secret_name = "" if source is None else source.secret_name
        try:
            current = await self._authorities.current(self._authority(pool), asked_at_s=asked_s)
        except InvalidAuthority as error:
            if not secret_name:
                raise
            self._record(pool, PoolCertificates(secret_name=secret_name, problem=str(error)))
            raise Rejected(str(error)) from error
        newest = max(current.trusted, key=lambda each: each.created_s)
        found = PoolCertificates(
            current.issuer.fingerprint,
            current.issuer.ends_s,
            len(current.trusted),
            newest.fingerprint,
            secret_name,
            current.problem,
        )
        self._record(pool, found)
        return current

    def _record(self, pool: BrokerPool, found: PoolCertificates) -> None:
        if self._certificates.get(pool.pool) != found:
            self._certificates[pool.pool] = found
            self._on_change(pool)

    async def _refresh(self) -> None:
        controllers = await self._authorities.current(self._controller())
        now_s = self._wall_clock_s()
        is_due = now_s >= self._renewed_at_s + self._authorities.lives.certificate_s / 3
        if is_due or self._controllers is None or controllers.issuer != self._controllers.issuer:
            subject = CertificateSubject((CONTROLLER_NAME,))
            load_certificate(self.context, self._authorities.issue_with_key(controllers, subject))
            self._controllers, self._renewed_at_s = controllers, now_s
        if self._is_leading():
            for item in await self._store.list(BROKER_POOL, None):
                pool = parse_unchecked(BrokerPool, item)
                if pool.has_tls:
                    with contextlib.suppress(Rejected):  # the pool's condition says it
                        await self.ensure_trust(pool)

    async def _subject_of(self, pool_id: str, broker_id: BrokerId) -> BrokerCertificate | None:
        namespace, _, name = pool_id.partition("/")
        pool = await self._typed.read(BrokerPool, namespace, name)
        if pool is None:
            return None
        pod = await self._store.get(POD, namespace, broker_name(name, broker_id))
        # A pod with TLS may start again while others are replaced by ones without it.
        if not (pool.has_tls or (pod is not None and security_of(pod).has_tls)):
            return None
        addresses = _addresses(pod)
        if not addresses:  # its status may come later than its first request, which is retried
            raise StoreError(f"Pod {namespace}/{broker_name(name, broker_id)} has no address yet")
        outside, check_after_s = await self._outside(pool, broker_id)
        subject = broker_subject(pool, broker_id, addresses, outside)
        return BrokerCertificate(self._authority(pool), subject, check_after_s)

    async def _outside(
        self, pool: BrokerPool, broker_id: BrokerId
    ) -> tuple[tuple[str, ...], float]:
        """Return where clients outside reach a broker, and how soon that is to be read again."""
        if not has_changing_addresses(pool):
            return (), 0.0
        labels = pool_labels(pool.name)
        pods = await self._store.list(POD, pool.namespace, labels)
        services = tuple(
            observed_listener(each)
            for each in await self._store.list(SERVICE, pool.namespace, labels)
            if LISTENER_LABEL in each["metadata"]["labels"]
        )
        nodes = sorted({(each.get("status") or {}).get("hostIP", "") for each in pods} - {""})
        is_waiting = awaits_balancer(pool, broker_id, services)
        return (
            outside_addresses(pool, broker_id, tuple(nodes), services),
            FIRST_NAMES_SECONDS if is_waiting else NAMES_SECONDS,
        )

    def _controller(self) -> AuthorityName:
        return AuthorityName(self._namespace, "tidemark-controller-ca", "Tidemark controller")

    def _authority(self, pool: BrokerPool) -> AuthorityName:
        # A namespace's name has no dot.
        secret = f"{pool.namespace}.{pool.name}-ca"
        own = pool.spec.security.tls.authority
        source = None if own is None else (pool.namespace, own.secret_name)
        return AuthorityName(self._namespace, secret, f"Tidemark pool {pool.pool}", source)


def _addresses(pod: Object | None) -> tuple[str, ...]:
    if pod is None:
        return ()
    found = (pod.get("status") or {}).get("podIPs") or ()
    return tuple(each["ip"] for each in found)


def _asked_at_s(pool: BrokerPool) -> int:
    return asked_at_s({"metadata": {"annotations": pool.metadata.annotations}})
