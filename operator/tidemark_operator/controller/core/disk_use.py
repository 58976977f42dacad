"""Judge how full the volume of a broker is, by what its heartbeat reports.

The limits are those of the alerts TidemarkDiskNearlyFull and TidemarkDiskFull.
"""

from dataclasses import dataclass
from enum import Enum

NEARLY_FULL_SHARE = 0.15
FULL_BYTES = 256 * 1024 * 1024  # below that a broker rejects records
FULL_SHARE = 20  # or a twentieth of a small volume, whichever is less


class DiskState(Enum):
    OK = "Ok"
    NEARLY_FULL = "NearlyFull"
    FULL = "Full"


@dataclass(frozen=True, slots=True)
class DiskUse:
    free_bytes: int
    size_bytes: int  # above 0

    @property
    def state(self) -> DiskState:
        if self.free_bytes < min(self.size_bytes // FULL_SHARE, FULL_BYTES):
            return DiskState.FULL
        if self.free_bytes < NEARLY_FULL_SHARE * self.size_bytes:
            return DiskState.NEARLY_FULL
        return DiskState.OK
