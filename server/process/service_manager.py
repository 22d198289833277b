"""What a service manager is told: that the node serves, or what it waits for, and that it stops.

The protocol is systemd's (sd_notify(3)): datagrams of lines to the socket that the environment names. Other managers
take it up as well.
"""

from __future__ import annotations

import os
import socket

from quorumlog.server.observability.logging_setup import Log

#: Names the socket, in the environment of whoever is to tell.
SOCKET_VARIABLE = "NOTIFY_SOCKET"
#: Characters of a reason: it is shown in one line.
LONGEST_STATUS = 300


class ServiceManager:
    """Tells the service manager that started this process, if one wants to be told; says a thing once.

    Arguments:
        address: of its socket: a path, or ``@`` and a name. None: nobody wants to be told.
    """

    def __init__(self, address: str | None, log: Log) -> None:
        self._address = f"\0{address[1:]}" if address and address.startswith("@") else address
        self._log = log
        self._told = ""
        self._is_unheard = self._is_over = False

    @classmethod
    def of_environment(cls, log: Log) -> ServiceManager:
        """The one that this process was started by."""
        return cls(os.environ.get(SOCKET_VARIABLE), log)

    def tell_ready(self) -> None:
        """The node serves clients: what was ordered after it may start."""
        self._tell("READY=1\nSTATUS=serves clients")

    def tell_waiting(self, reason: str) -> None:
        """The node does not serve, for a reason. Whoever waits for its start goes on waiting."""
        self._tell(f"STATUS={' '.join(reason.split())[:LONGEST_STATUS]}")

    def tell_stopping(self) -> None:
        """The node has been asked to stop. Nothing is told from then on: that it still serves would be misread."""
        self._tell("STOPPING=1\nSTATUS=hands its leaderships over")
        self._is_over = True

    def _tell(self, state: str) -> None:
        if not self._address or self._is_over or state == self._told:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
                # The node's loop waits for nobody. What was not heard is said again at the next look.
                link.setblocking(False)
                link.sendto(state.encode(), self._address)
        except OSError as error:
            if not self._is_unheard:
                self._log.warning("service_manager_unheard", socket=self._address, reason=str(error))
            self._is_unheard = True
        else:
            self._told, self._is_unheard = state, False
