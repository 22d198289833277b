"""The earlier commit that nodes of a former version are of."""

#: The last commit whose nodes support feature level 1 only, and write what 0.1.0 writes.
LEVEL_1 = "ec3fcd377cefa71bd77b1443c163618935d17793"
