"""A Docker to use: the one that answers, the system's started, or one of our own."""

import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import apt, config
from .run import Fail, answer, must, only_one, say

CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_MKNOD": 27}
CAP_SYS_RESOURCE = 24
SYSTEMD = Path("/run/systemd/system")


@dataclass(frozen=True)
class Docker:
    ours: bool
    host: str | None = None

    @property
    def env(self) -> Mapping[str, str]:
        env = dict(os.environ)
        if self.host:
            env["DOCKER_HOST"] = self.host
            env.pop("DOCKER_CONTEXT", None)
            # Debian's daemon has no buildx beside it, and the CLI of another origin may insist.
            env["DOCKER_BUILDKIT"] = "0"
        return env

    def answer(self, *args: str, limit: float = 30) -> tuple[bool, str]:
        return answer(["docker", *args], limit, self.env)

    def must(self, *args: str, limit: float = 30) -> str:
        return must(["docker", *args], limit, self.env)

    def has(self, image: str) -> bool:
        return self.answer("image", "inspect", "--format", "{{.Id}}", image)[0]

    def works(self) -> tuple[bool, str]:
        command = ("info", "--format", "{{.ServerVersion}}")
        ok, text = self.answer(*command, limit=config.DOCKER_ANSWERS)
        # `docker info` succeeds in some versions though no daemon answered.
        return (ok and bool(text.strip())), text.strip()


def _state() -> Path:
    """Sockets and pids of our daemon: a short path, and gone with a reboot, as they should be."""
    name = hashlib.sha256(str(config.cache()).encode()).hexdigest()[:8]
    return Path("/run") / f"tidemark-docker-{name}"


def _own() -> Docker:
    return Docker(ours=True, host=f"unix://{_state()}/docker.sock")


def running() -> tuple[Docker | None, str]:
    """The Docker that answers now (our own first: it is there only because no other was)."""
    if (_state() / "docker.sock").exists():
        own = _own()
        if own.works()[0]:
            return own, "our own"
    theirs = Docker(ours=False)
    ok, text = theirs.works()
    return (theirs if ok else None), text


def why_not_here() -> str | None:
    """Why no daemon can be started on this machine; None where one can."""
    if os.uname().sysname != "Linux":
        return "only Linux runs containers by itself; start Docker Desktop (or the like)"
    if os.geteuid() != 0:
        return "an ordinary user cannot start one: start Docker, or run this as root"
    status = Path("/proc/self/status").read_text()
    held = int(status.split("CapEff:")[1].split()[0], 16)
    lacking = [name for name, bit in CAPABILITIES.items() if not held >> bit & 1]
    if lacking:
        return f"this root lacks {', '.join(lacking)} (a container without --privileged?)"
    groups = Path("/sys/fs/cgroup")
    v1 = groups / "memory"
    if not (groups / "cgroup.controllers").exists() and not v1.is_dir():
        return "no cgroups are mounted at /sys/fs/cgroup"
    if not os.access(v1 if v1.is_dir() else groups, os.W_OK):
        return "/sys/fs/cgroup is read-only here (a container without --privileged?)"
    return None


def startable() -> tuple[bool, str]:
    """Whether `find` would have one within seconds, without installing anything."""
    reason = why_not_here()
    if reason:
        return False, reason
    if shutil.which("docker") and (shutil.which("dockerd") or _system_service()):
        return True, "docker is installed, its daemon can be started"
    return False, "docker is not installed (`hack/kind/cluster up` installs it)"


def _system_service() -> bool:
    return SYSTEMD.exists() and answer(["systemctl", "cat", "docker.service"], 5)[0]


def find() -> Docker:
    """A Docker that works, whatever it takes; says which in one line."""
    with only_one(config.cache() / "docker.lock", config.APT):
        return _find()


def _find() -> Docker:
    found, text = running()
    if found:
        whose = "our own daemon" if found.ours else "the one of this machine"
        version = found.works()[1]
        say(f"docker: {whose} answers ({version})")
        return found
    reason = why_not_here()
    if reason:
        raise Fail(f"docker: none answers ({text}), and {reason}")
    if not shutil.which("docker") or not (shutil.which("dockerd") or _system_service()):
        say("docker: not installed; installing Debian's docker.io")
        apt.install("docker.io")
    if _system_service():
        return _start_service()
    return _start_own()


