"""List the SASL mechanisms, and start an exchange of one."""

from collections.abc import Callable

from tidemark_broker.security.exchange import Exchange
from tidemark_broker.security.sasl_oauthbearer import MECHANISM as OAUTHBEARER
from tidemark_broker.security.sasl_oauthbearer import OauthBearerExchange
from tidemark_broker.security.sasl_plain import MECHANISM as PLAIN
from tidemark_broker.security.sasl_plain import PlainExchange
from tidemark_broker.security.scram import HASHES, ScramExchange

MECHANISMS = (OAUTHBEARER, PLAIN, *HASHES)


def new_exchange(mechanism: str, new_nonce: Callable[[], str]) -> Exchange | None:
    """Return a new exchange, or None for a mechanism that is not supported."""
    if mechanism == OAUTHBEARER:
        return OauthBearerExchange()
    if mechanism == PLAIN:
        return PlainExchange()
    return ScramExchange(mechanism, new_nonce()) if mechanism in HASHES else None
