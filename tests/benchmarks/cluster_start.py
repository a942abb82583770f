"""How fast a cluster of our own brokers starts, and what it costs when idle: prints JSON.

    python -m tests.benchmarks.cluster_start [--runs N] [--idle SECONDS]

One broker process, from exec to its znode in `/brokers/ids`; then ZooKeeper and three brokers, from
nothing to the first acks=all acknowledgement; then the CPU that the three use when nobody asks
anything of them (replica.fetch.wait.max.ms=500). CPU seconds are those of the processes: on a busy
machine they say more than the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer
from kazoo.client import KazooClient

from neaptide.clusters.broker.cluster import BrokerCluster
from neaptide.clusters.cluster import ClusterSpec, Listeners, TopicSpec
from neaptide.clusters.hosts.here import LocalNodes
from neaptide.clusters.hosts.local import LocalHost
from neaptide.clusters.observer_zookeeper import ZooKeeperObserver

BROKERS = (0, 1, 2)
TOPIC = TopicSpec("t", {0: (0, 1, 2)}, {"min.insync.replicas": "3"})
SETTINGS = {"replica.fetch.wait.max.ms": "500", "auto.create.topics.enable": "false"}


async def start_broker(cluster: BrokerCluster, broker: int) -> None:
    ports = cluster.ports(broker)
    await cluster.start(broker, Listeners(*ports, cluster.coordination_port))


def cpu_seconds(host: LocalHost, name: str) -> float:
    """User and system time of the running processes whose name begins so."""
    return sum(
        sum(psutil.Process(process.pid).cpu_times()[:2])
        for process in host.running
        if process.spec.name.startswith(name)
    )


@contextlib.contextmanager
def fresh_cluster() -> Iterator[tuple[LocalHost, BrokerCluster]]:
    with tempfile.TemporaryDirectory() as directory:
        os.environ["NEAPTIDE_STATE"] = f"{directory}/state"
        host = LocalHost()
        spec = ClusterSpec(BROKERS, SETTINGS, TOPIC)
        cluster = BrokerCluster(LocalNodes(host), Path(directory), "0.11", spec)
        try:
            yield host, cluster
        finally:
            asyncio.run(host.close())
            cluster.close()


async def until_registered(kazoo: KazooClient, broker: int) -> None:
    while not await asyncio.to_thread(kazoo.exists, f"/brokers/ids/{broker}"):
        await asyncio.sleep(0.005)


async def one_broker(host: LocalHost, cluster: BrokerCluster) -> dict[str, float]:
    await cluster.start_coordination()
    kazoo = KazooClient(f"127.0.0.1:{cluster.coordination_port}")
    await asyncio.to_thread(kazoo.start)
    began = time.perf_counter()
    await start_broker(cluster, 0)
    await until_registered(kazoo, 0)
    figures = {"seconds": time.perf_counter() - began, "cpu_seconds": cpu_seconds(host, "broker")}
    kazoo.stop()
    kazoo.close()
    return figures


def first_acknowledgement(cluster: BrokerCluster) -> None:
    bootstrap = ",".join(f"127.0.0.1:{cluster.ports(broker)[0]}" for broker in BROKERS)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    errors: list[Any] = []
    producer.produce(TOPIC.name, b"first", on_delivery=lambda error, _: errors.append(error))
    if producer.flush(60) or errors != [None]:
        raise RuntimeError(f"the first record was not acknowledged: {errors}")


async def three_brokers(
    host: LocalHost, cluster: BrokerCluster, in_parallel: bool, idle_s: float
) -> dict[str, float]:
    """`in_parallel`: the others start before the first has registered."""
    began = time.perf_counter()
    changed = asyncio.Event()
    await cluster.start_coordination()
    with_coordination = time.perf_counter() - began
    observer = ZooKeeperObserver(cluster.coordination_port, lambda _: changed.set())
    await observer.start()
    for broker in BROKERS:
        await start_broker(cluster, broker)
        while not in_parallel and broker not in observer.registered:
            changed.clear()
            await changed.wait()
    while observer.registered != frozenset(BROKERS):
        changed.clear()
        await changed.wait()
    registered = time.perf_counter() - began
    await observer.create_topic(TOPIC)
    await asyncio.to_thread(first_acknowledgement, cluster)
    figures = {
        "coordination_seconds": with_coordination,
        "registered_seconds": registered,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": cpu_seconds(host, "broker"),
    }
    await observer.close()
    if idle_s:
        before = cpu_seconds(host, "broker")
        await asyncio.sleep(idle_s)
        figures["idle_cpu_percent"] = 100 * (cpu_seconds(host, "broker") - before) / idle_s
    return figures


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of each case; medians are printed")
    parser.add_argument("--idle", type=float, default=5.0, help="seconds for which to sit idle")
    options = parser.parse_args()
    results: dict[str, list[dict[str, float]]] = {}
    for number in range(options.runs):
        idle_s = options.idle if number == 0 else 0.0
        with fresh_cluster() as (host, cluster):
            results.setdefault("one broker", []).append(asyncio.run(one_broker(host, cluster)))
        for name, in_parallel in (("one after the other", False), ("in parallel", True)):
            with fresh_cluster() as (host, cluster):
                figures = asyncio.run(three_brokers(host, cluster, in_parallel, idle_s))
                idle = figures.pop("idle_cpu_percent", None)
                results.setdefault(f"three brokers, {name}", []).append(figures)
                if idle is not None:
                    results[f"three brokers, {name}, idle"] = [{"cpu_percent": idle}]
    report = {name: medians(runs) for name, runs in results.items()}
    load = round(os.getloadavg()[0], 2)
    print(json.dumps({"benchmark": "cluster_start", "load": load, "results": report}, indent=2))


if __name__ == "__main__":
    main()
