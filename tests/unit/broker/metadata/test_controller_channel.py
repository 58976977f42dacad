"""Which controller a broker asks next."""

import asyncio

import pytest
from tidemark_broker.metadata.controller_channel import (
    Address,
    ControllerChannel,
    ControllerUnavailable,
)
from tidemark_protocol.access_messages import (
    ANONYMOUS,
    REVIEW_TOKEN_PATH,
    ReviewTokenRequest,
    ReviewTokenResponse,
)
from tidemark_protocol.controller_messages import HeartbeatResponse, RegisterResponse, encode
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch
from tidemark_protocol.topic_messages import CreateTopicsRequest

NEVER_RESPONDED = "/v1/create-topics"
HOSTS = ("10.0.0.1", "10.0.0.2")
REGISTERED = RegisterResponse(ErrorCode.NONE, broker_epoch=BrokerEpoch(7))


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


def channel(controllers: Controllers) -> ControllerChannel:
    return ControllerChannel(
        ("controllers:8070",), lambda: controllers, pool="ns/p", broker_id=BrokerId(1)
    )


def requested_until_led(named: dict[str, str], most: int = 6) -> list[str]:
    async def ask() -> list[str]:
        controllers = Controllers(named)
        client = channel(controllers)
        for _ in range(most):
            response = await client.call("/v1/heartbeat", {}, HeartbeatResponse, timeout_ms=1000)
            if response.error is ErrorCode.NONE:
                break
            client.prefer(response.controller_address)
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
        client = channel(controllers)
        await client.call("/v1/heartbeat", {}, HeartbeatResponse, timeout_ms=1000)
        controllers.hung.add(HOSTS[0])
        for _ in range(5):
            try:
                response = await client.call("/v1/heartbeat", {}, HeartbeatResponse, timeout_ms=10)
            except ControllerUnavailable:
                continue
            client.prefer(response.controller_address)
        return controllers.requested[1:]

    first, second = HOSTS
    assert asyncio.run(scenario()) == [first, second, first, second, first]


def test_a_call_aside_that_takes_too_long_costs_the_heartbeats_no_leader() -> None:
    async def scenario() -> list[str]:
        controllers = Controllers({HOSTS[0]: HOSTS[1] + ":8070", HOSTS[1]: ""})
        client = channel(controllers)
        with pytest.raises(ControllerUnavailable, match="no active controller"):
            await client.call_in_background(NEVER_RESPONDED, {}, HeartbeatResponse, timeout_ms=10)
        for _ in HOSTS:
            response = await client.call("/v1/heartbeat", {}, HeartbeatResponse, timeout_ms=1000)
            if response.error is ErrorCode.NOT_CONTROLLER:
                client.prefer(response.controller_address)
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


class Epochs:
    """An `EpochStore` in memory."""

    def __init__(self) -> None:
        self.stored: list[tuple[int, int]] = []
        self.is_failing = False

    async def store(self, broker_epoch: BrokerEpoch, controller_epoch: ControllerEpoch) -> bool:
        self.stored.append((broker_epoch, controller_epoch))
        return not self.is_failing


def test_a_channel_that_is_not_started_has_no_response() -> None:
    async def scenario() -> None:
        controllers = Controllers({"10.0.0.1": ""})
        asked = channel(controllers)
        request = CreateTopicsRequest(asked.requesting_broker(), "1", ())
        assert await asked.request_producer_ids() is None
        assert await asked.request_topics(NEVER_RESPONDED, request, 1000) is None
        assert await asked.send_proposals(()) is None
        assert controllers.requested == []

    asyncio.run(scenario())


def test_an_accepted_epoch_is_stored_first_and_an_earlier_one_is_dropped() -> None:  # I16, S16
    async def scenario() -> None:
        asked, epochs = channel(Controllers({})), Epochs()
        await asked.start(epochs)
        asked.on_registration(REGISTERED)
        assert await asked.accept(ControllerEpoch(5))
        assert not await asked.accept(ControllerEpoch(4))
        assert (epochs.stored, asked.controller_epoch) == ([(7, 5)], 5)
        epochs.is_failing = True
        assert not await asked.accept(ControllerEpoch(6)), "it is not stored"

    asyncio.run(scenario())


def test_a_response_whose_epoch_waits_for_the_disk_is_dropped_when_another_controller_came() -> (
    None
):
    async def scenario() -> None:
        may_go = asyncio.Event()

        class SlowEpochs(Epochs):
            async def store(
                self, broker_epoch: BrokerEpoch, controller_epoch: ControllerEpoch
            ) -> bool:
                if controller_epoch == 5:
                    await may_go.wait()
                return await super().store(broker_epoch, controller_epoch)

        asked = channel(Controllers({}))
        await asked.start(SlowEpochs())
        waiting = asyncio.create_task(asked.accept(ControllerEpoch(5)))
        await asyncio.sleep(0)
        assert await asked.accept(ControllerEpoch(6))
        may_go.set()
        assert not await waiting

    asyncio.run(scenario())


class Store:
    async def store(self, broker_epoch: BrokerEpoch, controller_epoch: ControllerEpoch) -> bool:
        return True


class Reviewing(Controllers):
    """Answers reviews with what `response` says; changes of topics never."""

    response = ReviewTokenResponse(ErrorCode.NONE, ControllerEpoch(5), principal=ANONYMOUS)

    async def post(self, address: Address, path: str, body: bytes) -> bytes:
        if path == REVIEW_TOKEN_PATH:
            return encode(self.response)
        return await super().post(address, path, body)


def test_reviews_have_turns_of_their_own_and_count_only_from_the_newest_controller() -> None:
    async def scenario() -> None:
        controllers = Reviewing(dict.fromkeys(HOSTS, ""))
        client = channel(controllers)

        async def review() -> ReviewTokenResponse | None:
            request = ReviewTokenRequest(client.requesting_broker(), "t")
            return await client.review(
                REVIEW_TOKEN_PATH, request, ReviewTokenResponse, timeout_ms=1000
            )

        assert await review() is None, "not started"
        await client.start(Store())
        assert await review() is None, "no controller is known"
        await client.call("/v1/heartbeat", {}, HeartbeatResponse, timeout_ms=1000)
        slow = [
            asyncio.create_task(
                client.call_in_background(NEVER_RESPONDED, {}, HeartbeatResponse, timeout_ms=60_000)
            )
            for _ in range(10)
        ]
        await asyncio.sleep(0)
        assert await review() == controllers.response
        for error, epoch in ((ErrorCode.UNKNOWN_SERVER_ERROR, 5), (ErrorCode.NONE, 4)):
            controllers.response = ReviewTokenResponse(error, ControllerEpoch(epoch))
            assert await review() is None
        for task in slow:
            task.cancel()

    asyncio.run(scenario())
