"""The bound on connections of unknown clients: who is ended, and who is not."""

from dataclasses import dataclass, field

from tidemark_protocol.pending_connections import PendingConnections


@dataclass(eq=False)
class Connection:
    ended: list[str] = field(default_factory=list)

    def reject(self, kind: str, reason: str) -> None:
        self.ended.append(kind)


def joined(pending: PendingConnections, address: str, count: int) -> list[Connection]:
    made = [Connection() for _ in range(count)]
    for connection in made:
        pending.join(connection, address)
    return made


def test_the_oldest_of_an_address_is_ended_at_its_bound() -> None:
    pending = PendingConnections(10, 3)
    made = joined(pending, "a", 5)
    assert [bool(each.ended) for each in made] == [True, True, False, False, False]
    assert len(pending) == 3


def test_a_flood_of_one_address_ends_no_connection_of_another() -> None:
    pending = PendingConnections(4, 3)
    (other,) = joined(pending, "b", 1)
    flood = joined(pending, "a", 1000)
    third = joined(pending, "c", 1)  # at the bound of all: the address with most gives way
    assert not other.ended and not third[0].ended
    assert len(pending) == 4 and sum(bool(each.ended) for each in flood) == 998


def test_a_connection_whose_client_is_known_is_not_counted() -> None:
    pending = PendingConnections(2, 2)
    known = joined(pending, "a", 2)
    assert all(map(pending.forget, known))
    assert not pending.forget(known[0])
    joined(pending, "a", 5)
    assert not known[0].ended and not known[1].ended and len(pending) == 2
