"""Groups follow their topics: those that come, grow and go, by name and by pattern."""

from __future__ import annotations

import dataclasses

import pytest
from group_samples import GROUP, Client, Coordinator, Topics, partitions, topic_id, until_stable

from quorumlog.server.groups.periodic_checks import topics_changed
from quorumlog.server.groups.subscriptions import PATTERN_BYTES, PATTERNS, InvalidPatternError, compiled
from quorumlog.v1 import groups_pb2 as pb


def look_again(coordinator: Coordinator) -> bool:
    return coordinator.decide(lambda draft: topics_changed(draft, GROUP))


def test_a_topic_that_grows_is_assigned_anew() -> None:
    topics = Topics(t=2)
    coordinator = Coordinator(topics)
    a, b = Client(coordinator, "a"), Client(coordinator, "b")
    until_stable([a, b])
    assert not look_again(coordinator)
    had = a.owned | b.owned
    topics.put("t", 4)
    assert look_again(coordinator)
    assert not look_again(coordinator)
    until_stable([a, b])
    assert len(a.owned) == len(b.owned) == 2
    assert (a.owned | b.owned) - had == partitions("t", 2, 3)
    assert a.first_partitions == {"t": 2}, "those added since are read from their beginning"


def test_a_group_that_was_away_knows_which_partitions_are_new() -> None:
    topics = Topics(t=2)
    coordinator = Coordinator(topics)
    a = Client(coordinator, "a")
    until_stable([a])
    a.leave()
    topics.put("t", 3)
    assert not look_again(coordinator), "no member reads it"
    b = Client(coordinator, "b")
    until_stable([b])
    assert b.first_partitions == {"t": 2}
    assert b.owned == partitions("t", 0, 1, 2)


def test_a_topic_that_is_deleted_is_given_up() -> None:
    topics = Topics(t=2, u=2)
    coordinator = Coordinator(topics)
    a = Client(coordinator, "a", topics=["t", "u"])
    until_stable([a])
    topics.delete("u")
    assert look_again(coordinator)
    a.beat()
    assert a.to_revoke == partitions("u", 0, 1)
    a.revoke()
    until_stable([a])
    assert (a.owned, coordinator.group.state) == (partitions("t", 0, 1), pb.GROUP_STABLE)


def test_a_member_that_missed_it_is_told_of_a_deleted_topic() -> None:
    topics = Topics(t=2, u=2)
    coordinator = Coordinator(topics)
    a = Client(coordinator, "a", topics=["t", "u"])
    coordinator.heartbeat(a.request())
    topics.delete("u")
    look_again(coordinator)
    a.beat()
    assert a.owned == partitions("t", 0, 1)


def test_a_topic_made_anew_under_its_name_is_another() -> None:
    topics = Topics(t=2)
    coordinator = Coordinator(topics)
    a = Client(coordinator, "a")
    until_stable([a])
    topics.delete("t")
    topics.put("t", 3, life=1)
    assert look_again(coordinator)
    until_stable([a])
    assert a.owned == {(topic_id("t", 1), number) for number in range(3)}
    assert a.first_partitions == {"t": 3}


def test_an_empty_group_forgets_deleted_topics() -> None:
    topics = Topics(t=2)
    coordinator = Coordinator(topics)
    a = Client(coordinator, "a")
    until_stable([a])
    a.leave()
    epoch = coordinator.group.group_epoch
    topics.delete("t")
    assert look_again(coordinator)
    assert coordinator.group.header.topics == {}
    assert coordinator.group.group_epoch == epoch
    assert not coordinator.decide(lambda draft: topics_changed(draft, "other"))


def test_a_topic_may_be_subscribed_to_before_it_exists() -> None:
    topics = Topics()
    coordinator = Coordinator(topics)
    a = Client(coordinator, "a")
    until_stable([a])
    assert (a.owned, coordinator.group.state) == (set(), pb.GROUP_STABLE)
    topics.put("t", 1)
    assert look_again(coordinator)
    until_stable([a])
    assert a.owned == partitions("t", 0)


