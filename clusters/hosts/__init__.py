"""Where the nodes of a cluster run: this machine, its namespaces, containers, other machines."""
