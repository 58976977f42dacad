"""Count values in histograms whose bins are 2 % apart, so that a quantile is right to 1 %.

Rank sketches of SQL engines jump between the two humps of replication lag (3 records, 10 000
records); fixed bins cannot. Bin `b > 0` holds values in (1.02^(b-1), 1.02^b] units of 1e-6; bin 0
holds zero and what is smaller than the unit; NEVER holds negative values, which mean "never caught
up" (docs/operations/metrics.md), and ranks above each number.
"""

import numpy as np
from numpy.typing import NDArray

GROWTH = 1.02
UNIT = 1e-6
NEVER = 1 << 20
_PER_BIN = 1.0 / np.log(GROWTH)


def bins(values: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return the bin of each value; none may be NaN."""
    found = np.zeros(len(values), dtype=np.int32)
    large = values > UNIT
    scaled = np.log(values[large] / UNIT) * _PER_BIN
    # A value that stands on a bin's edge must not leave it by the logarithm's rounding.
    found[large] = np.ceil(scaled - 1e-9).astype(np.int32)
    found[values < 0] = NEVER
    return found


def value_of(bin_number: int) -> float:
    """Return the value from which no member of the bin differs by more than 1 %; inf for NEVER."""
    if bin_number == 0:
        return 0.0
    if bin_number == NEVER:
        return float("inf")
    return float(UNIT * 2.0 * GROWTH**bin_number / (GROWTH + 1.0))


def quantile(
    bin_numbers: NDArray[np.int32], counts: NDArray[np.int64], share: float
) -> float | None:
    """Return the smallest value that at least `share` of the samples do not exceed, or None.

    `bin_numbers` ascend.
    """
    total = int(counts.sum())
    if total == 0:
        return None
    wanted = max(1, int(np.ceil(share * total - 1e-9)))
    place = int(np.searchsorted(np.cumsum(counts), wanted))
    return value_of(int(bin_numbers[place]))
