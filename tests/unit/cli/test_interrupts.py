"""A command ends in order at both signals, also where SIGINT was ignored at its start."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest
from tidemark_cli.interrupts import until_interrupted
from tidemark_client.errors import CommandFailed


@pytest.fixture(autouse=True)
def ignored_sigint() -> Iterator[None]:
    """As a shell starts what a script sends to the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(number: signal.Signals) -> list[str]:
    done: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(20)
        finally:
            done.append("released")

    try:
        asyncio.run(until_interrupted(work(), "Stopped by SIGTERM."))
    except (KeyboardInterrupt, CommandFailed) as error:
        done.append(f"{type(error).__name__} {error}".strip())
    return done


def test_what_a_command_holds_is_released_first() -> None:
    assert interrupted(signal.SIGINT) == ["released", "KeyboardInterrupt"]
    assert interrupted(signal.SIGTERM) == ["released", "CommandFailed Stopped by SIGTERM."]


def test_a_command_that_ends_by_itself_has_its_result() -> None:
    async def work() -> int:
        return 7

    assert asyncio.run(until_interrupted(work(), "")) == 7
