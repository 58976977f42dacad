"""Which topic a client's send belongs to, when topics of one name come and go. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tidemark_chaos.history_checker import Kind, Operation, Outcome


def placed(history: Sequence[Operation]) -> Iterator[Operation]:
    """Sends that were told no topic id belong to the topic in which their values were read. So do,
    beside the one that answered, idempotent ones: who sends the same again may send it to the next
    topic of that name."""
    read_in: dict[int, set[str]] = {}
    for operation in history:
        if operation.kind is Kind.POLL:
            for value in operation.values:
                read_in.setdefault(value, set()).add(operation.partition)
    for operation in history:
        if operation.kind is not Kind.SEND:
            yield operation
            continue
        elsewhere = {place for value in operation.values for place in read_in.get(value, ())}
        elsewhere.discard(operation.partition)
        if not operation.partition.startswith("/"):
            yield operation
            if operation.is_idempotent:
                for place in sorted(elsewhere):
                    yield replace(operation, partition=place, outcome=Outcome.INFO, offsets=())
        else:
            for place in sorted(elsewhere) or [operation.partition]:
                yield replace(operation, partition=place)
