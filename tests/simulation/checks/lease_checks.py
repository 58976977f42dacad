"""Every acquisition of the Lease takes a controller epoch above all that objects had (S16), and no
Lease is lost for work alone.

Only what was stored before the candidate read it could be known to it: what a holder wrote while
its Lease was deleted and taken anew may have the same epoch, and a broker says so later.
"""

from collections.abc import Collection

from tidemark_protocol.ids import NO_EPOCH, ControllerEpoch

from tests.simulation.checks.session_checks import OF_WORK
from tests.simulation.checks.violations import Violation

READ_BEFORE_US = 4_000_000  # from a candidate's first read until its Lease is stored, at most


class LeaseChecker:
    def __init__(self) -> None:
        self._taken = ControllerEpoch(NO_EPOCH)  # the Lease's
        self._stored_us: list[tuple[int, ControllerEpoch]] = []  # of objects, as they rose

    def on_object(self, epoch: ControllerEpoch, now_us: int) -> None:
        """A Broker or a slice was written by the controller of that epoch."""
        if not self._stored_us or epoch > self._stored_us[-1][1]:
            self._stored_us.append((now_us, epoch))

    def on_lease(
        self, epoch: ControllerEpoch, now_us: int, *, befell: Collection[str] | None = None
    ) -> None:
        """As stored now; NO_EPOCH: there is none. `befell`: which faults, until the run's own end.
        Raises Violation."""
        if epoch == self._taken:
            return
        if self._taken != NO_EPOCH and befell is not None and OF_WORK.issuperset(befell):
            kinds = ", ".join(sorted(befell)) or "nothing"
            raise Violation("lease", f"lost at controller epoch {self._taken}, all was: {kinds}")
        self._taken = epoch
        known = [e for since_us, e in self._stored_us if since_us <= now_us - READ_BEFORE_US]
        if known and NO_EPOCH < epoch <= known[-1]:
            raise Violation(
                "S16", f"the Lease is taken with controller epoch {epoch}, stored was {known[-1]}"
            )
