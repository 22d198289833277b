"""The consensus core: Raft as pure state machines. No I/O, no clock, no threads, no global randomness.

``RaftGroup`` (group.py) is one replica of one Raft group. Its driver's contract is in docs/raft.md. Read the modules in
this order.

The values, and the pieces that know nothing of roles:

- ``types``: entries, messages, hard state, configuration, what a replica starts from, and ``Ready``.
- ``options``, ``errors``: limits and times; what the core refuses.
- ``quorum``: majorities, of one configuration or of the two halves of a joint one.
- ``membership``: which changes of members can be made, and by which steps.
- ``log``: the entries in memory over the durable log, with commit and applied index.
- ``outbox``: messages that may leave now, and messages that wait for a write.
- ``election``: the election timer with the lease, and the ballot.
- ``progress``, ``replication``: what a leader knows of one follower; of all of them, for one term.
- ``engagement``: when a leader sends its witnesses what not all data replicas have.

The replica and its parts. Each part uses only those above it:

- ``state``: what all parts share: term, vote, role, log, members, outbox.
- ``transfer``: a leader hands its leadership over.
- ``leading``: what a leader does: it opens its term, appends, sends heartbeats, takes answers.
- ``candidacy``: who leads: terms and roles, campaigns, votes.
- ``following``: what a leader's messages do to its follower.
- ``configuration_changes``: a change of members is proposed, applies, and the joint configuration is left.
- ``quiescence``: the sleep of an idle Raft group.
- ``group``: ``RaftGroup`` hands every input of the driver to the part that it concerns, and makes the ``Ready``.
"""
