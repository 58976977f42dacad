"""The collector of cyclic garbage, kept away from what lives for long.

The state of large pools is some hundred thousand values, none of which is ever part of a cycle, and
a full collection that looks at them all holds the event loop for as long as a broker may be silent.
So what a full collection has left is not looked at again. Cycles that become garbage after that
are never freed: whatever lives so long and ends in a cycle must be rare.
"""

import gc

# Fewer collections of what is new: decisions make thousands of values at a time.
THRESHOLDS = (5_000, 10, 20)


def check_retained_once() -> None:
    """For the life of this process."""
    gc.set_threshold(*THRESHOLDS)
    if _freeze_after_full_collection not in gc.callbacks:
        gc.callbacks.append(_freeze_after_full_collection)


def _freeze_after_full_collection(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()
