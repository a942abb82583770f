"""A whole cluster in one deterministic process: virtual time, everything from one seed.

Four kinds of nodes, each with a state, a copy, and functions of its own. None knows the world.

network_node       messages on their way, cuts and holds, open requests, the time; network: its
                   values, blocking: what may pass
broker_node        the core that the live broker runs, its disk and timers; effect_handlers: what
                   the core asks for; fetching, controlling, broker_calls: requests to
                   other brokers; retaining: retention
coordination_node  sessions; service: the znodes
client_node        what clients know; clients: its values; asking, producing, idempotent,
                   committing: what they do
world              the schedule of the nodes: which of them gets the next event
faults             what may be done to a world
"""
