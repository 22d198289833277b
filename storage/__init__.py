"""Durable state: LMDB behind one interface, one storage thread, checks on everything that is read."""
