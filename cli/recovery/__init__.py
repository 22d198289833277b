"""``quorumlog recover``: the last resort after a majority is lost for ever. It may use ``cli`` itself, and the server's
room for recovery. The module is ``commands``.
"""
