"""What the simulator's commands take, and what they say of anything else."""

import argparse
from collections.abc import Callable
from difflib import get_close_matches

from tests.simulation.faults.fault_profiles import ALL_PROFILES

# Faults begin after two seconds and end one before the healing.
LEAST_SECONDS = 3.0
PROFILES = "fault profiles: " + ", ".join(ALL_PROFILES)


def at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            found = least - 1
        if found < least:
            raise _wrong(f"a whole number of at least {least}", text)
        return found

    return number


def seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not LEAST_SECONDS <= found < float("inf"):
        raise _wrong(f"seconds, at least {LEAST_SECONDS:g}", text)
    return found


def profile(*also: str) -> Callable[[str], str]:
    """ "" is what each seed brings by itself."""
    names = ("", *also, *ALL_PROFILES)

    def name(text: str) -> str:
        if text not in names:
            near = get_close_matches(text, names, n=3)
            hint = f"; near it: {', '.join(map(repr, near))}" if near else ""
            raise _wrong(
                "a fault profile", text, hint + "; `hack/sim runner --help` lists them all"
            )
        return text

    return name


def _wrong(expected: str, text: str, to_do: str = "") -> argparse.ArgumentTypeError:
    found = repr(text) if text else "nothing"
    return argparse.ArgumentTypeError(f"expected {expected}, found {found}{to_do}")
