"""A load run and the read of the whole log after it, as the history that `history.judge` judges.

Pure. Records of other runs are left out: they have no sequence here.
"""

from collections.abc import Iterable, Iterator, Mapping

from tidemark_cli.history import Kind, Operation, Outcome
from tidemark_cli.load_events import ACKNOWLEDGED, FOREIGN, REFUSED, Event, Produced, Read

_OUTCOMES = {ACKNOWLEDGED: Outcome.OK, REFUSED: Outcome.FAIL}


def operations(
    events: Iterable[Event], found: Mapping[int, Mapping[int, int]], *, at_ms: float
) -> Iterator[Operation]:
    """In the order of completion. `found`: partition -> offset -> sequence, read at `at_ms`."""
    for event in events:
        if isinstance(event, Produced):
            yield _send(event)
        elif isinstance(event, Read):
            shown = enumerate(event.sequences, start=event.offset)
            own = [pair for pair in shown if pair[1] != FOREIGN]
            if own:
                yield _poll(event, own)
    for partition in sorted(found):
        shown_at_end = [pair for pair in sorted(found[partition].items()) if pair[1] != FOREIGN]
        yield Operation(
            process=f"verify-{partition}",
            kind=Kind.POLL,
            outcome=Outcome.OK,
            partition=str(partition),
            values=tuple(sequence for _, sequence in shown_at_end),
            offsets=tuple(offset for offset, _ in shown_at_end),
            invoked_us=_us(at_ms),
            completed_us=_us(at_ms),
            is_reset=True,
            is_final=True,
            log_start_offset=min(found[partition], default=0),
            high_watermark=max(found[partition], default=-1) + 1,
        )


def _send(event: Produced) -> Operation:
    return Operation(
        process=f"producer-{event.partition}-{event.producer}",
        kind=Kind.SEND,
        outcome=_OUTCOMES.get(event.outcome, Outcome.INFO),
        partition=str(event.partition),
        values=(event.sequence,),
        offsets=(event.offset,) if event.outcome == ACKNOWLEDGED else (),
        invoked_us=_us(event.t_ms - event.latency_ms),
        completed_us=_us(event.t_ms),
        is_idempotent=event.producer >= 0,
    )


def _poll(event: Read, shown: list[tuple[int, int]]) -> Operation:
    return Operation(
        process=f"consumer-{event.rack}-{event.partition}",
        kind=Kind.POLL,
        outcome=Outcome.OK,
        partition=str(event.partition),
        values=tuple(sequence for _, sequence in shown),
        offsets=tuple(offset for offset, _ in shown),
        invoked_us=_us(event.t_ms - event.took_ms),
        completed_us=_us(event.t_ms),
        high_watermark=event.high_watermark,
    )


def _us(t_ms: float) -> int:
    return round(t_ms * 1000)
