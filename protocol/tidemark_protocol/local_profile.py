"""Tell commands of this machine how a `tidemark dev` is reached: its URL, and whom to trust.

`tidemark dev --tls` writes one small file for its controller port below the user's state directory
(XDG), and removes it when it ends. A `tidemark dev` without TLS at the same port removes one that a
killed process left.
"""

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LocalProfile:
    url: str  # of the controller
    ca_file: Path


def profile_path(controller_port: int) -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "tidemark" / "dev" / f"{controller_port}.json"


def read_profile(controller_port: int) -> LocalProfile | None:
    """Return the profile, or None if there is none."""
    try:
        found = json.loads(profile_path(controller_port).read_text())
        return LocalProfile(str(found["url"]), Path(found["caFile"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_profiles() -> tuple[LocalProfile, ...]:
    try:
        ports = [path.stem for path in profile_path(0).parent.glob("*.json")]
    except OSError:
        return ()
    found = (read_profile(int(port)) for port in sorted(ports) if port.isdecimal())
    return tuple(profile for profile in found if profile is not None)


def write_profile(controller_port: int, profile: LocalProfile) -> None:
    """Write the profile.

    Raises OSError.
    """
    path = profile_path(controller_port)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"url": profile.url, "caFile": str(profile.ca_file)})
    temporary = path.with_suffix(".new")
    temporary.write_text(text + "\n")
    temporary.replace(path)


def remove_profile(controller_port: int) -> None:
    with contextlib.suppress(OSError):
        profile_path(controller_port).unlink()
