"""Every guard with its removal: a method of production code replaced by a weaker one.

A mutant that no run and no test notices means that faults are too tame or a check is missing, or
that the guard guards nothing: each case is work.
"""

from tests.mutation import (
    weakened_controller,
    weakened_identity,
    weakened_liveness,
    weakened_operation,
    weakened_replication,
    weakened_storage,
)
from tests.mutation.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *weakened_replication.MUTANTS,
    *weakened_controller.MUTANTS,
    *weakened_liveness.MUTANTS,
    *weakened_storage.MUTANTS,
    *weakened_operation.MUTANTS,
    *weakened_identity.MUTANTS,
)


def mutant_of(name: str) -> Mutant:
    return next(mutant for mutant in MUTANTS if mutant.name == name)
