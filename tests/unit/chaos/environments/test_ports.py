"""Ports of clusters that begin at the same time."""

import socket

import pytest
from tidemark_chaos.environments.processes import HOST, PortRange
from tidemark_client.errors import CommandFailed


def numbers(ports: PortRange, count: int) -> set[int]:
    return set(range(ports.first, ports.first + count))


def test_two_ranges_that_nobody_listens_at_yet_have_nothing_in_common() -> None:
    with PortRange(5) as one, PortRange(7) as other:
        assert not numbers(one, 5) & numbers(other, 7)


def test_a_server_listens_at_a_port_of_ours_again_and_again() -> None:
    with PortRange(1) as ports:
        for _ in range(2):
            with (
                socket.create_server((HOST, ports.first)) as server,
                socket.create_connection((HOST, ports.first), timeout=5),
            ):
                server.accept()[0].close()


def test_a_port_where_somebody_listens_is_passed_over() -> None:
    with PortRange(1) as ours:
        port = ours.first
        stranger = socket.create_server((HOST, port))
    with stranger, PortRange(1) as ports:
        assert ports.first != port


def test_no_room_is_said() -> None:
    with pytest.raises(CommandFailed) as failed:
        PortRange(20_000)
    assert "20000 free neighbouring ports" in str(failed.value)
