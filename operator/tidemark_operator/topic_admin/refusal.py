"""Why a client's change of a topic is not made: Kafka's code, and what to do about it."""

from dataclasses import dataclass

from tidemark_protocol.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class Refusal:
    error: ErrorCode
    message: str
