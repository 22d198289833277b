"""What turns a node into a process: the driver, the runtime, the thread for jobs.

May import: all rooms.
"""
