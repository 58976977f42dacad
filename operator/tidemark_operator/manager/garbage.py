"""Keep the garbage collector away from long-lived objects.

The state of large pools is some hundred thousand values, none of which is ever part of a cycle, and
a full collection that checks them all blocks the event loop for as long as a broker may be silent.
So what a full collection has left is not checked again. Long-lived objects that become cyclic
garbage after that are never freed, so they must be rare.
"""

import gc

# Fewer collections of what is new: decisions make thousands of values at a time.
THRESHOLDS = (5_000, 10, 20)


def check_retained_once() -> None:
    """Apply it for the life of this process."""
    gc.set_threshold(*THRESHOLDS)
    if _freeze_after_full_collection not in gc.callbacks:
        gc.callbacks.append(_freeze_after_full_collection)


def _freeze_after_full_collection(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()
