"""Define a ChaosExperiment as a typed value: what its controller reads of it.

The complete `spec` is of the engine (`tidemark_chaos.spec`), which runs in the Job and checks it
before anything is struck.
"""

from typing import ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from tidemark_operator.api.kinds import CHAOS_EXPERIMENT, Object, ResourceKind
from tidemark_operator.api.objects import ApiObject, ObjectStatus

CHAOS_LABEL = "tidemark.dev/chaos"  # of a BrokerPool whose brokers may be struck
ALLOWED = "allowed"
# While an object has it, its run may have to be undone, and no other run of the pool begins.
FINALIZER = "tidemark.dev/chaos"


class ExperimentSpec(msgspec.Struct, frozen=True, kw_only=True):
    pool: str


class ExperimentStatus(ObjectStatus, frozen=True, kw_only=True, rename="camel"):
    """The status; its Job writes the fields from `seed` on, the controller the others."""

    phase: str | UnsetType = UNSET
    job: str | UnsetType = UNSET
    seed: int | UnsetType = UNSET
    current_fault: str | UnsetType = UNSET
    rounds: int | UnsetType = UNSET
    verdict: str | UnsetType = UNSET
    sentence: str | UnsetType = UNSET
    reasons: tuple[str, ...] | UnsetType = UNSET
    lost: int | UnsetType = UNSET
    finished_at: str | UnsetType = UNSET


class ChaosExperiment(ApiObject, kw_only=True, rename="camel"):
    resource: ClassVar[ResourceKind] = CHAOS_EXPERIMENT

    spec: ExperimentSpec
    status: ExperimentStatus = ExperimentStatus()

    @classmethod
    def faults(cls, item: Object) -> list[str]:
        """Return no sentence: the API server and the Job check the spec."""
        return []

    @property
    def has_finalizer(self) -> bool:
        return has_finalizer(self.stored)


def has_finalizer(item: Object) -> bool:
    """Return whether a stored experiment may hold its pool."""
    return FINALIZER in (item["metadata"].get("finalizers") or ())
