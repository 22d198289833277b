"""The edge between commands and the shell: every failure becomes one line on stderr and an exit status."""

from __future__ import annotations

import errno
import io
import logging
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import typer
from typer.exceptions import TyperException

from quorumlog.cli.entry import INTERRUPTED, end_at_once

#: Exit statuses: a failed command and a wrong command line.
FAILED = 1
WRONG_USAGE = 2

#: Set to any value to get a Python traceback under the one line.
TRACEBACK_VARIABLE = "QUORUMLOG_TRACEBACK"

#: Families of errors, by module and name, that are a wrong command line or configuration: nothing was asked for yet.
WRONG_USAGE_ERRORS = (
    ("quorumlog.sdk.errors", "IllegalArgumentError"),
    ("quorumlog.server.config.settings", "SettingsError"),
    ("quorumlog.local.node_process", "ClusterSettingsError"),
)
#: Families whose messages are written for users.
ERRORS_FOR_USERS = (
    ("quorumlog.sdk.errors", "QuorumlogError"),
    ("quorumlog.storage.interface", "StorageEngineError"),
    ("quorumlog.server.config.settings", "SettingsError"),
    ("quorumlog.server.certificates.x509", "CertificateError"),
    ("quorumlog.local.node_process", "ClusterError"),
    ("quorumlog.chaos.processes.nemesis", "ChaosError"),
)

#: Options of commands that people type before them, with what they take.
_AFTER_THE_COMMAND = {
    "-b": "HOST:PORT",
    "--bootstrap-servers": "HOST:PORT",
    "-o": "json",
    "--output": "json",
    "--data-dir": "DIR",
}
#: Files that gRPC needs to be allowed to open; with fewer it ends the process with words of its own.
_FEWEST_FILES = 64

#: Characters of the one line; of a longer one the beginning is shown, and the end, which says what to do.
_LONGEST_LINE = 500
_SHOWN_OF_THE_END = 150
#: Characters of a wrong value.
_SHOWN_OF_A_VALUE = 60
#: What to do about errors of the operating system.
_ADVICE = {
    errno.ENOTDIR: "part of the path is a file",
    errno.EISDIR: "give a file",
    errno.EEXIST: "give another path",
    errno.EACCES: "check its permissions",
    errno.EPERM: "check its permissions",
    errno.EROFS: "give a path that can be written to",
    errno.ENAMETOOLONG: "give a shorter path",
    errno.ENOSPC: "free some space",
}


class CommandError(TyperException):
    """A command cannot do what was asked. The message is one line that says what is wrong and what to do.

    Arguments:
        message: the line, without the program's name.
        exit_code: 1 where the request failed, 2 where the command line itself is wrong.
    """

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run(command: Callable[[], object]) -> int:
    """Runs a command and returns its exit status, having said on stderr what went wrong."""
    if not _have_streams():
        say("standard output is closed, so nothing could be printed: point it somewhere, such as /dev/null")
        return FAILED
    if (most := _most_files()) < _FEWEST_FILES:
        say(f"this process may open {most} files only, which are too few for a client: type ulimit -n 1024")
        return FAILED
    _escape_unencodable_output()
    try:
        with _keyboard_interrupts():
            outcome = command()
            sys.stdout.flush()
    except TyperException as error:
        if error.format_message():  # Without one the help has been printed, which says it all.
            say(_usage_line(error))
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has what it wanted.
        _point_stdout_away()
        return FAILED
    except Exception as error:
        if isinstance(error, OSError):
            _point_stdout_away()
        say(one_line(error))
        if TRACEBACK_VARIABLE in os.environ:
            traceback.print_exception(error)
        return WRONG_USAGE if _is_wrong_usage(error) else FAILED
    return outcome if isinstance(outcome, int) else 0


@contextmanager
def _keyboard_interrupts() -> Iterator[None]:
    """Makes Ctrl-C raise ``KeyboardInterrupt`` while the command runs, where it ends the process before and after."""
    early = signal.getsignal(signal.SIGINT) is end_at_once
    if early:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if early:
            signal.signal(signal.SIGINT, end_at_once)


