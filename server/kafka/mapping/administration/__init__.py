"""What administrators ask of nodes: ``log_dirs`` about their disks, ``quorum`` about who votes on the metadata."""
