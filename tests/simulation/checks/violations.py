"""What every check of the simulator raises."""


class Violation(Exception):
    """An invariant or a promise is broken. `name` is its number, e.g. "I3", or an anomaly's."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text


FLIPPED_EPOCH = "a flipped leader epoch whose only witness a power loss took (0061)"

SENT_AGAIN_LATE = "a batch sent again after its producer had expired"

SENT_TO_A_NEWCOMER = "a batch sent again that retention took, to who began anew past it (0087)"


class BeyondPromises(Violation):
    """What happened is more than anything was promised against: the run says no more."""

    def __init__(self, text: str) -> None:
        super().__init__("beyond", text)
