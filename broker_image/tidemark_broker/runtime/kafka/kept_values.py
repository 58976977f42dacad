"""What a decoded request keeps while it waits for its answer: its values alone, not its frame.

Values as they are read are views of the frame, which a client may fill with what nobody reads.
"""

from typing import Any

from tidemark_broker.wire.steps import Steps

OBJECT_BYTES = 64  # of a number, and of what a string is besides its letters
STRUCT_BYTES = 512
_SLOT_BYTES = 8


def kept_steps(value: Any) -> Steps[tuple[Any, int]]:
    """The same value without views, and about how many bytes it holds."""
    match value:
        case dict():
            struct: dict[str, Any] = {}
            held_bytes = STRUCT_BYTES
            for name, each in value.items():
                struct[name], more_bytes = yield from kept_steps(each)
                held_bytes += more_bytes
            return struct, held_bytes
        case tuple():
            elements = []
            held_bytes = OBJECT_BYTES
            for each in value:
                element, more_bytes = yield from kept_steps(each)
                elements.append(element)
                held_bytes += more_bytes + _SLOT_BYTES
                yield 1
            return tuple(elements), held_bytes
        case memoryview():
            return bytes(value), OBJECT_BYTES + len(value)
        case str():
            return value, OBJECT_BYTES + len(value)
        case _:
            return value, OBJECT_BYTES
