"""The runbook of docs/operate/operations.md: its commands, run on real nodes, and compared with what the page shows.

A block is fenced as ``console``. Its rules:

- ``$ `` is typed on any machine, ``node3$ `` on that of node 3. What follows, up to the next prompt, is what it prints,
  stderr included. The status of a command is 0, unless ``  # exits with 1`` follows it.
- **Exchanged** are addresses (``10.0.0.3:19092`` is where node 3 listens here), ``/var/lib/quorumlog`` (the data
  directory of the node at whose machine it is typed), and ``journalctl -u quorumlog -o cat`` (the log of its node).
- **Done by hand**, because a test's machine has no such service, package or clock: ``systemctl`` starts, stops and
  restarts the process of the node, and sets its environment; ``pip install`` and ``chronyc makestep`` are whatever the
  test says that they are.
- **Compared** is the text with sizes, times, ids and numbers masked, but for the numbers behind ``node`` and ``nodes``,
  and without what a command waits for where nothing gets on for ten seconds: that depends on the machine, too.
- **What only looks** (describe, list, health, ...) is typed again until it shows what the page shows, for a minute: a
  node that was killed counts as down after seconds. What changes something is typed once.
- Of ``until ...; do sleep 1; done`` only the last line counts: how often it asks depends on the machine.

With ``RECORD_RUNBOOK=1`` in the environment nothing is compared, and the page gets what was printed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from machines import Machines

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operate" / "operations.md"
RECORDS = bool(os.environ.get("RECORD_RUNBOOK"))
PATIENCE_S = 60
#: Longer than any command of the page takes on a machine that also does other things.
COMMAND_TIMEOUT_S = 90
#: Wait before a read-only command is recorded, so that its output no longer changes.
SETTLED_S = 4
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
_PROMPT = re.compile(r"^(?:node(\d+))?\$ (.*?)(?:  # exits with (\d+))?$")
_LOOKS = re.compile(r"(?:quorumlog (?:cluster health|\w+ (?:list|describe|offsets)|log verify)|journalctl|ls|date)\b")
_MASKS = (
    (re.compile(r"^\d+ partitions? left: .*$", re.M), ""),
    (re.compile(r"\b[0-9a-f]{16,}\b"), "ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)"), "TIME"),
    (re.compile(r"\b[\d,.]+ (?:B|kB|MB|GB|MiB)(?:/s)?(?!\w)"), "SIZE"),
    # What the leaders have not reported to the controller yet is not shown.
    (re.compile(r" \(SIZE\)"), ""),
    (re.compile(r"\b(nodes?(?: down:| \")?:? )(\d+(?:, ?\d+)*)"), lambda found: found[1] + _lettered(found[2])),
    (re.compile(r"(?<![A-Za-z_])\d+(?:,\d{3})*(?:\.\d+)?"), "N"),
    (re.compile(r"[─]+"), "-"),
    (re.compile(r"[ \t]+"), " "),
)


def _lettered(numbers: str) -> str:
    """Node ids that stay as they are: spelled so that the mask of numbers leaves them alone."""
    return re.sub(r"\d", lambda digit: "_" + "abcdefghij"[int(digit[0])], numbers)


def masked(text: str) -> list[str]:
    """Lines as they are compared."""
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    return [line.strip() for line in text.splitlines() if line.strip()]


@dataclass(slots=True)
class Command:
    """A command of the page.

    Arguments:
        node: at whose machine it is typed; None: anywhere.
        text: what is typed.
        status: with which it ends.
        shown: what it prints.
    """

    node: int | None
    text: str
    status: int
    shown: str

    @property
    def only_looks(self) -> bool:
        """True if it changes nothing, so that it may be typed again."""
        return _LOOKS.match(self.text) is not None

    def written(self) -> str:
        """As it is in the page."""
        prompt = "$" if self.node is None else f"node{self.node}$"
        return f"{prompt} {self.text}{f'  # exits with {self.status}' if self.status else ''}\n{self.shown}"


def headings(page: str) -> list[str]:
    """The headings under which there are blocks."""
    parts = re.split(r"^(?=#+ )", page, flags=re.M)
    return [part.partition("\n")[0].lstrip("# ") for part in parts if _BLOCK.search(part)]


def blocks(page: str, heading: str) -> list[list[Command]]:
    """The blocks under one heading."""
    [part] = [
        part for part in re.split(r"^(?=#+ )", page, flags=re.M) if part.partition("\n")[0].lstrip("# ") == heading
    ]
    return [_commands(found[1]) for found in _BLOCK.finditer(part)]


def _commands(text: str) -> list[Command]:
    commands: list[Command] = []
    for line in text.splitlines(keepends=True):
        if prompt := _PROMPT.match(line.rstrip("\n")):
            commands.append(Command(int(prompt[1]) if prompt[1] else None, prompt[2], int(prompt[3] or 0), ""))
        else:
            commands[-1].shown += line
    return commands


class Runbook:
    """The commands of one section, typed block by block in the order of the page.

    Arguments:
        heading: of the section.
        by_hand: what the beginnings of other commands stand for here: called with the node at whose machine they are
            typed.
    """

    def __init__(
        self, heading: str, machines: Machines, by_hand: Mapping[str, Callable[[int], object]] | None = None
    ) -> None:
        self._machines = machines
        self._by_hand = dict(by_hand or {})
        self._blocks = blocks(PAGE.read_text(), heading)
        self._heading = heading
        self._next = 0

    def types_next(self) -> None:
        """Types the next block."""
        for command in self._blocks[self._next]:
            self._type(command)
        self._next += 1

    def types_again(self, block: int, instead: Mapping[int, int]) -> None:
        """Types a block again, at the machines of other nodes.

        Arguments:
            block: its number, from 0.
            instead: those nodes, by the ones that the page names.
        """
        for command in self._blocks[block]:
            node = None if command.node is None else instead.get(command.node, command.node)
            self._type(Command(node, command.text, command.status, command.shown))

    def ends(self) -> None:
        """All blocks have been typed."""
        assert self._next == len(self._blocks), f"{self._heading}: typed {self._next} of {len(self._blocks)} blocks"
        if RECORDS:
            self._record()

    def _type(self, command: Command) -> None:
        if self._is_done_by_hand(command):
            return
        deadline = time.monotonic() + PATIENCE_S
        if RECORDS and command.only_looks:
            time.sleep(SETTLED_S)
        while True:
            done = self._run(command)
            printed = self._machines.as_in_page(done.stdout)
            if RECORDS:
                assert done.returncode == command.status, printed
                command.shown = printed
                return
            wanted, found = masked(command.shown), masked(printed)
            if command.text.startswith("until "):
                wanted, found = wanted[-1:], found[-1:]
            if (done.returncode, found) == (command.status, wanted):
                return
            if not command.only_looks or time.monotonic() > deadline:
                raise AssertionError(
                    f"{self._heading}: {command.text}\nended with {done.returncode}, printed\n{printed}\nin the page,"
                    f" with {command.status}:\n{command.shown}\nmasked: {found}\n{wanted}"
                )
            time.sleep(0.2)

    def _run(self, command: Command) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", self._machines.as_typed_here(command.text, command.node)],
            env=os.environ
            | {
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "QUORUMLOG_BOOTSTRAP_SERVERS": self._machines.bootstrap_servers,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )

    def _is_done_by_hand(self, command: Command) -> bool:
        node, text = command.node, command.text
        for beginning, do in self._by_hand.items():
            if text.startswith(beginning):
                assert node is not None, f"{text}: at whose machine?"
                do(node)
                return True
        if not text.startswith("systemctl "):
            return False
        assert node is not None, f"{text}: at whose machine?"
        match text.split()[1:]:
            case ["start", "quorumlog"]:
                self._machines.start(node)
                self._machines.is_let_in(node)
            case ["stop", "quorumlog"]:
                self._machines.stop(node)
            case ["restart", "quorumlog"]:
                self._machines.stop(node)
                self._machines.start(node)
            case ["set-environment", setting]:
                name, _, value = setting.partition("=")
                self._machines.environment[node][name] = value
            case ["unset-environment", name]:
                del self._machines.environment[node][name]
            case other:
                raise AssertionError(f"what does systemctl {' '.join(other)} do?")
        return True

    def _record(self) -> None:
        """Puts what was printed into the page."""
        parts = re.split(r"^(?=#+ )", PAGE.read_text(), flags=re.M)
        typed = iter(self._blocks)
        for place, part in enumerate(parts):
            if part.partition("\n")[0].lstrip("# ") == self._heading:
                parts[place] = _BLOCK.sub(
                    lambda _: "```console\n" + "".join(each.written() for each in next(typed)) + "```", part
                )
        PAGE.write_text("".join(parts))
