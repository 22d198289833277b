"""What all nodes know: the image of the cluster, the records that change it, and the client of the controller.

May import: `server` itself.
"""
