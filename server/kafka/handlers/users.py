"""DescribeUserScramCredentials and AlterUserScramCredentials: users that authenticate with a password."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TypeAlias

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
from quorumlog.wire.scram import MECHANISMS, ScramMechanism, keys_of_salted

_TIMEOUT_MS = 30_000
_NUMBERS = {each: credentials_pb2.ScramMechanism.Value(f"SCRAM_MECHANISM_{each.name}") for each in ScramMechanism}
#: A user and a mechanism.
_Password: TypeAlias = tuple[str, ScramMechanism]


# -- describing ------------------------------------------------------------------------------------------------


def describe_users(
    call: KafkaCall[DescribeUserScramCredentialsRequest],
) -> Steps[DescribeUserScramCredentialsResponse]:
    """Answers DescribeUserScramCredentials."""
    times = Counter(each.name for each in call.message.users or ())
    names = list(times)
    found: defaultdict[str, list[credentials_pb2.UserScramCredential]] = defaultdict(list)
    for begin in range(0, max(1, len(names)), MAX_CREDENTIALS_CHANGED):
        question = credentials_pb2.DescribeUserScramCredentialsRequest(
            users=names[begin : begin + MAX_CREDENTIALS_CHANGED], timeout_ms=_TIMEOUT_MS
        )
        reply = yield from ask(question, credentials_pb2.DescribeUserScramCredentialsResponse)
        if reply.HasField("error"):
            code = kafka_code(reply.error)
            return DescribeUserScramCredentialsResponse(error_code=code, error_message=reply.error.message)
        for each in reply.users:
            found[each.user].append(each)
    return DescribeUserScramCredentialsResponse(
        error_message=None, results=[_described(name, found.get(name), times[name]) for name in names or found]
    )


def _described(
    name: str, passwords: Sequence[credentials_pb2.UserScramCredential] | None, times: int
) -> DescribeUserScramCredentialsResult:
    if times > 1:
        return DescribeUserScramCredentialsResult(
            name, KafkaError.DUPLICATE_RESOURCE, "the request names the user twice"
        )
    if passwords is None:
        return DescribeUserScramCredentialsResult(name, KafkaError.RESOURCE_NOT_FOUND, "the user does not exist")
    infos = [CredentialInfo(each.mechanism, each.iterations) for each in passwords]
    return DescribeUserScramCredentialsResult(name, KafkaError.NONE, None, infos)


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
    duplicates = _named_twice(changes)
    for each in changes:
        problem = (
            _problem_with(each)
            if each.name not in duplicates
            else (KafkaError.DUPLICATE_RESOURCE, "the request names a password of the user twice")
        )
        if problem is not None:
            results[each.name].error_code, results[each.name].error_message = problem
        elif isinstance(each, ScramCredentialUpsertion):
            upsertions.append(_credential(each))
        else:
            deletions.append((each.name, ScramMechanism(each.mechanism)))
    # A user with an invalid change keeps everything.
    deletions = [each for each in deletions if not results[each[0]].error_code]
    upsertions = [each for each in upsertions if not results[each.user].error_code]
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
    if change.mechanism not in {*ScramMechanism}:
        return KafkaError.UNSUPPORTED_SASL_MECHANISM, f"unsupported mechanism: use {' or '.join(MECHANISMS)}"
    if isinstance(change, ScramCredentialDeletion):
        return None
    size = ScramMechanism(change.mechanism).key_bytes
    if len(change.salted_password) != size:
        return KafkaError.UNACCEPTABLE_CREDENTIAL, f"the salted password must have {size} bytes"
    if change.iterations < 1:
        return KafkaError.UNACCEPTABLE_CREDENTIAL, "the number of iterations must be at least 1"
    return None


def _credential(change: ScramCredentialUpsertion) -> credentials_pb2.ScramCredential:
    """Derives what nodes store. The salted password, with which one could authenticate, is not passed on."""
    mechanism = ScramMechanism(change.mechanism)
    keys = keys_of_salted(mechanism, change.salted_password)
    return credentials_pb2.ScramCredential(
        user=change.name,
        salt=change.salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=change.iterations,
        mechanism=_NUMBERS[mechanism],
    )


def _named_twice(changes: Sequence[ScramCredentialDeletion | ScramCredentialUpsertion]) -> set[str]:
    times = Counter((each.name, each.mechanism) for each in changes)
    return {name for (name, _), count in times.items() if count > 1}


def _delete(passwords: Sequence[_Password], results: dict[str, AlterUserScramCredentialsResult]) -> Steps[None]:
    """Deletes passwords one by one: only then is it reported which of them existed."""
    questions = [
        credentials_pb2.AlterUserScramCredentialsRequest(
            deletions=[name], deletion_mechanisms=[_NUMBERS[mechanism]], timeout_ms=_TIMEOUT_MS
        )
        for name, mechanism in passwords
    ]
    replies = yield from ask_all(questions, credentials_pb2.AlterUserScramCredentialsResponse)
    for (name, mechanism), reply in zip(passwords, replies, strict=True):
        result = results[name]
        if reply.HasField("error"):
            result.error_code, result.error_message = kafka_code(reply.error), reply.error.message
        elif not reply.deleted:
            result.error_code = KafkaError.RESOURCE_NOT_FOUND
            result.error_message = f"the user has no password for {mechanism.sasl_name}"


def _upsert(credentials: Sequence[credentials_pb2.ScramCredential]) -> Steps[Error | None]:
    question = credentials_pb2.AlterUserScramCredentialsRequest(upsertions=credentials, timeout_ms=_TIMEOUT_MS)
    reply = yield from ask(question, credentials_pb2.AlterUserScramCredentialsResponse)
    return reply.error if reply.HasField("error") else None
