"""Connects nodes with each other over gRPC, and over sockets for frames.

- `peer_service`: what nodes serve to nodes: Identify, and the streams.
- `peer_links`: the links to every peer; `peer_session`: the streams of one direction.
- `peer_sockets`: sockets that carry the frames of control and data streams.
- `peer_codec`: frames to bytes and back.
- `refused_peers`: logs nodes that were refused.
- `disk_loss_report`: asks another node to give up a disk of this one, before this node rejoins the cluster.
"""
