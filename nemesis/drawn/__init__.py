"""The nemesis of a random run: its faults, drawn from a seed before the run, as data."""
