"""``quorumlog acls``: ACLs, with the options of Kafka's tool where it has them: ``commands``.

May import: `cli` itself, and everything below.
"""
