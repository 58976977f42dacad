"""Run the certificate authorities of local mode, `tidemark dev --tls`.

Authorities are Secrets in the store's file, as they are Secrets on Kubernetes. Below `tls/` of the
data directory are the certificates to trust: `ca.crt` of all, for clients, and `controller-ca.crt`
of the controller, for brokers. The controller's key is in the memory of this process. Of users of
`--auth`, `users/NAME.crt` and `NAME.key` are a client's certificate and key, of an authority for
clients only (`client-ca.crt`).
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path

from tidemark_protocol.access_messages import SIGN_CERTIFICATE_PATH, SignCertificateRequest
from tidemark_protocol.certificate_names import CONTROLLER_NAME, broker_certificate_name
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.local_profile import LocalProfile, remove_profile, write_profile

from tidemark_operator.api.kinds import BROKER_POOL, Object
from tidemark_operator.controller.broker_call import BrokerCall, broker_call
from tidemark_operator.manager.local.apply import NAMESPACE
from tidemark_operator.resources.secret import authority_secret_name
from tidemark_operator.security.authorities import (
    Authorities,
    AuthorityName,
    CurrentAuthorities,
)
from tidemark_operator.security.broker_trust import BrokerTrust
from tidemark_operator.security.certificate_authority import (
    CertificateSubject,
    InvalidAuthority,
    UserSubject,
)
from tidemark_operator.security.local_users import write_private
from tidemark_operator.security.plan_certificates import Lives
from tidemark_operator.security.roll_over import asked_at_s
from tidemark_operator.security.server_context import controller_context, load_certificate
from tidemark_operator.security.sign_certificate import BrokerCertificate, CertificateSigner
from tidemark_operator.store.object_store import ObjectStore, StoreError

LOCAL_NAMES = ("localhost",)
LOCAL_ADDRESSES = ("127.0.0.1", "::1")
CONTROLLER = AuthorityName(NAMESPACE, "tidemark-controller-ca", "Tidemark controller (local)")
CLIENTS = AuthorityName(NAMESPACE, "tidemark-clients-ca", "Tidemark clients (local)")
CHECK_SECONDS = 60.0

_log = logging.getLogger(__name__)


class LocalTls:
    def __init__(
        self,
        store: ObjectStore,
        data_dir: Path,
        *,
        lives: Lives,
        wall_clock_s: Callable[[], float],
        is_leading: Callable[[], bool],
        trust: BrokerTrust,
    ) -> None:
        self.context: ssl.SSLContext = controller_context()
        self.ca_file = data_dir / "tls" / "ca.crt"
        self.controller_ca_file = data_dir / "tls" / "controller-ca.crt"
        self.client_ca_file = data_dir / "tls" / "client-ca.crt"
        self.users_directory = data_dir / "tls" / "users"
        self._store = store
        self._authorities = Authorities(store, lives=lives, wall_clock_s=wall_clock_s)
        self._wall_clock_s = wall_clock_s
        self._trust = trust
        self._signer = CertificateSigner(self._authorities, self._subject_of, is_leading=is_leading)
        self._controllers: CurrentAuthorities | None = None
        self._renewed_at_s = 0.0

    def calls(self) -> dict[str, BrokerCall]:
        return {SIGN_CERTIFICATE_PATH: broker_call(SignCertificateRequest, self._signer.sign)}

    async def start(self, users: tuple[str, ...] = ()) -> None:
        """Create what is missing, and write the files of trusted authorities and of users.

        Raises StoreError, OSError and InvalidAuthority.
        """
        self.ca_file.parent.mkdir(parents=True, exist_ok=True)
        await self._refresh()
        clients = await self._authorities.current(CLIENTS)
        self.users_directory.mkdir(mode=0o700, exist_ok=True)
        for user in users:
            if user == Path(user).name:
                life_s = self._authorities.lives.authority_s // 5
                found = self._authorities.issue_with_key(clients, UserSubject(user), life_s)
                write_private(self.users_directory / f"{user}.key", found.key_pem.encode())
                _write(self.users_directory / f"{user}.crt", found.certificate.pem)

    async def run(self) -> None:
        """Renew until cancelled."""
        pause_s = min(CHECK_SECONDS, self._authorities.lives.certificate_s / 10)
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self._refresh()
            except (StoreError, OSError, InvalidAuthority) as error:
                _log.error("certificates not renewed, retrying", extra={"reason": str(error)})

    async def _refresh(self) -> None:
        pools = await self._store.list(BROKER_POOL, NAMESPACE)
        asked = max((asked_at_s(pool) for pool in pools), default=0)
        controllers = await self._authorities.current(CONTROLLER, asked_at_s=asked)
        bundles = [controllers.bundle]
        for pool in pools:
            current = await self._authorities.current(_authority(pool), asked_at_s=asked_at_s(pool))
            self._trust.trust(f"{NAMESPACE}/{pool['metadata']['name']}", current.bundle)
            bundles.append(current.bundle)
        _write(self.controller_ca_file, controllers.bundle)
        _write(self.ca_file, "".join(bundles))
        _write(self.client_ca_file, (await self._authorities.current(CLIENTS)).bundle)
        now_s = self._wall_clock_s()
        is_due = now_s >= self._renewed_at_s + self._authorities.lives.certificate_s / 3
        if is_due or self._controllers is None or controllers.issuer != self._controllers.issuer:
            names = (CONTROLLER_NAME, *LOCAL_NAMES)
            subject = CertificateSubject(names, LOCAL_ADDRESSES)
            load_certificate(self.context, self._authorities.issue_with_key(controllers, subject))
            self._controllers, self._renewed_at_s = controllers, now_s

    async def _subject_of(self, pool: str, broker_id: BrokerId) -> BrokerCertificate | None:
        namespace, _, name = pool.partition("/")
        found = await self._store.get(BROKER_POOL, namespace, name)
        if found is None:
            return None
        names = (broker_certificate_name(pool, broker_id), *LOCAL_NAMES)
        return BrokerCertificate(_authority(found), CertificateSubject(names, LOCAL_ADDRESSES))


def write_local_profile(controller_port: int, tls: LocalTls | None) -> None:
    """Let commands of this machine find the cluster; one without TLS needs no profile."""
    remove_profile(controller_port)
    if tls is None:
        return
    try:
        url = f"https://127.0.0.1:{controller_port}"
        write_profile(controller_port, LocalProfile(url, tls.ca_file))
    except OSError as error:  # --ca-file does without it
        _log.warning("profile for commands not written", extra={"reason": str(error)})


def _authority(pool: Object) -> AuthorityName:
    name = pool["metadata"]["name"]
    return AuthorityName(
        NAMESPACE, authority_secret_name(name), f"Tidemark pool {NAMESPACE}/{name}"
    )


def _write(path: Path, text: str) -> None:
    """Replace a file: a reader finds all of the old text or all of the new one."""
    if path.exists() and path.read_text() == text:
        return
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
