"""What makes sense of quotas, whatever there is of them already."""

from __future__ import annotations

import math

from quorumlog.server.client_origin import EVERYBODY, USER_PREFIX
from quorumlog.server.metadata.client_quotas import LEAST_VALUES, MOST_VALUE
from quorumlog.server.metadata.credential_checks import MAX_NAME_LENGTH
from quorumlog.server.wire_errors import error
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.v1.quotas_pb2 import (
    AlterClientQuotasRequest,
    ClientQuotaAlteration,
    ClientQuotaOp,
    DescribeClientQuotasRequest,
)
from quorumlog.v1.request_limits import MAX_QUOTAS_CHANGED


def check_quotas(request: AlterClientQuotasRequest) -> Error | None:
    """Why quotas cannot be meant like this; None if they can."""
    principals = [each.principal for each in request.alterations]
    problem = None
    if not 1 <= len(principals) <= MAX_QUOTAS_CHANGED:
        problem = (
            f"quotas of {len(principals)} principals are to be changed: give 1 to {MAX_QUOTAS_CHANGED} in one request"
        )
    elif len(set(principals)) < len(principals):
        problem = "a principal stands twice in the request: name each once"
    else:
        problem = next((found for each in request.alterations if (found := _problem_with(each))), None)
    return None if problem is None else error(ErrorCode.INVALID_REQUEST, problem)


def check_quota_question(request: DescribeClientQuotasRequest) -> Error | None:
    """Why nobody can be asked for these quotas; None if they can."""
    if len(request.principals) <= MAX_QUOTAS_CHANGED:
        return None
    problem = f"{len(request.principals)} principals are asked for: give at most {MAX_QUOTAS_CHANGED}, or none for all"
    return error(ErrorCode.INVALID_REQUEST, problem)


def _problem_with(alteration: ClientQuotaAlteration) -> str | None:
    principal, keys = alteration.principal, [op.key for op in alteration.ops]
    name = principal.removeprefix(USER_PREFIX)
    if name == principal or not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        return (
            f"principal {principal[:40]!r} is not {USER_PREFIX} and 1 to {MAX_NAME_LENGTH} printable characters;"
            f" {EVERYBODY} is the default"
        )
    if not keys:
        return f"nothing is to be changed for {principal}: give a quota"
    if len(set(keys)) < len(keys):
        return f"a quota of {principal} stands twice: name each once"
    return next((found for op in alteration.ops if (found := _problem_with_op(op))), None)


def _problem_with_op(op: ClientQuotaOp) -> str | None:
    least = LEAST_VALUES.get(op.key)
    if least is None:
        return f"there is no quota {op.key[:40]!r}: give one of {', '.join(LEAST_VALUES)}"
    if not op.HasField("value"):
        return None
    if not math.isfinite(op.value) or not least <= op.value <= MOST_VALUE:
        return f"{op.key} is {op.value:g}: give {least:g} to {MOST_VALUE:g} per second, or remove it"
    return None
