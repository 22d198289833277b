"""Notifications to a service manager: the node is ready, or what it waits for, or that it is stopping.

The protocol is systemd's (sd_notify(3)): datagrams of lines to the socket named in the environment. Other managers
support it, too.
"""

from __future__ import annotations

import os
import socket

from quorumlog.server.observability.logging_setup import Log

#: Environment variable with the address of the socket.
SOCKET_VARIABLE = "NOTIFY_SOCKET"
#: End of each notification to a parent process, whose socket is a stream.
END = b"\n\n"
READY, STATUS = "READY=1", "STATUS="
#: Maximum length of a reason, which is shown in one line.
LONGEST_STATUS = 300


class ServiceManager:
    """Notifies the service manager that started this process, if any; repeats no notification.

    Arguments:
        address: of its socket: a path, or ``@`` and a name. None: notifications are not wanted.
        parent: a socket to the parent process of this worker, which gets the notifications instead.
    """

    def __init__(self, address: str | None, log: Log, parent: socket.socket | None = None) -> None:
        self._address = f"\0{address[1:]}" if address and address.startswith("@") else address
        self._parent = parent
        self._log = log
        self._told = ""
        self._is_unheard = self._is_over = False

    @classmethod
    def of_environment(cls, log: Log) -> ServiceManager:
        """Returns the service manager that started this process."""
        return cls(os.environ.get(SOCKET_VARIABLE), log)

    def tell_ready(self) -> None:
        """Reports that the node serves clients: services ordered after it may start."""
        self._tell(f"{READY}\n{STATUS}serving clients")

    def tell_waiting(self, reason: str) -> None:
        """Reports why the node does not serve. Services that wait for its start continue to wait."""
        self._tell(f"{STATUS}{' '.join(reason.split())[:LONGEST_STATUS]}")

    def tell_stopping(self) -> None:
        """Reports that the node is stopping. No later notification is sent: "ready" would be misread."""
        self._tell(f"STOPPING=1\n{STATUS}handing over its leaderships")
        self._is_over = True

    def _tell(self, state: str) -> None:
        if not (self._address or self._parent) or self._is_over or state == self._told:
            return
        try:
            self._send(state.encode())
        except OSError as error:
            if not self._is_unheard:
                self._log.warning("service_manager_unheard", socket=self._address, reason=str(error))
            self._is_unheard = True
        else:
            self._told, self._is_unheard = state, False

    def _send(self, state: bytes) -> None:
        # The node's loop must not block. A notification that was not received is repeated at the next check.
        if self._parent is not None:
            self._parent.setblocking(False)
            self._parent.send(state + END)
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
            link.setblocking(False)
            link.sendto(state, self._address or "")
