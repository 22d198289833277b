"""Audit log: refusals at most once per second and principal, changes with their outcome."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from rights import holder, rule

from quorumlog.chaos.hostile.known_ids import Vocabulary
from quorumlog.chaos.hostile.requests import RequestMaker
from quorumlog.server.access.audit import MOST_PRINCIPALS, OTHERS, TELL_EVERY_US, AuditTrail
from quorumlog.server.access.audit_text import what_changes
from quorumlog.server.access.permissions import PERMISSIONS
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.process.audit_log import AuditLog, AuditLogError
from quorumlog.server.step.events import AuditLine, ClientRequest
from quorumlog.server.step.node_service import StepTime
from quorumlog.server.step.request_context import RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import acls_pb2, admin_pb2, node_settings_pb2, quotas_pb2
from quorumlog.v1.acls_pb2 import ACL_OPERATION_READ, ACL_OPERATION_WRITE, ACL_RESOURCE_GROUP, ACL_RESOURCE_TOPIC
from quorumlog.v1.errors_pb2 import ErrorCode

ALICE = RequestContext("app", "10.0.0.7", "User:alice")


class Told:
    """An audit trail, and the lines that it has written."""

    def __init__(self, enabled: bool = True) -> None:
        self.time = StepTime(0, 1_700_000_000_000)
        ages = SimpleNamespace(bound_ms=lambda now: 7)
        self.trail = AuditTrail(enabled, self.time, holder(MetadataImage()), ages)

    def after(self, us: int) -> list[dict[str, object]]:
        """Returns the lines that are written once ``us`` more microseconds have passed."""
        self.time.now += us
        self.trail.on_time(self.time.now, self.time.wall_ms)
        return self.lines()

    def lines(self) -> list[dict[str, object]]:
        return [{"event": each.event, **each.fields} for each in self.trail.take_lines()]

    def refuse(self, client: RequestContext = ALICE, name: str = "orders") -> None:
        self.trail.refused(client, ACL_OPERATION_READ, ACL_RESOURCE_TOPIC, name)


@pytest.fixture
def told() -> Told:
    return Told()


def test_refusals_are_counted_by_principal_also_where_there_is_no_audit_log() -> None:
    reported = Told(enabled=False)
    for _ in range(3):
        reported.refuse()
    reported.refuse(RequestContext(principal="User:bob"))
    assert reported.lines() == []
    assert reported.trail.refusals.readings() == {("User:alice",): 3, ("User:bob",): 1}


def test_changed_quotas_are_told_with_their_values(told: Told) -> None:
    ops = [
        quotas_pb2.ClientQuotaOp(key="producer_byte_rate", value=1_000_000),
        quotas_pb2.ClientQuotaOp(key="controller_mutation_rate", value=0.1),
        quotas_pb2.ClientQuotaOp(key="request_rate"),
    ]
    change = quotas_pb2.ClientQuotaAlteration(principal="User:bob", ops=ops)
    told.trail.change_begins(ClientRequest(5, quotas_pb2.AlterClientQuotasRequest(alterations=[change]), client=ALICE))
    told.trail.replied(5, quotas_pb2.AlterClientQuotasResponse(altered=1))
    (line,) = told.lines()
    assert line["what"] == ["quotas of User:bob: producer_byte_rate=1000000 controller_mutation_rate=0.1 -request_rate"]
    assert (line["rpc"], line["outcome"], line["principal"]) == ("AlterClientQuotas", "done", "User:alice")


def test_changed_settings_are_told_with_their_values(told: Told) -> None:
    request = node_settings_pb2.AlterNodeSettingsRequest()
    request.alterations.add(node_id=2, ops=[node_settings_pb2.NodeSettingOp(key="audit_log", value="off")])
    request.alterations.add(ops=[node_settings_pb2.NodeSettingOp(key="log_level")])
    told.trail.change_begins(ClientRequest(5, request, client=ALICE))
    told.trail.replied(5, node_settings_pb2.AlterNodeSettingsResponse(altered=2))
    (line,) = told.lines()
    assert line["what"] == ["settings of node 2: audit_log=off", "settings of all nodes: -log_level"]
    assert (line["rpc"], line["outcome"], line["principal"]) == ("AlterNodeSettings", "done", "User:alice")


def test_switching_is_recorded(told: Told) -> None:
    """Also the change that switches it off, which was under way before."""
    request = node_settings_pb2.AlterNodeSettingsRequest()
    request.alterations.add(ops=[node_settings_pb2.NodeSettingOp(key="audit_log", value="off")])
    told.trail.change_begins(ClientRequest(5, request, client=ALICE))
    told.trail.switch(enabled=False)
    told.trail.switch(enabled=False)
    told.trail.replied(5, node_settings_pb2.AlterNodeSettingsResponse(altered=1))
    told.refuse()
    told.trail.switch(enabled=True)
    told.refuse()
    lines = told.lines()
    assert [each["event"] for each in lines] == ["auditing", "changed", "auditing", "refused"]
    assert [each.get("audit_log") for each in lines] == ["off", None, "on", None]


def test_the_first_refusal_is_told_at_once_and_the_others_once_in_a_second_with_a_count(told: Told) -> None:
    for number in range(100):
        told.refuse(name=f"t{number}")
    (first,) = told.lines()
    assert first == {
        "event": "refused", "principal": "User:alice", "host": "10.0.0.7", "client_id": "app", "operation": "Read",
        "resource": "Topic", "name": "t0", "times": 1, "metadata_index": 0, "metadata_age_ms": 7,
    }  # fmt: skip
    assert told.trail.next_deadline == TELL_EVERY_US
    (second,) = told.after(TELL_EVERY_US)
    assert (second["times"], second["name"]) == (99, "t99")
    assert told.after(TELL_EVERY_US) == []
    assert told.trail.next_deadline is None, "who has stopped is forgotten"


def test_principals_are_told_of_apart_up_to_a_limit(told: Told) -> None:
    for number in range(MOST_PRINCIPALS + 10):
        told.refuse(RequestContext(principal=f"User:{number}"))
    assert len(told.lines()) == MOST_PRINCIPALS + 1
    assert [line["times"] for line in told.after(TELL_EVERY_US)] == [9], OTHERS


def test_a_change_is_told_with_what_and_the_outcome(told: Told) -> None:
    request = acls_pb2.CreateAclsRequest(
        acls=[rule("User:bob", ACL_OPERATION_WRITE, ACL_RESOURCE_TOPIC, "ord", acls_pb2.ACL_PATTERN_PREFIXED)]
    )
    told.trail.change_begins(ClientRequest(1, request, client=ALICE))
    assert told.lines() == []
    told.trail.replied(2, acls_pb2.CreateAclsResponse())
    told.trail.replied(1, acls_pb2.CreateAclsResponse(created=1))
    (line,) = told.lines()
    assert (line["event"], line["rpc"], line["principal"]) == ("changed", "CreateAcls", "User:alice")
    assert (line["what"], line["outcome"]) == (["allow User:bob Write on Topic ord*"], "done")


def test_what_failed_and_what_may_yet_happen_is_told_as_that(told: Told) -> None:
    def outcome(number: int, *problems: object) -> tuple[object, object]:
        request = admin_pb2.DeleteTopicsRequest(names=["a", "b"])
        told.trail.change_begins(ClientRequest(number, request, client=ALICE))
        results = [admin_pb2.TopicResult(name="a", error=each) for each in problems]  # type: ignore[arg-type]
        told.trail.replied(number, admin_pb2.DeleteTopicsResponse(results=results))
        (line,) = told.lines()
        return line["outcome"], line.get("errors")

    denied = error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")
    late = error(ErrorCode.REQUEST_TIMED_OUT, "late", definite=False)
    assert outcome(1, None, None) == ("done", None)
    assert outcome(2, denied, denied) == ("failed", {"TOPIC_AUTHORIZATION_FAILED": 2})
    assert outcome(3, denied, late)[0] == "unknown"
    told.trail.change_begins(ClientRequest(4, admin_pb2.DeleteTopicsRequest(names=["a"]), client=ALICE))
    told.trail.client_gone(4)
    assert [line["outcome"] for line in told.lines()] == ["unknown"]


def test_questions_dry_runs_and_clients_of_nodes_without_an_audit_log_are_not_told(told: Told) -> None:
    for request in (
        admin_pb2.DescribeConfigsRequest(names=["a"]),
        admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="a")], validate_only=True),
    ):
        told.trail.change_begins(ClientRequest(1, request, client=ALICE))
        told.trail.replied(1, admin_pb2.DeleteTopicsResponse())
    off = Told(enabled=False)
    off.refuse()
    off.trail.refused(ALICE, ACL_OPERATION_READ, ACL_RESOURCE_GROUP, "g")
    assert told.lines() == off.lines() == []


def test_a_large_change_is_told_by_its_first_things(told: Told) -> None:
    request = admin_pb2.DeleteTopicsRequest(names=[f"topic-{number}" for number in range(100)])
    told.trail.change_begins(ClientRequest(1, request, client=ALICE))
    told.trail.replied(1, admin_pb2.DeleteTopicsResponse())
    (line,) = told.lines()
    what = line["what"]
    assert isinstance(what, list)
    assert (len(what), what[-1]) == (21, "and 80 more")


@pytest.mark.parametrize("rpc", sorted(name for name, row in PERMISSIONS.items() if row.is_change))
def test_no_request_is_so_strange_that_it_cannot_be_told_of(rpc: str) -> None:
    kind = PERMISSIONS[rpc].request
    assert kind is not None
    maker = RequestMaker(Vocabulary((1, 2, 3)), random.Random(rpc))
    for _ in range(300):
        assert all(isinstance(each, str) for each in what_changes(maker.request(kind), MetadataImage()))


# -- the file ---------------------------------------------------------------------------------------------------------


def written(path: Path, *, lines: int) -> list[dict[str, object]]:
    read = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(read) == lines
    return read


def test_lines_are_json_and_survive_a_rotation(tmp_path: Path) -> None:
    path, log = tmp_path / "audit.jsonl", SimpleNamespace(error=lambda *args, **fields: None)
    audit = AuditLog(path, 3, log)  # type: ignore[arg-type]
    audit.write(AuditLine("refused", 1_700_000_000_123, {"name": "größe % \n", "times": 1}))
    audit.close()
    (line,) = written(path, lines=1)
    assert line == {
        "time": "2023-11-14T22:13:20.123+00:00",
        "event": "refused",
        "node": 3,
        "name": "größe % \n",
        "times": 1,
    }
    audit = AuditLog(path, 3, log)  # type: ignore[arg-type]
    path.rename(tmp_path / "audit.1")
    audit.write(AuditLine("changed", 0, {}))
    audit.close()
    assert written(tmp_path / "audit.1", lines=1)
    assert written(path, lines=1)[0]["event"] == "changed"


def test_a_file_that_cannot_be_written_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(AuditLogError, match=r"audit_log = .*cannot write the audit log: "):
        AuditLog(tmp_path / "no" / "such" / "place", 1, SimpleNamespace())  # type: ignore[arg-type]
