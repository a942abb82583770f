"""The rules of our broker, without IO: `step(broker, event, now_ms)` gives effects, in order.

A room for each actor, and one for what passes between them and the world:

interface/     events (what goes in), effects (what comes out), what the coordination service does
partition/     one replica: its log, its epochs and producers, high watermark and ISR; no requests
leader/        Produce and Fetch, what waits in purgatory, the ISR, offsets of the log
follower/      the fetchers: epochs, truncation, fetching, what to do when out of range
replicas/      what the controller requests of a broker: who leads, who follows, what is deleted
controller/    elections, topics, what is sent to all brokers
group/         the coordinator of consumer groups, and the offsets that they commit
transaction/   producer ids (the transaction coordinator is to come)

`broker.py` holds the state of all of them, `step.py` leads each event to who handles it. Imports go
from the actors down to partition/ and interface/; import-linter holds that, and keeps out asyncio,
threads, sockets, clocks, randomness and logging.
"""