def _start_service() -> Docker:
    theirs = Docker(ours=False)
    if not theirs.works()[0]:
        ok, text = answer(["systemctl", "start", "docker.service"], config.DAEMON_STARTS)
        if not ok:
            raise Fail(f"docker: systemctl start docker.service: {text}; see journalctl -u docker")
        _state().mkdir(exist_ok=True)
        (_state() / "service-started").touch()
    _await(theirs, lambda: "see journalctl -u docker")
    say("docker: the system's service was stopped; started it")
    return theirs


def _start_own() -> Docker:
    began = time.monotonic()
    state, home = _state(), config.cache() / "docker"
    state.mkdir(exist_ok=True)
    home.mkdir(parents=True, exist_ok=True)
    command = [
        "dockerd", "--host", f"unix://{state}/docker.sock", "--data-root", f"{home}/data",
        "--exec-root", f"{state}/exec", "--pidfile", f"{state}/pid",
        "--storage-driver", "overlay2",
        # Nothing of the host's network is touched, so it may stand beside another daemon.
        "--bridge", "none", "--iptables=false",
    ]  # fmt: skip
    status = Path("/proc/self/status").read_text()
    bounds = int(status.split("CapBnd:")[1].split()[0], 16)
    if not bounds >> CAP_SYS_RESOURCE & 1:
        wrapper = home / "runc-within-bounds"
        shutil.copy(config.HERE / "runc-within-bounds", wrapper)
        command += ["--add-runtime", f"within-bounds={wrapper}"]
        command += ["--default-runtime", "within-bounds"]
    log = home / "dockerd.log"
    with log.open("w") as out:
        daemon = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )

    def last_words() -> str:
        errors = [line for line in log.read_text().splitlines() if "failed" in line.lower()]
        words = errors[-1] if errors else "it said nothing of a failure"
        return f"{words} (log: {log})"

    own = _own()
    _await(own, last_words, daemon)
    say(
        f"docker: none answered; started our own in {time.monotonic() - began:.1f} s"
        f" (data: {home}/data)"
    )
    return own


def _await(
    docker: Docker, why: Callable[[], str], daemon: subprocess.Popen[bytes] | None = None
) -> None:
    end = time.monotonic() + config.DAEMON_STARTS
    while not docker.works()[0]:
        if daemon is not None and daemon.poll() is not None:
            raise Fail(f"docker: expected our daemon to run, it ended at once: {why()}")
        if time.monotonic() > end:
            raise Fail(f"docker: no answer within {config.DAEMON_STARTS} s of its start: {why()}")
        time.sleep(0.2)


def stop_what_we_started() -> str:
    """Ends our daemon by its recorded pid, or stops the service where we started it."""
    state = _state()
    if (state / "service-started").exists():
        must(["systemctl", "stop", "docker.socket", "docker.service"], config.DAEMON_ENDS)
        shutil.rmtree(state)
        return "docker: stopped the system's service, which we had started"
    pid = _own_pid()
    if pid is None:
        return "docker: no daemon of ours runs"
    # Its bridge would outlive the daemon; refused, rightly, while anything is on it.
    _own().answer("network", "rm", "kind")
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + config.DAEMON_ENDS
    while _command(pid):
        if time.monotonic() > end:
            raise Fail(
                f"docker: our daemon (pid {pid}) did not end within {config.DAEMON_ENDS} s;"
                f" see {config.cache()}/docker/dockerd.log"
            )
        time.sleep(0.1)
    # A network namespace of Docker's stays mounted there, by design of Docker's.
    for line in Path("/proc/self/mounts").read_text().splitlines():
        if line.split()[1].startswith(f"{state}/"):
            answer(["umount", "--lazy", line.split()[1]], 10)
    shutil.rmtree(state)
    return f"docker: ended our own daemon (pid {pid}); its images stay in {config.cache()}/docker"


def _own_pid() -> int | None:
    try:
        pid = int((_state() / "pid").read_text())
    except (OSError, ValueError):
        return None
    # A pid file may be older than the process that has the number now.
    return pid if f"unix://{_state()}/docker.sock" in _command(pid) else None


def _command(pid: int) -> list[str]:
    """Empty for a process that has ended, also for one that no parent has reaped."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []
