"""An object is complete when its constructor, or its one `open` or `start`, returns."""

from pathlib import Path

from tests.repository.house import ROOT, house_of_one_module, load_house_numbers

# What is assigned after construction all the same, and why.
REASONS = {
    "request.cancel": "how to end the work that a handler began, known once it began",
    "request.on_hurry": "as `cancel`: how to answer a fetch that waits",
    "request.measured": "the time of one request, which its connection measures",
}
LATE = """
class Ticks:
    def __init__(self) -> None:
        self.notify: Callable[[], None] = print
        self.started_ms = 0


class Broker:
    def __init__(self, ticks: Ticks, now_ms: int) -> None:
        self.ticks = ticks
        ticks.notify = self.on_tick
        self.ticks.owner = self
        self.ticks.started_ms = now_ms
        self.ticks.state = IDLE
        self.notify = self.on_tick
"""


def test_no_object_is_completed_after_its_constructor() -> None:
    found = [place.split(" ", 1) for place in load_house_numbers().House(ROOT).late_bindings()]
    assert [(place, target) for place, target in found if target not in REASONS] == []
    assert {target for _, target in found} == set(REASONS), "drop a reason that nothing needs"


def test_no_file_is_in_a_circle_of_imports() -> None:
    assert load_house_numbers().House(ROOT).circles() == []


def test_a_late_binding_is_found_and_state_is_none(tmp_path: Path) -> None:
    assert house_of_one_module(tmp_path, LATE).late_bindings() == [
        "client/module.py:11 ticks.notify",
        "client/module.py:12 self.ticks.owner",
    ]
