"""Where the nodes of a cluster run: here, as processes of this machine."""
