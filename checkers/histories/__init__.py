"""Histories of Jepsen's Kafka workload: EDN read, and written."""