def _escape_unencodable_output() -> None:
    """Makes the output escape the characters that its encoding lacks: names of topics, groups and users come from
    anywhere, and one of them must not keep all others from being printed."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _most_files() -> int:
    """How many files may be open, after asking for as many as are needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FEWEST_FILES:
        soft = _FEWEST_FILES if hard == resource.RLIM_INFINITY else min(hard, _FEWEST_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def _point_stdout_away() -> None:
    """What is left to print goes nowhere if it cannot be printed: the interpreter would try once more when it ends,
    complain in lines of its own, and end with its own status."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _have_streams() -> bool:
    """Whether there is an output to print to. Python has None for a stream that the caller has closed: an input that is
    closed is an empty one here, and what nobody hears is said into the void."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 - until the end of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the end of the process
    return sys.stdout is not None


class _SdkWarnings(logging.Handler):
    """Says what the clients warn of, such as that no node answers and that they still try."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"warning: {record.getMessage()}")


def say_what_clients_warn_of() -> None:
    """From now on, what the clients warn of while a command runs is said on stderr. May be called again."""
    clients = logging.getLogger("quorumlog.sdk")
    if not any(isinstance(handler, _SdkWarnings) for handler in clients.handlers):
        clients.addHandler(_SdkWarnings(logging.WARNING))
    clients.propagate = False


def one_line(error: BaseException) -> str:
    """What an exception says, in one line; an exception that no part raises on purpose is named as such."""
    text = " ".join(str(error).split())
    if isinstance(error, UnicodeEncodeError):
        return f"{printable(repr(error.object))} is not text in UTF-8, as names and settings must be; type it anew"
    if _is_meant_for_users(error):
        return text or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        problem = os_problem(error)
        return f"{error.filename}: {problem}" if error.filename else problem
    return f"internal error, {type(error).__name__}: {text} (set {TRACEBACK_VARIABLE}=1 to see where, and report it)"


def os_problem(error: OSError) -> str:
    """Returns what the operating system says, and what to do about it."""
    advice = _ADVICE.get(error.errno or 0)
    return f"{error.strerror}; {advice}" if advice else str(error.strerror)


def say(line: str) -> None:
    """Writes one line of complaint to stderr. What it quotes may be anything, and is shown escaped and cut."""
    shown = printable(line)
    if len(shown) > _LONGEST_LINE:
        shown = f"{shown[: _LONGEST_LINE - _SHOWN_OF_THE_END]} … {shown[-_SHOWN_OF_THE_END:]}"
    print(f"quorumlog: {shown}", file=sys.stderr)


def printable(text: str, encoding: str | None = None) -> str:
    """Returns the text with escapes for control characters, which a terminal would obey, and for characters that the
    encoding lacks."""
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    if encoding is None or text.isascii():
        return text
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _is_wrong_usage(error: BaseException) -> bool:
    """True for what is wrong with the command line or the configuration itself: nothing needed to be asked for it."""
    return isinstance(error, UnicodeEncodeError) or _is_one_of(error, WRONG_USAGE_ERRORS)


def _is_meant_for_users(error: BaseException) -> bool:
    """True for the families whose messages are written for users. They are looked up among what is loaded: an
    error can only be of a family whose module is, and a client command never loads storage."""
    return isinstance(error, (ValueError, TyperException)) or _is_one_of(error, ERRORS_FOR_USERS)


def _is_one_of(error: BaseException, families: Iterable[tuple[str, str]]) -> bool:
    for module, name in families:
        family = getattr(sys.modules.get(module), name, None)
        if family is not None and isinstance(error, family):
            return True
    return False


def _invalid_value(error: typer.BadParameter) -> str | None:
    """Returns what is wrong with a value, in place of the words of pydantic, which are for developers."""
    cause = error.__cause__
    if cause is None or not hasattr(cause, "errors"):
        return None
    found = cause.errors()[0]
    value = f"'{str(found['input'])[:_SHOWN_OF_A_VALUE]}'"
    for kind, noun in (
        ("int_", "an integer: write digits alone"),
        ("float_", "a number: write digits, and a point if need be"),
    ):
        if found["type"].startswith(kind):
            return f"{value} is not {noun}"
    limits = found.get("ctx", {})
    if "ge" in limits:
        return f"{value} is too small; give {limits['ge']} or more"
    if "le" in limits:
        return f"{value} is too large; give {limits['le']} or less"
    return None


def _usage_line(error: TyperException) -> str:
    if isinstance(error, typer.BadParameter) and (problem := _invalid_value(error)):
        error.message = problem
    text = " ".join(error.format_message().split()).rstrip(".").replace(": Value error, ", ": ")
    context = getattr(error, "ctx", None)
    if context is None:
        return text
    if getattr(error, "option_name", None) in _AFTER_THE_COMMAND and hasattr(context.command, "commands"):
        option = error.option_name  # type: ignore[attr-defined]
        example = f"{context.command_path} COMMAND … {option} {_AFTER_THE_COMMAND[option]}"
        return f"{option} comes after the command, as in '{example}'"
    return f"{text[:1].lower()}{text[1:]}; try '{context.command_path} --help'"
