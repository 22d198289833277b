"""`nodes replace 3 --with 3` beside a node that asks for the same itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from quorumlog.cli import nodes
from quorumlog.sdk import BrokerDescription, NodePlan
from quorumlog.sdk.errors import InvalidRequestError


def broker(directory_id: str, *, returning: int = 0) -> BrokerDescription:
    return BrokerDescription(
        node_id=3,
        host="10.0.0.3",
        port=19092,
        rack=None,
        fenced=False,
        broker_epoch=1,
        version="0.1.0",
        directory_id=directory_id,
        returning=returning,
    )


class Controller:
    """Refuses to give up the disk of a node that is up."""

    def __init__(self, now: BrokerDescription) -> None:
        self.now = now

    def replace_disk(self, node: int, **_: object) -> NodePlan:
        raise InvalidRequestError(f"node {node} is up, with its data")

    def describe_cluster(self, **_: object) -> SimpleNamespace:
        return SimpleNamespace(brokers=[self.now])

    def describe_nodes(self) -> list[object]:
        return []


def test_a_node_that_has_come_back_on_another_disk_by_itself_is_waited_for() -> None:
    controller: Any = Controller(broker("new", returning=2))
    assert nodes._give_up_disk(controller, broker("former"), 0, dry_run=False) == NodePlan((), 2, ())


def test_a_disk_that_is_still_in_use_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_NOTICE_S", 0.0)
    controller: Any = Controller(broker("former"))
    with pytest.raises(InvalidRequestError, match="up, with its data"):
        nodes._give_up_disk(controller, broker("former"), 0, dry_run=False)
