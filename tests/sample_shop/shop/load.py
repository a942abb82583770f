"""The load of the shop, as clients that neaptide runs, kills and judges."""

from neaptide.workloads.catalog import Clients, Option, Workload
from neaptide.workloads.roles.role import Pace, Role, Sends


class OrderClient(Role):
    sends = True  # it stops before the cluster is healed

    def work(self) -> None:
        sends = Sends(self, self.desk.producer(self.task))  # records each send and its end
        pace = Pace(self.task.rate, 1)
        first, number = self.process, 0  # no other process has this number: values stay unique
        while not self.stopping.is_set():
            topic, partition = self.task.places[number % len(self.task.places)]
            customer = f"customer-{number % int(self.task.options['customers'])}"
            sends.send([(topic, partition, customer, f"order-{first}-{number}")])
            number += 1
            pace.wait(self.stopping)
        self.left = sends.finish()


ORDERS = Workload(
    "orders",
    "orders of customers",
    (Clients("shop.load:OrderClient", "producers"), Clients("consumer", "consumers")),
    {"customers": Option(5, "how many there are")},
)
