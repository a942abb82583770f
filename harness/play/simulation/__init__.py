"""Scenarios in the simulation: the same files, the same run directory, the same checks.

worlds     a world from a scenario
recording  what happens in a world, as the tables of a run directory
play       one scenario from start to end
"""
