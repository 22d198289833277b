"""The wire contract: the messages and services that are generated from the `.proto` files beside them.

May import: nothing else of quorumlog.
"""
