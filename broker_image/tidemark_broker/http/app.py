"""create_app: the ASGI callable of a broker."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tidemark_broker.http.broker_view import BrokerView
from tidemark_broker.http.limits import HttpLimits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


def create_app(broker_view: BrokerView, *, limits: HttpLimits = HttpLimits()) -> AsgiApp:  # noqa: B008
    """The whole HTTP API of one broker, for `server.serve`."""
    raise NotImplementedError
