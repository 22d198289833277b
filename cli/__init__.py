"""The command line ``quorumlog``: the clients', the node's and chaos's commands under one name.

Modules here import only typer and the standard library at the top; what a command needs (gRPC, Arrow, rich, LMDB) it
imports when it runs, so that a client command starts fast. ``tests/test_imports.py`` holds that.
"""
