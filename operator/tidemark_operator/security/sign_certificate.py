"""Answer brokers that ask for a certificate.

A broker is named by the pool and id of its request, which the authentication of the controller API
has compared with its sender's identity.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tidemark_protocol.access_messages import SignCertificateRequest, SignCertificateResponse
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId

from tidemark_operator.security.authorities import Authorities, AuthorityName
from tidemark_operator.security.certificate_authority import (
    CertificateSubject,
    InvalidAuthority,
    InvalidRequest,
)
from tidemark_operator.store.object_store import StoreError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerCertificate:
    """The names of a broker and the authorities of its pool.

    `check_after_s`: when the names may be others; 0: they stay.
    """

    authority: AuthorityName
    subject: CertificateSubject
    check_after_s: float = 0.0


# None for a pool without TLS.
SubjectOf = Callable[[str, BrokerId], Awaitable[BrokerCertificate | None]]


class CertificateSigner:
    def __init__(
        self, authorities: Authorities, subject_of: SubjectOf, *, is_leading: Callable[[], bool]
    ) -> None:
        self._authorities = authorities
        self._subject_of = subject_of
        self._is_leading = is_leading

    async def sign(self, request: SignCertificateRequest) -> SignCertificateResponse:
        if not self._is_leading():
            return SignCertificateResponse(ErrorCode.NOT_CONTROLLER)
        try:
            found = await self._subject_of(request.pool, request.broker_id)
            if found is None:
                return SignCertificateResponse(
                    ErrorCode.INVALID_REQUEST, f"pool {request.pool}: TLS is not enabled"
                )
            check_after_ms = int(found.check_after_s * 1000)
            if request.current_pem and await self._authorities.is_current(
                found.authority, request.current_pem, request.request_pem, found.subject
            ):
                return SignCertificateResponse(ErrorCode.NONE, check_after_ms=check_after_ms)
            issued, current = await self._authorities.issue(
                found.authority, request.request_pem, found.subject
            )
        except InvalidRequest as error:
            return SignCertificateResponse(ErrorCode.INVALID_REQUEST, str(error))
        except (InvalidAuthority, StoreError) as error:
            _log.error("certificate not issued", extra={"pool": request.pool, "error": str(error)})
            return SignCertificateResponse(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        _log.info(
            "certificate issued",
            extra={
                "pool": request.pool,
                "broker_id": request.broker_id,
                "authority": current.issuer.fingerprint[:16],
                "ends_at_s": issued.ends_s,
            },
        )
        return SignCertificateResponse(
            ErrorCode.NONE,
            certificate_pem=issued.pem,
            authorities_pem=current.bundle,
            not_after_ms=issued.ends_s * 1000,
            check_after_ms=check_after_ms,
        )
