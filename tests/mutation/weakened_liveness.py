"""Mutants of what keeps a busy controller leading, and its brokers unfenced (S21)."""

from typing import Any

from tests.mutation.edits import at, returns, wrap
from tests.mutation.mutant import Mutant
from tests.simulation.faults.bulk import BULK


def _responses_once_granted(original: Any) -> Any:
    async def heartbeat(self: Any, request: Any) -> Any:
        response = await original(self, request)
        if request.broker_id in self._requested_transitions._granting:
            async with self.decisions.lock:  # after the one that grants it
                return response
        return response

    return heartbeat


def _on_the_main_loop(original: Any) -> Any:
    async def run_thread(self: Any, name: str, work: Any) -> None:
        await work

    return run_thread


MUTANTS = (
    Mutant("a controller notices no stall of its own", "S21",
           (at("own-stall-is-noticed", returns(0)),),
           "tests/regression/test_s21_busy_controller.py::"
           "test_a_controller_that_stalls_while_it_takes_over_fences_nobody_for_that",
           "silences add up"),
    Mutant("a heartbeat is answered once what it asks is granted", "S21",
           (at("heartbeat-waits-for-no-write", wrap(_responses_once_granted)),),
           "tests/regression/test_s21_busy_controller.py::"
           "test_a_live_broker_whose_wish_waits_for_a_long_write_is_answered_and_not_fenced",
           why_no_seed="no simulated decision takes as long as a session"),
    Mutant("the Lease is renewed by the loop that works", "S21",
           (at("lease-renewed-beside-busy-loop", wrap(_on_the_main_loop)),),
           "tests/regression/test_s21_busy_controller.py::"
           "test_a_lease_is_renewed_while_its_holders_loop_is_busy", BULK),
)  # fmt: skip
