"""Ask the controller for the broker's certificate: the first at the start, others in time.

A certificate is renewed after a third of its life, so that a broker lives on for two thirds without
a controller. Then connections to other brokers are made again with it. Where its names are
addresses of nodes or load balancers, the controller is asked now and then whether they changed.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable

from tidemark_protocol.access_messages import SignCertificateResponse
from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.security.tls import BrokerTls, TrustedFile

_log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 2.0
RENEWAL_RETRY_SECONDS = 10.0  # at most; a third of what is left is waited for
CHECK_SECONDS = 30.0  # of the file of trusted authorities

# Sends a request (PEM), with the certificate that may stay or ""; None: no usable response.
Sign = Callable[[str, str], Awaitable[SignCertificateResponse | None]]


class CertificateRenewal:
    def __init__(
        self,
        tls: BrokerTls,
        controllers: TrustedFile,
        *,
        sign: Sign,
        wall_clock_s: Callable[[], float],
    ) -> None:
        self._tls = tls
        self._controllers = controllers
        self._sign = sign
        self._wall_clock_s = wall_clock_s
        self._check_after_s = 0.0  # of the names; 0: they do not change

    async def first(self) -> None:
        """Get the first certificate; retry without limit."""
        delay_s = FIRST_RETRY_SECONDS
        while not await self._renew():
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, MAX_RETRY_SECONDS)
            self._controllers.check()

    async def run(self, on_renewed: Callable[[], Awaitable[None]]) -> None:
        """Renew until cancelled."""
        due_s = self._due_s()
        while True:
            is_renewed = False
            if self._check_after_s and self._wall_clock_s() + self._check_after_s < due_s:
                await self._wait_until(self._wall_clock_s() + self._check_after_s)
                before = self._tls.certificate_pem
                await self._renew(before)
                is_renewed = self._tls.certificate_pem != before
            else:
                await self._wait_until(due_s)
                await self._renew_at_last()
                is_renewed = True
            if not is_renewed:
                continue
            due_s = self._due_s()
            try:
                await on_renewed()
            except OSError as error:  # no file to spare: the former listener stays until the next
                _log.error("listener not renewed", extra={"reason": str(error)})

    def _due_s(self) -> float:
        left_s = self._tls.ends_s - self._wall_clock_s()
        return self._wall_clock_s() + max(0.0, left_s) / 3

    async def _renew_at_last(self) -> None:
        """Renew; retry without limit."""
        while not await self._renew():
            left_s = self._tls.ends_s - self._wall_clock_s()
            await asyncio.sleep(max(FIRST_RETRY_SECONDS, min(left_s / 3, RENEWAL_RETRY_SECONDS)))
            self._controllers.check()

    async def _wait_until(self, due_s: float) -> None:
        """Wait, and look meanwhile whether the controller's authorities changed."""
        while (left_s := due_s - self._wall_clock_s()) > 0:
            await asyncio.sleep(min(left_s, CHECK_SECONDS))
            self._controllers.check()
            self._tls.check_client_authorities()

    async def _renew(self, current_pem: str = "") -> bool:
        response = await self._sign(self._tls.request_pem(), current_pem)
        if response is None:
            return False
        if response.error is not ErrorCode.NONE:
            _log.error(
                "certificate request rejected",
                extra={"error": response.error.name, "reason": response.message},
            )
            return False
        self._check_after_s = response.check_after_ms / 1000
        if current_pem and not response.certificate_pem:
            return True
        try:
            self._tls.install(response.certificate_pem, response.authorities_pem)
        except (ValueError, ssl.SSLError) as error:
            _log.error("certificate of the controller not usable", extra={"reason": str(error)})
            return False
        _log.info("certificate renewed", extra={"ends_at_s": int(self._tls.ends_s)})
        return True
