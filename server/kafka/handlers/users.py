"""DescribeUserScramCredentials and AlterUserScramCredentials: users that authenticate with a password."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import IntEnum

from quorumlog.server.kafka.codec.administration.user_requests import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from quorumlog.server.kafka.codec.administration.user_responses import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps, ask, ask_all
from quorumlog.server.kafka.handlers.single_changes import each_by_itself
from quorumlog.v1 import credentials_pb2
from quorumlog.v1.errors_pb2 import Error
from quorumlog.wire.request_limits import MAX_CREDENTIALS_CHANGED
from quorumlog.wire.scram import KEY_BYTES, keys_of_salted

_TIMEOUT_MS = 30_000


class _Mechanism(IntEnum):
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


# -- describing ------------------------------------------------------------------------------------------------


def describe_users(
    call: KafkaCall[DescribeUserScramCredentialsRequest],
) -> Steps[DescribeUserScramCredentialsResponse]:
    """Answers DescribeUserScramCredentials."""
    times = Counter(each.name for each in call.message.users or ())
    names = list(times)
    found: dict[str, credentials_pb2.UserScramCredential] = {}
    for begin in range(0, max(1, len(names)), MAX_CREDENTIALS_CHANGED):
        question = credentials_pb2.DescribeUserScramCredentialsRequest(
            users=names[begin : begin + MAX_CREDENTIALS_CHANGED], timeout_ms=_TIMEOUT_MS
        )
        reply = yield from ask(question, credentials_pb2.DescribeUserScramCredentialsResponse)
        if reply.HasField("error"):
            code = kafka_code(reply.error)
            return DescribeUserScramCredentialsResponse(error_code=code, error_message=reply.error.message)
        found.update((each.user, each) for each in reply.users)
    return DescribeUserScramCredentialsResponse(
        error_message=None, results=[_described(name, found.get(name), times[name]) for name in names or found]
    )


def _described(
    name: str, user: credentials_pb2.UserScramCredential | None, times: int
) -> DescribeUserScramCredentialsResult:
    if times > 1:
        return DescribeUserScramCredentialsResult(
            name, KafkaError.DUPLICATE_RESOURCE, "the request names the user twice"
        )
    if user is None:
        return DescribeUserScramCredentialsResult(name, KafkaError.RESOURCE_NOT_FOUND, "the user does not exist")
    info = CredentialInfo(_Mechanism.SCRAM_SHA_256, user.iterations)
    return DescribeUserScramCredentialsResult(name, KafkaError.NONE, None, [info])


# -- altering --------------------------------------------------------------------------------------------------


def alter_users(call: KafkaCall[AlterUserScramCredentialsRequest]) -> Steps[AlterUserScramCredentialsResponse]:
    """Answers AlterUserScramCredentials: each user succeeds or fails independently."""
    request = call.message
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    times = Counter(each.name for each in changes)
    results = {name: AlterUserScramCredentialsResult(name, KafkaError.NONE, None) for name in times}
    if len(times) > MAX_CREDENTIALS_CHANGED:
        refused = f"{len(times)} users exceed the limit: send at most {MAX_CREDENTIALS_CHANGED} in one request"
        for result in results.values():
            result.error_code, result.error_message = KafkaError.INVALID_REQUEST, refused
        return AlterUserScramCredentialsResponse(results=list(results.values()))
    deletions, upsertions = [], []
    for each in changes:
        problem = (
            _problem_with(each)
            if times[each.name] == 1
            else (KafkaError.DUPLICATE_RESOURCE, "the request names the user twice")
        )
        if problem is not None:
            results[each.name].error_code, results[each.name].error_message = problem
        elif isinstance(each, ScramCredentialUpsertion):
            upsertions.append(_credential(each))
        else:
            deletions.append(each.name)
    yield from _delete(deletions, results)
    outcomes = yield from each_by_itself(upsertions, _upsert)
    for credential, refusal in zip(upsertions, outcomes, strict=True):
        if refusal is not None:
            code, result = kafka_code(refusal), results[credential.user]
            # Invalid can be its name, its salt or its number of iterations.
            result.error_code = KafkaError.UNACCEPTABLE_CREDENTIAL if code is KafkaError.INVALID_REQUEST else code
            result.error_message = refusal.message
    return AlterUserScramCredentialsResponse(results=list(results.values()))


def _problem_with(change: ScramCredentialDeletion | ScramCredentialUpsertion) -> tuple[KafkaError, str] | None:
    if change.mechanism != _Mechanism.SCRAM_SHA_256:
        if isinstance(change, ScramCredentialDeletion) and change.mechanism == _Mechanism.SCRAM_SHA_512:
            return KafkaError.RESOURCE_NOT_FOUND, "no user has credentials of that mechanism"
        return KafkaError.UNSUPPORTED_SASL_MECHANISM, "unsupported mechanism: use SCRAM-SHA-256"
    if isinstance(change, ScramCredentialDeletion):
        return None
    if len(change.salted_password) != KEY_BYTES:
        return KafkaError.UNACCEPTABLE_CREDENTIAL, f"the salted password must have {KEY_BYTES} bytes"
    if change.iterations < 1:
        return KafkaError.UNACCEPTABLE_CREDENTIAL, "the number of iterations must be at least 1"
    return None


def _credential(change: ScramCredentialUpsertion) -> credentials_pb2.ScramCredential:
    """Derives what nodes store. The salted password, with which one could authenticate, is not passed on."""
    keys = keys_of_salted(change.salted_password)
    return credentials_pb2.ScramCredential(
        user=change.name,
        salt=change.salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=change.iterations,
    )


def _delete(names: Sequence[str], results: dict[str, AlterUserScramCredentialsResult]) -> Steps[None]:
    """Deletes users one by one: only then is it reported which of them existed."""
    questions = [
        credentials_pb2.AlterUserScramCredentialsRequest(deletions=[name], timeout_ms=_TIMEOUT_MS) for name in names
    ]
    replies = yield from ask_all(questions, credentials_pb2.AlterUserScramCredentialsResponse)
    for name, reply in zip(names, replies, strict=True):
        result = results[name]
        if reply.HasField("error"):
            result.error_code, result.error_message = kafka_code(reply.error), reply.error.message
        elif not reply.deleted:
            result.error_code, result.error_message = KafkaError.RESOURCE_NOT_FOUND, "the user does not exist"


def _upsert(credentials: Sequence[credentials_pb2.ScramCredential]) -> Steps[Error | None]:
    question = credentials_pb2.AlterUserScramCredentialsRequest(upsertions=credentials, timeout_ms=_TIMEOUT_MS)
    reply = yield from ask(question, credentials_pb2.AlterUserScramCredentialsResponse)
    return reply.error if reply.HasField("error") else None
