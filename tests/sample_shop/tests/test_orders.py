import os

from shop.orders import OrderDesk

ACKS = os.environ.get("SHOP_ACKS", "all")


def test_an_accepted_order_survives_its_leader(neaptide):
    cluster = neaptide.cluster(topics={"orders": 1}, settings={"min.insync.replicas": 2})
    desk = OrderDesk(cluster.producer({"acks": ACKS, "message.timeout.ms": 30_000}))
    desk.place("order-1")
    assert desk.finish(10) == 0
    for follower in ("B", "C"):  # with acks=1 nobody else has waited for them
        cluster.wait_until(
            lambda follower=follower: cluster.log_end_offset(follower, "orders") == 1
        )

    for follower in ("B", "C"):  # what the leader answers does not arrive any more
        cluster.hold("A", follower)
        cluster.wait_until(lambda follower=follower: cluster.is_held("A", follower))
    desk.place("order-2")
    desk.finish(0.5)
    cluster.kill("A")
    cluster.wait_until(lambda: cluster.leader("orders") in ("B", "C"))
    desk.place("order-3")
    assert desk.finish(60) == 0

    assert "order-3" in desk.accepted
    neaptide.assert_valid(cluster)


def test_orders_are_taken_while_a_follower_is_paused(neaptide):
    cluster = neaptide.cluster(topics={"orders": 2})
    desk = OrderDesk(cluster.producer({"acks": "all"}))
    cluster.pause("C")
    for number in range(20):
        desk.place(f"order-{number}")
    # A client that has just asked C for metadata waits 60 s (socket.timeout.ms), then asks others.
    assert desk.finish(150) == 0
    cluster.resume("C")
    assert len(desk.accepted) == 20
    # Nobody checks the cluster here: neaptide does, at the end of the test.


def test_no_order_of_a_load_is_lost_when_brokers_are_killed(neaptide):
    run = neaptide.run("orders", nemesis="kill", time_s=5, rate=200, options={"customers": 3})
    neaptide.assert_valid(run)
