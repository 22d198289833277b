"""Member processes of groups: started, signalled, and followed by the files that they write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from quorumlog.chaos.processes.member_history import MemberLife
from quorumlog.chaos.processes.member_log import Event, MemberEvent, MemberLogTail
from quorumlog.chaos.processes.member_plan import MemberPlan
from quorumlog.chaos.processes.nemesis import ChaosError

LEAVE_TIMEOUT_S = 60.0
_KILLED_TIMEOUT_S = 30.0


@dataclass(slots=True)
class MemberProcess:
    """One member process."""

    name: str
    plan: MemberPlan
    process: subprocess.Popen[bytes]
    tail: MemberLogTail
    stops: list[tuple[int, int]] = field(default_factory=list)
    stopped_ns: int | None = None
    killed_ns: int | None = None

    @property
    def events(self) -> list[MemberEvent]:
        """The events that it has logged so far."""
        return self.tail.events()

    @property
    def has_started(self) -> bool:
        """True if it is a member, or about to become one: from then on it handles signals."""
        return bool(self.events)

    def life(self) -> MemberLife:
        """Returns its whole life, for the checkers."""
        is_kafkas = bool(self.plan.kafka_options)
        return MemberLife(self.name, self.plan.group, self.events, self.stops, self.killed_ns, hears_late=is_kafkas)


class MemberProcesses:
    """All members of a run, of any group; all are killed at the end.

    Arguments:
        directory: directory of their files.
    """

    def __init__(self, directory: Path) -> None:
        self.all: list[MemberProcess] = []
        self._directory = directory

    def __enter__(self) -> MemberProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_all()

    def path(self, name: str) -> Path:
        """Returns the path of a member's file."""
        return self._directory / f"{name}.jsonl"

    def start(self, plan: MemberPlan) -> MemberProcess:
        """Starts a member. Its name is that of its file."""
        path = Path(plan.log)
        with path.with_suffix(".err").open("wb") as complaints:
            process = subprocess.Popen(
                [sys.executable, "-m", "quorumlog.chaos.processes.group_member", plan.as_argument()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                env={**os.environ, "GRPC_VERBOSITY": "NONE"},
            )
        member = MemberProcess(path.stem, plan, process, MemberLogTail(path))
        self.all.append(member)
        return member

    def let_join(self, member: MemberProcess) -> None:
        """Sends SIGUSR1, for which a member with ``awaits_signal`` waits."""
        member.process.send_signal(signal.SIGUSR1)

    def kill(self, member: MemberProcess) -> None:
        """Sends SIGKILL, and waits until the process has exited."""
        member.process.kill()
        member.process.wait(_KILLED_TIMEOUT_S)
        member.killed_ns = time.monotonic_ns()

    def kill_all(self) -> None:
        """Kills every member that is still running."""
        for member in self.all:
            if member.process.poll() is None:
                self.kill(member)

    def stop(self, member: MemberProcess) -> None:
        """Sends SIGSTOP."""
        member.stopped_ns = time.monotonic_ns()
        member.process.send_signal(signal.SIGSTOP)

    def go_on(self, member: MemberProcess) -> None:
        """Sends SIGCONT."""
        assert member.stopped_ns is not None
        member.process.send_signal(signal.SIGCONT)
        member.stops.append((member.stopped_ns, time.monotonic_ns()))
        member.stopped_ns = None

    def ask_to_leave(self, member: MemberProcess) -> None:
        """Sends SIGTERM: the member commits and leaves in its own time."""
        member.process.send_signal(signal.SIGTERM)

    def await_left(self, member: MemberProcess) -> None:
        """Waits until a member that was asked to leave has exited.

        Raises:
            ChaosError: it does not exit in time, or fails.
        """
        try:
            status = member.process.wait(LEAVE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise ChaosError(f"member {member.name} does not leave within {LEAVE_TIMEOUT_S:g} s") from None
        if status:
            raise ChaosError(f"member {member.name} exited with status {status}: {self._last_words(member)}")

    def require_alive(self) -> None:
        """Checks that no member has exited unexpectedly.

        Raises:
            ChaosError: one has exited; the message contains its last output.
        """
        for member in self.all:
            if member.process.poll() and member.killed_ns is None:
                raise ChaosError(f"member {member.name} exited: {self._last_words(member)}")

    def _last_words(self, member: MemberProcess) -> str:
        failed = [event.message for event in member.events if event.event is Event.FAILED]
        said = Path(member.plan.log).with_suffix(".err").read_text(errors="replace").strip().splitlines()
        return (failed or said or ["no output"])[-1]
