"""Run the certificate authorities on Kubernetes: of the controller API, and of each pool with TLS.

Their Secrets are in the operator's own namespace: who may read Secrets of a pool's namespace reads
no authority's key there. What is to be trusted is a ConfigMap `<pool>-trust` in the pool's.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable

from tidemark_protocol.access_messages import SIGN_CERTIFICATE_PATH, SignCertificateRequest
from tidemark_protocol.certificate_names import CONTROLLER_NAME
from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.kinds import BROKER_POOL, CONFIG_MAP, POD, Object
from tidemark_operator.api.objects import parse_unchecked
from tidemark_operator.controller.broker_call import BrokerCall, broker_call
from tidemark_operator.resources.broker_pod import security_of
from tidemark_operator.resources.names import broker_name
from tidemark_operator.resources.secret import trust_config_map, trust_name
from tidemark_operator.security.authorities import Authorities, AuthorityName, CurrentAuthorities
from tidemark_operator.security.broker_subject import broker_subject
from tidemark_operator.security.broker_trust import BrokerTrust
from tidemark_operator.security.certificate_authority import CertificateSubject, InvalidAuthority
from tidemark_operator.security.plan_certificates import Lives
from tidemark_operator.security.roll_over import asked_at_s
from tidemark_operator.security.server_context import controller_context, load_certificate
from tidemark_operator.security.sign_certificate import CertificateSigner
from tidemark_operator.store.object_store import ObjectStore, StoreError
from tidemark_operator.store.typed_store import TypedStore

CHECK_SECONDS = 60.0
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
    ) -> None:
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

        Raises StoreError and InvalidAuthority.
        """
        controllers = await self._authorities.current(self._controller())
        asked_s = _asked_at_s(pool)
        current = await self._authorities.current(self._authority(pool), asked_at_s=asked_s)
        self._trust.trust(pool.pool, current.bundle)
        stored = await self._store.get(CONFIG_MAP, pool.namespace, trust_name(pool.name))
        wanted = trust_config_map(
            pool.namespace,
            pool.name,
            current.bundle,
            current.bundle + controllers.bundle,
            stored,
        )
        if stored is None:
            await self._store.create(CONFIG_MAP, wanted)
        elif stored.get("data") != wanted["data"]:
            await self._store.replace(CONFIG_MAP, wanted)

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
                    await self.ensure_trust(pool)

    async def _subject_of(
        self, pool_id: str, broker_id: BrokerId
    ) -> tuple[AuthorityName, CertificateSubject] | None:
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
        return self._authority(pool), broker_subject(pool, broker_id, addresses)

    def _controller(self) -> AuthorityName:
        return AuthorityName(self._namespace, "tidemark-controller-ca", "Tidemark controller")

    def _authority(self, pool: BrokerPool) -> AuthorityName:
        # A namespace's name has no dot.
        secret = f"{pool.namespace}.{pool.name}-ca"
        return AuthorityName(self._namespace, secret, f"Tidemark pool {pool.pool}")


def _addresses(pod: Object | None) -> tuple[str, ...]:
    if pod is None:
        return ()
    found = (pod.get("status") or {}).get("podIPs") or ()
    return tuple(each["ip"] for each in found)


def _asked_at_s(pool: BrokerPool) -> int:
    return asked_at_s({"metadata": {"annotations": pool.metadata.annotations}})
