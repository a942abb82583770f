"""Searches of the simulation, in processes and on executors."""
