"""What makes sense of users and revocations, whatever there is of them already."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from quorumlog.server.client_origin import ANONYMOUS, EVERYBODY, USER_PREFIX
from quorumlog.server.wire_errors import error
from quorumlog.v1.credentials_pb2 import (
    AlterRevocationsRequest,
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    Revocation,
    ScramCredential,
)
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.v1.request_limits import MAX_CREDENTIALS_CHANGED
from quorumlog.v1.scram import KEY_BYTES, MAX_ITERATIONS, MAX_SALT_BYTES, MIN_ITERATIONS, MIN_SALT_BYTES

#: Characters of a user's name.
MAX_NAME_LENGTH = 249
#: An authority gives a serial number of 20 bytes at most (RFC 5280, section 4.1.2.2).
_SERIAL = re.compile(r"0|[1-9a-f][0-9a-f]{0,39}")


def check_users(request: AlterUserScramCredentialsRequest) -> Error | None:
    """Why users cannot be meant like this; None if they can."""
    names = [*(each.user for each in request.upsertions), *request.deletions]
    problem = (
        _problem_with_count(len(names), "users")
        or _problem_with_twice(names)
        or next((found for each in request.upsertions if (found := _problem_with(each))), None)
        or next((found for each in request.deletions if (found := problem_with_name(each))), None)
    )
    return None if problem is None else error(ErrorCode.INVALID_REQUEST, problem)


def check_question(request: DescribeUserScramCredentialsRequest) -> Error | None:
    """Why nobody can be asked for these users; None if they can."""
    if len(request.users) <= MAX_CREDENTIALS_CHANGED:
        return None
    problem = f"{len(request.users)} users are asked for: give at most {MAX_CREDENTIALS_CHANGED}, or none for all"
    return error(ErrorCode.INVALID_REQUEST, problem)


def check_revocations(request: AlterRevocationsRequest, super_users: Iterable[str]) -> Error | None:
    """Why revocations cannot be meant like this; None if they can.

    Arguments:
        super_users: principals that nobody can lock out.
    """
    every = [*request.revoke, *request.restore]
    problem = (
        _problem_with_count(len(every), "certificates and principals")
        or next((found for each in every if (found := _problem_with_subject(each))), None)
        or _problem_with_twice([each.serial or each.principal for each in every])
    )
    if problem is not None:
        return error(ErrorCode.INVALID_REQUEST, problem)
    locked = {each.principal for each in request.revoke} & set(super_users)
    if locked:
        said = f"{min(locked)} is a super user, whom nobody can lock out: revoke the serial number of its certificate"
        return error(ErrorCode.POLICY_VIOLATION, said)
    return None


def problem_with_name(name: str) -> str | None:
    """Why no user can have a name; None if one can."""
    if not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        return f"user {name[:40]!r} is not 1 to {MAX_NAME_LENGTH} printable characters"
    if name.startswith(USER_PREFIX):
        return f"user {name[:40]!r}: give the name without {USER_PREFIX}"
    if f"{USER_PREFIX}{name}" in (ANONYMOUS, EVERYBODY):
        return f"nobody can be called {name}: it stands for others in rules"
    return None


def _problem_with(credential: ScramCredential) -> str | None:
    problem = problem_with_name(credential.user)
    if problem is not None:
        return problem
    normal = unicodedata.normalize("NFKC", credential.user)
    if normal != credential.user:
        # Some clients would send the one, others the other, and rules are about one of them.
        return f"user {credential.user[:40]!r} can be written in two ways (Unicode): use {normal[:40]!r}"
    if not MIN_SALT_BYTES <= len(credential.salt) <= MAX_SALT_BYTES:
        return f"the salt of {credential.user} is not {MIN_SALT_BYTES} to {MAX_SALT_BYTES} bytes"
    if len(credential.stored_key) != KEY_BYTES or len(credential.server_key) != KEY_BYTES:
        return f"the keys of {credential.user} are not {KEY_BYTES} bytes each: only SCRAM-SHA-256 is known"
    if not MIN_ITERATIONS <= credential.iterations <= MAX_ITERATIONS:
        return f"{credential.iterations} iterations for {credential.user}: give {MIN_ITERATIONS} to {MAX_ITERATIONS}"
    return None


def _problem_with_subject(revocation: Revocation) -> str | None:
    match revocation.WhichOneof("subject"):
        case "serial":
            if not _SERIAL.fullmatch(revocation.serial):
                return (
                    f"serial number {revocation.serial[:50]!r} is not 1 to 40 hexadecimal digits in small letters"
                    " without leading zeros (quorumlog certs show)"
                )
        case "principal":
            name = revocation.principal.removeprefix(USER_PREFIX)
            if name == revocation.principal:
                return f"principal {name[:40]!r} is not {USER_PREFIX} and a name"
            return problem_with_name(name)
        case _:
            return "a revocation is of a serial number or a principal: say which"
    return None


def _problem_with_count(count: int, what: str) -> str | None:
    if 1 <= count <= MAX_CREDENTIALS_CHANGED:
        return None
    return f"{count} {what} are to be changed: give 1 to {MAX_CREDENTIALS_CHANGED} in one request"


def _problem_with_twice(names: Sequence[str]) -> str | None:
    seen = set[str]()
    for name in names:
        if name in seen:
            return f"{name[:40]!r} is named twice"
        seen.add(name)
    return None
