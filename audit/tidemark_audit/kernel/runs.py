"""Which neighbouring samples belong to one run. The one rule of the kernel and of merging.

Two samples of a series join when no more than `break_gap_ms` lies between them and, for STEP, they
are equal; for RISING, the later is not smaller; for SPREAD, always. NaN (a series that ended)
joins only NaN. It looks at two neighbours and nothing else, so it makes no difference whether a
cut was between them: that is why summaries merge in any order.
"""

import numpy as np
from numpy.typing import NDArray

from tidemark_audit.families import Shape
from tidemark_audit.kernel.samples import Flags, Floats, Longs


def joins(
    *,
    shape: NDArray[np.int8],
    same_series: Flags,
    gap_ms: Longs,
    before: Floats,
    after: Floats,
    break_gap_ms: int,
) -> Flags:
    """For each pair of neighbours; all arrays have one length."""
    absent_before, absent_after = np.isnan(before), np.isnan(after)
    equal = before == after
    rises = after >= before
    alike = np.where(shape == Shape.STEP, equal, np.where(shape == Shape.RISING, rises, True))
    alike &= ~(absent_before | absent_after)
    alike |= absent_before & absent_after
    return np.asarray(same_series & (gap_ms <= break_gap_ms) & alike)