def test_a_pattern_matches_whole_names_of_topics_that_are_not_internal() -> None:
    topics = Topics(orders=1, orders_eu=1, reorders=1, __groups=1)
    coordinator = Coordinator(topics)
    a = Client(coordinator, "a", topics=[], pattern="orders.*")
    b = Client(coordinator, "b", topics=["reorders"], pattern=".*orders")
    until_stable([a, b])
    assert a.owned | b.owned == partitions("orders", 0) | partitions("orders_eu", 0) | partitions("reorders", 0)
    assert b.owned >= partitions("reorders", 0)
    assert a.owned >= partitions("orders_eu", 0)
    topics.put("orders_us", 1)
    assert look_again(coordinator)
    until_stable([a, b])
    assert a.owned >= partitions("orders_us", 0)


def test_a_pattern_is_compiled_once() -> None:
    assert compiled("x+") is compiled("x+")


@pytest.mark.timeout(20)
def test_no_pattern_takes_for_ever_or_much_memory() -> None:
    assert compiled("(a|aa)+").fullmatch("a" * 249 + "b") is None
    assert compiled("(.*)*(x+x+)+y").fullmatch("x" * 249) is None
    for large in ("(?:(?:a{1,30}){1,30}){1,30}", r"(?:\pL{1,100}){1,10}"):
        with pytest.raises(InvalidPatternError):
            compiled(large)


def test_patterns_that_are_remembered_have_a_bound_in_bytes() -> None:
    """Remembered patterns have a bound in bytes: a client that may use a group can send any number of them."""
    assert compiled.cache_info().maxsize == PATTERNS
    assert PATTERNS * PATTERN_BYTES <= 128 << 20


def grown_and_unread() -> tuple[Coordinator, Client, Client]:
    """Returns a group whose first member still owns a topic that has grown from two partitions to three and that it no
    longer subscribes to: it must release partitions of another topic first."""
    topics = Topics(t=2, u=2)
    coordinator = Coordinator(topics)
    a, b = Client(coordinator, "a", topics=["t", "u"]), Client(coordinator, "b")
    until_stable([a])
    topics.put("u", 3)
    look_again(coordinator)
    until_stable([a])
    b.beat()
    a.beat()
    assert a.to_revoke
    a.wishes = {"topics": ["t"]}
    a.beat(full=True)
    assert coordinator.group.header.topics.keys() == {topic_id("t")}
    assert partitions("u", 0, 1, 2) <= a.owned
    return coordinator, a, b


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_topic_that_is_read_no_more_keeps_which_of_its_partitions_are_new(is_moved: bool) -> None:
    coordinator, a, b = grown_and_unread()
    if is_moved:
        coordinator.restart()
    a.beat(full=True)
    assert a.first_partitions["u"] == 2, "the first two are not new to the group"
    until_stable([a, b])
    assert partitions("u", 0, 1, 2).isdisjoint(a.owned)
    Client(coordinator, "c").beat()
    assert coordinator.group.header.unread_topics == {}, "it is forgotten when no member has it"


def test_a_topic_that_is_read_again_before_all_gave_it_up_keeps_which_of_its_partitions_are_new() -> None:
    _, a, b = grown_and_unread()
    a.wishes = {"topics": ["t", "u"]}
    a.beat(full=True)
    assert a.first_partitions["u"] == 2
    until_stable([a, b])
    assert partitions("u", 0, 1, 2) <= a.owned


def test_of_what_an_older_node_says_is_read_no_more_nothing_is_skipped() -> None:
    coordinator, a, _ = grown_and_unread()
    for table in (coordinator.table, coordinator.replica):
        group = table.groups[GROUP]
        group.put_header(dataclasses.replace(group.header, unread_topics={}))
    a.beat(full=True)
    assert a.first_partitions["u"] == 0


@pytest.mark.parametrize(("topics", "pattern"), [(["u"], ""), ([], "u"), (["t", "u"], "")])
def test_a_member_may_change_what_it_reads(topics: list[str], pattern: str) -> None:
    coordinator = Coordinator(Topics(t=2, u=2))
    a = Client(coordinator, "a")
    until_stable([a])
    a.wishes = {"topics": topics, "pattern": pattern}
    until_stable([a])
    assert a.owned == partitions("u", 0, 1) | (partitions("t", 0, 1) if "t" in topics else set())


def test_the_order_of_topics_makes_no_difference() -> None:
    coordinator = Coordinator(Topics(t=2, u=2))
    a = Client(coordinator, "a", topics=["u", "t"])
    until_stable([a])
    a.wishes = {"topics": ["t", "u", "t"]}
    assert a.beat() is None
    assert len(coordinator.commands) == 1
