"""``quorumlog acls``: who may do what."""
