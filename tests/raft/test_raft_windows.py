"""The in-flight window, the outbox and preference among voters, against models that are too simple to be wrong."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quorumlog.raft.election import Turn, turn_of
from quorumlog.raft.outbox import Outbox
from quorumlog.raft.progress import Inflights
from quorumlog.raft.types import Message

#: A busy machine is not a failure.
at_leisure = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

window_actions = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 60)),
        st.tuples(st.just("acknowledge"), st.integers(0, 40)),
        st.tuples(st.just("clear"), st.just(0)),
    ),
    max_size=60,
)


@at_leisure
@given(st.integers(1, 5), st.integers(1, 100), window_actions)
def test_in_flight_is_what_was_sent_and_not_acknowledged(
    most: int, most_bytes: int, actions: list[tuple[str, int]]
) -> None:
    window = Inflights(most, most_bytes)
    unanswered: list[tuple[int, int]] = []
    last = 0
    for action, number in actions:
        if action == "send" and not window.full:
            last += 1
            window.add(last, number)
            unanswered.append((last, number))
        elif action == "acknowledge":
            window.free_to(number)
            unanswered = [request for request in unanswered if request[0] > number]
        elif action == "clear":
            window.clear()
            unanswered = []
        sizes = [size for _, size in unanswered]
        assert (len(window), window.bytes) == (len(sizes), sum(sizes))
        assert window.full == (len(sizes) >= most or sum(sizes) >= most_bytes)
        assert sum(sizes[:-1]) < most_bytes, "only the last one crosses the bound"


outbox_actions = st.lists(
    st.one_of(
        st.sampled_from(("say now", "promise", "take", "take a write")),
        st.integers(1, 3),  # writes that are synced, as one
    ),
    max_size=60,
)


@at_leisure
@given(outbox_actions)
def test_a_promise_leaves_once_when_everything_decided_before_it_is_durable(actions: list[str | int]) -> None:
    outbox = Outbox()
    #: Writes handed out, and synced; what leaves with each; which write stands for a promise; promises made and kept.
    taken, durable = 0, 0
    leaving_with: dict[int, list[Message]] = {}
    waits_for: dict[int, int] = {}
    promised: list[int] = []
    left: list[int] = []

    def leave(messages: list[Message]) -> None:
        for message in messages:
            if message.term in promised:
                assert waits_for[message.term] <= durable, f"promise {message.term} leaves before its write is synced"
                left.append(message.term)

    def take(writes: bool) -> None:
        nonlocal taken
        taken += writes
        for promise in promised:
            waits_for.setdefault(promise, taken)
        now, after, number = outbox.take(writes=writes)
        assert number == taken
        assert writes or not after, "without a write nothing waits for one"
        leave(now)
        if writes:
            leaving_with[taken] = after

    for made, action in enumerate([*actions, "take", 99], 1):
        if action == "say now":
            outbox.now.append(Message(1, 2, made))
        elif action == "promise":
            outbox.after_durable.append(Message(1, 2, made))
            promised.append(made)
        elif isinstance(action, str):
            take(writes=action == "take a write")
        else:
            before, durable = durable, min(taken, durable + action)
            for write in range(before + 1, durable + 1):
                leave(leaving_with[write])
            outbox.durable(durable)
            assert outbox.settled == (durable == taken)
            take(writes=False)
    # Of two writes that are synced as one, what was held for the first may leave behind what goes with the second.
    assert sorted(left) == promised, "each leaves once"


@at_leisure
@given(st.lists(st.integers(1, 9), min_size=1, max_size=7, unique=True), st.sets(st.integers(1, 9)))
def test_voters_that_may_lead_next_have_turns_of_their_own_in_the_order_of_preference(
    voters: list[int], gone: set[int]
) -> None:
    waiting = [voter for voter in voters if voter not in gone]
    for place, voter in enumerate(waiting):
        assert turn_of(voter, voters, gone) == Turn(place, len(waiting))
    for voter in voters:
        turn = turn_of(voter, voters, gone)
        assert 0 <= turn.place < turn.of
