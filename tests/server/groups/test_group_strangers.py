"""Requests of clients that obey no rule: each is answered, and none breaks the invariants of groups."""

from __future__ import annotations

import random

import pytest
from group_samples import GROUP, ORIGIN, Coordinator, Topics, request, topic_id

from quorumlog.server.groups.administration import delete_group, describe
from quorumlog.server.groups.committed_offsets import commit_offsets
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.heartbeat_decisions import heartbeats
from quorumlog.server.groups.member_changes import expire_rebalance, expire_session
from quorumlog.server.groups.periodic_checks import expire_offsets, topics_changed
from quorumlog.v1 import groups_pb2 as pb

MEMBERS = ("a", "b", "c", "d")


class Strangers:
    """Requests of strangers, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.topics = Topics(t=4, u=3)
        self.coordinator = Coordinator(self.topics)

    def heartbeat(self) -> pb.GroupHeartbeatRequest:
        rng = self.rng
        group = self.coordinator.table.groups.get(GROUP)
        member_id = rng.choice(MEMBERS)
        member = group.members.get(member_id) if group is not None else None
        epochs = [0, 0, -1, -2, rng.randrange(-3, 9)]
        owned = {(topic_id(rng.choice("tuv")), rng.randrange(5)) for _ in range(rng.randrange(4))}
        if member is not None:
            epochs += [member.member_epoch, member.member_epoch, member.previous_epoch]
            owned = rng.choice([owned, set(member.held()), set(member.assigned)])
        epoch = rng.choice(epochs)
        return request(
            member_id,
            epoch,
            owned=owned if epoch else (),
            topics=rng.choice([["t"], ["t", "u"], ["v"], []]),
            pattern=rng.choice(["", "", "u|t", "("]),
            instance=rng.choice(["", "", "x", "y"]),
            full=rng.random() < 0.3,
            assignor=rng.choice(["", "", "range", "none"]),
        )

    def commit(self) -> pb.CommitOffsetsRequest:
        rng = self.rng
        row = pb.CommittedOffset(
            topic_id=topic_id(rng.choice("tuv")), partition=rng.randrange(5), offset=rng.randrange(9)
        )
        return pb.CommitOffsetsRequest(
            group_id=GROUP, member_id=rng.choice(["", *MEMBERS]), member_epoch=rng.randrange(-1, 9), offsets=[row]
        )

    def say(self, draft: Draft) -> None:
        """Decides a few requests at once, in one draft."""
        rng, name = self.rng, self.rng.choice(MEMBERS)
        for _ in range(rng.randrange(3)):
            rng.choice(
                [
                    lambda: commit_offsets(draft, self.commit()),
                    lambda: delete_group(draft, GROUP),
                    lambda: expire_session(draft, GROUP, name),
                    lambda: expire_rebalance(draft, GROUP, name, rng.randrange(9)),
                    lambda: expire_offsets(draft, GROUP, rng.choice([0, 1_000])),
                    lambda: topics_changed(draft, GROUP),
                ]
            )()
        batch = [(self.heartbeat(), ORIGIN) for _ in range(rng.randrange(4))]
        assert len(heartbeats(draft, batch)) == len(batch)
        describe(draft, GROUP, 1)

    def change_topics(self) -> None:
        name = self.rng.choice("tuv")
        if self.topics.by_name(name) is None:
            self.topics.put(name, self.rng.randrange(1, 4), life=self.rng.randrange(1_000))
        elif self.rng.random() < 0.5:
            self.topics.delete(name)
        else:
            self.topics.index += 1


@pytest.mark.parametrize("seed", range(12))
def test_whatever_strangers_say_groups_hold_together(seed: int) -> None:
    strangers = Strangers(seed)
    for _ in range(250):
        strangers.coordinator.decide(strangers.say)
        strangers.coordinator.wall_ms += strangers.rng.choice([0, 500])
        if strangers.rng.random() < 0.1:
            strangers.change_topics()
    strangers.coordinator.restart()
