"""Good bodies of everything that is decoded here, made by Kafka's own classes."""

import random
from dataclasses import dataclass, field

from tests.fuzz.hostile import Decoder, cost, decoders, mutated
from tests.fuzz.java_peer import JavaPeer
from tests.fuzz.round_trips import WITH_NULLABLE_STRUCTS


def good_bodies(java: JavaPeer, seed: int, count: int) -> list[tuple[Decoder, list[bytes]]]:
    return [
        (one, java.generate(seed, one.api_key, one.version, one.side, count))
        for one in decoders()
        if one.api_key not in WITH_NULLABLE_STRUCTS
    ]


def request_bodies(java: JavaPeer, seed: int, count: int) -> dict[tuple[int, int], list[bytes]]:
    return {
        (one.api_key, one.version): bodies
        for one, bodies in good_bodies(java, seed, count)
        if one.side == "request"
    }


@dataclass
class Attack:
    refused: int = 0
    read: int = 0
    dear: list[str] = field(default_factory=list)


def attacked(java: JavaPeer, seed: int, count: int, blows: int) -> Attack:
    """Every decoder on what good bodies become under blows."""
    chance = random.Random(seed)
    attack = Attack()
    for decoder, bodies in good_bodies(java, seed, count):
        for body in bodies:
            for _ in range(blows):
                wrong = mutated(body, chance)
                found = cost(decoder.decode, wrong)
                attack.refused += found.outcome is not None
                attack.read += found.outcome is None
                if excess := found.excess(len(wrong)):
                    attack.dear.append(f"{decoder}: {excess}: {wrong[:200].hex()}")
    return attack
