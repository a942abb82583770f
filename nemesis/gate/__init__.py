"""The fetch gate: one process that is every link of a cluster on one machine."""
