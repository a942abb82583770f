"""A whole cluster in one deterministic process: virtual time, everything from one seed.

disk     logs with a page cache, checkpoints
service  the coordination service: versions, sessions, watches
network  links, what passes on them, what is cut or held
clients  a producer and a consumer
world    runs the effects of the core that the live broker runs; no rule of replication is here
"""
