"""Whether this broker lives and serves: asked by probes before anything else is loaded."""

import msgspec

from tidemark_broker.http.answers import Answer
from tidemark_broker.http.broker_view import BrokerView


def health(view: BrokerView) -> Answer:
    """Who answers here: a probe compares the incarnation (S19)."""
    body = {"brokerId": view.broker_id, "incarnation": view.incarnation, "pool": view.pool}
    return Answer(200, msgspec.json.encode(body))


def readiness(view: BrokerView) -> Answer:
    is_ready, reason = view.is_ready()
    body = {"ready": is_ready, "reason": reason}
    return Answer(200 if is_ready else 503, msgspec.json.encode(body))
