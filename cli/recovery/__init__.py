"""``quorumlog recover``: the last resort after a majority is permanently lost. It may use ``cli`` itself, and the
server's recovery folder. The module is ``commands``.
"""
