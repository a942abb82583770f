"""A whole cluster in one deterministic process: virtual time, everything from one seed.

disk       logs with a page cache, checkpoints
service    the coordination service: versions, sessions, watches
sessions   who reaches it, and whose session ends
network    links, what passes on them, what is cut or held
fetching   followers' requests on their way, and what the wire has shown of them
clients    what clients know; asking, producing, idempotent, committing: what they do
parts      what else a world is made of
world      runs the effects of the core that the live broker runs; no rule of replication is here
"""
