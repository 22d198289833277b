"""The simulated world: virtual time, network, disks, processes, clients, and the invariants checked in every step."""
