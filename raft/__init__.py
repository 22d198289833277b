"""The consensus core: Raft as pure state machines. No I/O, no clock, no threads, no global randomness.

``RaftGroup`` (group.py) is one replica of one Raft group. docs/internals/raft.md has the contract of its driver. Read
the modules in this order.

The values, and the pieces that are independent of roles:

- ``types``: entries, messages, hard state, configuration, the state from which a replica starts, and ``Ready``.
- ``options``, ``errors``: limits and times; errors of the core.
- ``quorum``: majorities, of one configuration or of the two halves of a joint one.
- ``membership``: supported changes of members, and their steps.
- ``log``: the entries in memory over the durable log, with commit and applied index.
- ``outbox``: messages that may leave now, and messages that wait for a write.
- ``election``: the election timer with the lease, and the ballot.
- ``progress``, ``replication``: a leader's state of one follower; of all of them, for one term.
- ``engagement``: decides if a leader's witnesses get entries that not all data replicas have.

The replica and its parts. Each part uses only those above it:

- ``state``: state shared by all parts: term, vote, role, log, members, outbox.
- ``transfer``: transfer of leadership.
- ``leading``: duties of a leader: it opens its term, appends, sends heartbeats, processes responses.
- ``candidacy``: elections: terms and roles, campaigns, votes.
- ``following``: effects of a leader's messages on its follower.
- ``configuration_changes``: changes of members: proposed, applied, and the joint configuration left.
- ``quiescence``: the sleep of an idle Raft group.
- ``group``: ``RaftGroup`` passes every input of the driver to the part that it concerns, and builds the ``Ready``.
"""
