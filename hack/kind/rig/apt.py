"""Debian packages, for root on Debian; no service is started by installing one."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import config
from .run import Fail, answer

POLICY = Path("/usr/sbin/policy-rc.d")


def install(*packages: str) -> None:
    wanted = " ".join(packages)
    if not shutil.which("apt-get"):
        raise Fail(f"needed: {wanted}; there is no apt-get here: install it by other means")
    if os.geteuid() != 0:
        raise Fail(f"needed: {wanted}; only root can install it: sudo apt-get install {wanted}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    patient = ["apt-get", "-o", "DPkg::Lock::Timeout=300"]
    command = [*patient, "install", "--yes", "--no-install-recommends", *packages]
    with _no_services():
        ok, text = answer(command, config.APT, env)
        if not ok:
            # The package lists may be old or (in a fresh container) absent.
            ok, text = answer([*patient, "update"], config.APT, env)
            if ok:
                ok, text = answer(command, config.APT, env)
    if not ok:
        raise Fail(f"apt-get install {wanted}: {text}; install it by hand, then run this again")


@contextmanager
def _no_services() -> Iterator[None]:
    """Without systemd, docker.io's init script would start a daemon that nobody ends."""
    if POLICY.exists() or Path("/run/systemd/system").exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
