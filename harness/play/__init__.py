"""Playing a scenario or a random run, from its record to its end."""
