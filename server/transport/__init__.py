"""gRPC: services for clients, streams between peers, their codec and links.

May import: `server` itself, `hosting.sealing`.
"""
