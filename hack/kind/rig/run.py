"""Commands with a limit, progress on the long ones, and failures that say what to do next."""

import fcntl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

Env = Mapping[str, str] | None
STARTED = time.monotonic()
PROGRESS_EVERY = 10


class Fail(Exception):
    """One line for the user: what was expected, what was found, what to do next."""


def say(text: str) -> None:
    print(text, flush=True)


def answer(command: Sequence[str], limit: float, env: Env = None) -> tuple[bool, str]:
    """Whether a quick command succeeded, and its output (its last words where it failed)."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=limit,
            env=env,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return False, f"{command[0]} is not installed"
    except subprocess.TimeoutExpired:
        return False, f"no answer within {limit:g} s from: {' '.join(command[:4])}"
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()
        return False, words[-1] if words else f"exit status {done.returncode}"
    return True, done.stdout


def must(command: Sequence[str], limit: float, env: Env = None) -> str:
    ok, text = answer(command, limit, env)
    if not ok:
        raise Fail(f"expected success from `{' '.join(command[:6])}`, found: {text}")
    return text


class Steps:
    """Long work as numbered steps, each with its seconds; what they print goes to a log file."""

    def __init__(self, log: Path, label: str = "") -> None:
        self.log = log
        self.planned: list[tuple[str, Callable[[], None]]] = []
        self.label = label
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")

    def add(self, label: str, work: Callable[[], None]) -> None:
        self.planned.append((label, work))

    def run(self) -> None:
        for number, (label, work) in enumerate(self.planned, 1):
            self.label = f"  [{number}/{len(self.planned)}] {label}"
            say(self.label)
            start = time.monotonic()
            work()
            seconds = time.monotonic() - start
            if seconds >= PROGRESS_EVERY:
                say(f"{self.label}: done, {seconds:.0f} s")

    def command(
        self,
        command: Sequence[str],
        limit: float,
        env: Env = None,
        cwd: Path | None = None,
        **pipes: Any,
    ) -> None:
        """Runs it under the limit; a line every ten seconds, the log's end where it fails."""
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            before = self.log.stat().st_size
            pipes = {"stdin": subprocess.DEVNULL, "stdout": log, **pipes}
            process = subprocess.Popen(command, stderr=log, env=env, cwd=cwd, **pipes)
            try:
                code = self._watch(process, limit)
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait(10)
        if code:
            tail = self.log.read_bytes()[before:].decode(errors="replace").splitlines()[-12:]
            why = "\n".join(f"    {line}" for line in tail)
            raise Fail(
                f"{self.label.strip()}: `{' '.join(command[:5])} ...` ended with {code}:\n{why}\n"
                f"  All of its output: {self.log}"
            )

    def pipe(
        self,
        giver: Sequence[str],
        taker: Sequence[str],
        limit: float,
        env: Env = None,
        into: IO[bytes] | None = None,
    ) -> None:
        """`giver | taker`, into a file or the log; fails where either does."""
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(giver)} |\n")
            log.flush()
            first = subprocess.Popen(
                giver, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=env
            )
        pipes: dict[str, Any] = {"stdin": first.stdout}
        if into:
            pipes["stdout"] = into
        try:
            self.command(taker, limit, env, **pipes)
        finally:
            assert first.stdout
            first.stdout.close()
            try:
                code = first.wait(10)
            except subprocess.TimeoutExpired:
                first.kill()
                code = first.wait()
        if code:
            raise Fail(f"{self.label.strip()}: `{giver[0]}` ended with {code}; see {self.log}")

    def _watch(self, process: subprocess.Popen[bytes], limit: float) -> int:
        start = time.monotonic()
        while True:
            try:
                return process.wait(PROGRESS_EVERY)
            except subprocess.TimeoutExpired:
                seconds = time.monotonic() - start
            if seconds > limit:
                process.terminate()
                raise Fail(
                    f"{self.label.strip()}: not done within {limit:g} s; see {self.log}, and run"
                    " the same again: what was finished is kept"
                )
            lines = self.log.read_bytes().count(b"\n")
            say(f"{self.label}: {seconds:.0f} s of at most {limit:g}, {lines} lines logged")


@contextmanager
def only_one(path: Path, limit: float) -> Iterator[None]:
    """Keeps two builders of the same thing from doing it twice."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        waited = 0
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if waited >= limit:
                    raise Fail(
                        f"another run held {path} for {limit:g} s; see what runs there"
                    ) from None
                if waited % PROGRESS_EVERY == 0:
                    say(f"  waiting for another run of the same: {waited} s of at most {limit:g}")
                time.sleep(1)
                waited += 1
        yield


def main(work: Callable[[Sequence[str]], int]) -> None:
    try:
        sys.exit(work(sys.argv[1:]))
    except Fail as failure:
        print(f"error: {failure}", file=sys.stderr, flush=True)
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from what was finished", file=sys.stderr)
        sys.exit(130)
