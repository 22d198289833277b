"""What the clients run on: the event loop, wake-ups, outcomes, forks, backoff.

May import: `sdk` itself.
"""
