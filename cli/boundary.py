"""Error boundary of the command line: every failure becomes one line on stderr and an exit status."""

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

#: Set to any value to print a Python traceback below the error line.
TRACEBACK_VARIABLE = "QUORUMLOG_TRACEBACK"

#: Error families, by module and name, that mean a wrong command line or configuration: no request was sent.
WRONG_USAGE_ERRORS = (
    ("quorumlog.sdk.errors", "IllegalArgumentError"),
    ("quorumlog.server.config.settings", "SettingsError"),
    ("quorumlog.local.node_process", "ClusterSettingsError"),
)
#: Error families whose messages are written for users.
ERRORS_FOR_USERS = (
    ("quorumlog.sdk.errors", "QuorumlogError"),
    ("quorumlog.storage.interface", "StorageEngineError"),
    ("quorumlog.server.config.settings", "SettingsError"),
    ("quorumlog.server.certificates.x509", "CertificateError"),
    ("quorumlog.local.node_process", "ClusterError"),
    ("quorumlog.chaos.processes.nemesis", "ChaosError"),
)

#: Options that belong after a command but are often typed before it, with their values.
_AFTER_THE_COMMAND = {
    "-b": "HOST:PORT",
    "--bootstrap-servers": "HOST:PORT",
    "-o": "json",
    "--output": "json",
    "--data-dir": "DIR",
}
#: File descriptors that gRPC needs; with fewer it aborts the process with its own message.
_FEWEST_FILES = 64

#: Maximum length of the error line; a longer one is cut in the middle, as its end says what to do.
_LONGEST_LINE = 500
_SHOWN_OF_THE_END = 150
#: Maximum length of a quoted wrong value.
_SHOWN_OF_A_VALUE = 60
#: Advice for errors of the operating system.
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
    """Reports that a command cannot do what was requested: one line that says what is wrong and what to do.

    Arguments:
        message: the line, without the program's name.
        exit_code: 1 where the request failed, 2 where the command line itself is wrong.
    """

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run(command: Callable[[], object]) -> int:
    """Runs a command, prints its error, if any, to stderr and returns its exit status."""
    if not _have_streams():
        say("standard output is closed: redirect it, for example to /dev/null")
        return FAILED
    if (most := _most_files()) < _FEWEST_FILES:
        say(f"the limit of {most} open files is too low for a client: run ulimit -n 1024")
        return FAILED
    _escape_unencodable_output()
    try:
        with _keyboard_interrupts():
            outcome = command()
            sys.stdout.flush()
    except TyperException as error:
        if error.format_message():  # Without a message the help has been printed instead.
            say(_usage_line(error))
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe because it needs no more output.
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
    """Makes Ctrl-C raise ``KeyboardInterrupt`` while the command runs; before and after, it exits the process."""
    early = signal.getsignal(signal.SIGINT) is end_at_once
    if early:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if early:
            signal.signal(signal.SIGINT, end_at_once)


def _escape_unencodable_output() -> None:
    """Escapes characters that the output's encoding lacks: names of topics, groups and users may contain any character,
    and one of them must not keep the others from being printed.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _most_files() -> int:
    """Returns the limit of open files, after raising it to the required number if possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FEWEST_FILES:
        soft = _FEWEST_FILES if hard == resource.RLIM_INFINITY else min(hard, _FEWEST_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def _point_stdout_away() -> None:
    """Discards output that cannot be printed: otherwise the interpreter would try again at exit, print an error of its
    own and exit with its own status.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _have_streams() -> bool:
    """True if there is an output to print to. Python represents a stream that the caller has closed as None: a closed
    input is replaced by an empty one, and a closed stderr by /dev/null.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 - until the end of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the end of the process
    return sys.stdout is not None


class _SdkWarnings(logging.Handler):
    """Prints the clients' warnings, for example that no node answers and that they keep trying."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"warning: {record.getMessage()}")


def say_what_clients_warn_of() -> None:
    """Prints the clients' warnings to stderr from now on. Idempotent."""
    clients = logging.getLogger("quorumlog.sdk")
    if not any(isinstance(handler, _SdkWarnings) for handler in clients.handlers):
        clients.addHandler(_SdkWarnings(logging.WARNING))
    clients.propagate = False


def one_line(error: BaseException) -> str:
    """Returns an exception's message in one line; an unexpected exception is reported as an internal error."""
    text = " ".join(str(error).split())
    if isinstance(error, UnicodeEncodeError):
        return f"{printable(repr(error.object))} is not valid UTF-8: names and settings must be; type it again"
    if _is_meant_for_users(error):
        return text or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        problem = os_problem(error)
        return f"{error.filename}: {problem}" if error.filename else problem
    return f"internal error, {type(error).__name__}: {text} (set {TRACEBACK_VARIABLE}=1 to see where, and report it)"


def os_problem(error: OSError) -> str:
    """Returns the operating system's message, and advice if there is any."""
    advice = _ADVICE.get(error.errno or 0)
    return f"{error.strerror}; {advice}" if advice else str(error.strerror)


def say(line: str) -> None:
    """Writes one line to stderr, with control characters escaped and its length limited."""
    shown = printable(line)
    if len(shown) > _LONGEST_LINE:
        shown = f"{shown[: _LONGEST_LINE - _SHOWN_OF_THE_END]} … {shown[-_SHOWN_OF_THE_END:]}"
    print(f"quorumlog: {shown}", file=sys.stderr)


def printable(text: str, encoding: str | None = None) -> str:
    """Returns the text with control characters, which a terminal would obey, and characters that the encoding lacks
    escaped.
    """
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    if encoding is None or text.isascii():
        return text
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _is_wrong_usage(error: BaseException) -> bool:
    """True if the command line or the configuration is wrong, so that no request was sent."""
    return isinstance(error, UnicodeEncodeError) or _is_one_of(error, WRONG_USAGE_ERRORS)


def _is_meant_for_users(error: BaseException) -> bool:
    """True for the families whose messages are written for users. Only loaded modules are searched: an error can only
    belong to a family whose module is loaded, and a client command never loads storage.
    """
    return isinstance(error, (ValueError, TyperException)) or _is_one_of(error, ERRORS_FOR_USERS)


def _is_one_of(error: BaseException, families: Iterable[tuple[str, str]]) -> bool:
    for module, name in families:
        family = getattr(sys.modules.get(module), name, None)
        if family is not None and isinstance(error, family):
            return True
    return False


def _invalid_value(error: typer.BadParameter) -> str | None:
    """Returns what is wrong with a value, in place of pydantic's message, which is for developers."""
    cause = error.__cause__
    if cause is None or not hasattr(cause, "errors"):
        return None
    found = cause.errors()[0]
    value = f"'{str(found['input'])[:_SHOWN_OF_A_VALUE]}'"
    for kind, noun in (
        ("int_", "an integer: use digits only"),
        ("float_", "a number: use digits and an optional decimal point"),
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
