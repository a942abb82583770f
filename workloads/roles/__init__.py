"""What one client of a workload does, from its beginning to its end."""
