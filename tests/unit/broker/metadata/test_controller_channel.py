"""Which controller a broker asks next."""

import asyncio

import pytest
from tidemark_broker.metadata.controller_channel import (
    Address,
    ControllerChannel,
    ControllerUnavailable,
)
from tidemark_protocol.controller_messages import HeartbeatResponse, encode
from tidemark_protocol.error_codes import ErrorCode

NEVER_RESPONDED = "/v1/create-topics"
HOSTS = ("10.0.0.1", "10.0.0.2")


class Controllers:
    """`ControllerTransport`: each host answers NOT_CONTROLLER and names another, or leads ("")."""

    def __init__(self, named: dict[str, str]) -> None:
        self.named = named
        self.hung: set[str] = set()
        self.requested: list[str] = []

    async def start(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def post(self, address: Address, path: str, body: bytes) -> bytes:
        self.requested.append(address.host)
        if path == NEVER_RESPONDED or address.host in self.hung:
            await asyncio.Event().wait()
        named = self.named[address.host]
        error = ErrorCode.NOT_CONTROLLER if named else ErrorCode.NONE
        return encode(HeartbeatResponse(error, controller_address=named))

    async def resolve(self, name: Address) -> list[Address]:
        return [Address(host, name.port) for host in HOSTS]


def requested_until_led(named: dict[str, str], most: int = 6) -> list[str]:
    async def ask() -> list[str]:
        controllers = Controllers(named)
        client = ControllerChannel(("controllers:8070",), lambda: controllers)
        for _ in range(most):
            answer = await client.call("/v1/heartbeat", {}, HeartbeatResponse, timeout_ms=1000)
            if answer.error is ErrorCode.NONE:
                break
            client.prefer(answer.controller_address)
        return controllers.requested

    return asyncio.run(ask())


def test_the_leader_that_a_standby_names_is_asked_next() -> None:
    assert requested_until_led({"10.0.0.1": "10.0.0.2:8070", "10.0.0.2": ""}) == list(HOSTS)


def test_a_standby_that_names_itself_is_not_asked_for_ever() -> None:
    """Found by the simulator (seed 13): a frozen leader, told to stop, named itself on waking."""
    requested = requested_until_led({"10.0.0.1": "10.0.0.1:8070", "10.0.0.2": ""})
    assert requested == list(HOSTS)


def test_a_leader_that_hangs_is_waited_for_once_between_two_questions_to_the_standby() -> None:
    """Else twice half a session passes, and the standby that leads since then fences who lives
    (seed 179 of "one controller stays deaf")."""

    async def scenario() -> list[str]:
        controllers = Controllers({HOSTS[0]: "", HOSTS[1]: HOSTS[0] + ":8070"})
        client = ControllerChannel(("controllers:8070",), lambda: controllers)
        await client.call("/v1/heartbeat", {}, HeartbeatResponse, timeout_ms=1000)
        controllers.hung.add(HOSTS[0])
        for _ in range(5):
            try:
                answer = await client.call("/v1/heartbeat", {}, HeartbeatResponse, timeout_ms=10)
            except ControllerUnavailable:
                continue
            client.prefer(answer.controller_address)
        return controllers.requested[1:]

    first, second = HOSTS
    assert asyncio.run(scenario()) == [first, second, first, second, first]


def test_a_call_aside_that_takes_too_long_costs_the_heartbeats_no_leader() -> None:
    async def scenario() -> list[str]:
        controllers = Controllers({HOSTS[0]: HOSTS[1] + ":8070", HOSTS[1]: ""})
        client = ControllerChannel(("controllers:8070",), lambda: controllers)
        with pytest.raises(ControllerUnavailable, match="no active controller"):
            await client.call_in_background(NEVER_RESPONDED, {}, HeartbeatResponse, timeout_ms=10)
        for _ in HOSTS:
            answer = await client.call("/v1/heartbeat", {}, HeartbeatResponse, timeout_ms=1000)
            if answer.error is ErrorCode.NOT_CONTROLLER:
                client.prefer(answer.controller_address)
        with pytest.raises(ControllerUnavailable, match=f"{NEVER_RESPONDED}: TimeoutError"):
            await client.call_in_background(NEVER_RESPONDED, {}, HeartbeatResponse, timeout_ms=10)
        await client.call("/v1/heartbeat", {}, HeartbeatResponse, timeout_ms=1000)
        return controllers.requested

    assert asyncio.run(scenario()) == [HOSTS[0], HOSTS[1], HOSTS[1], HOSTS[1]]


@pytest.mark.parametrize("text", ["", "host", "host:", ":80", "host:0", "host:65536", "host:x"])
def test_addresses_are_checked(text: str) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        Address.parse(text)


def test_addresses_of_both_families_are_read() -> None:
    assert Address.parse("[::1]:80") == Address("::1", 80)
    assert Address.parse(" tidemark:8070 ") == Address("tidemark", 8070)
