"""Scenarios by name, what they need and predict, in words; systems that they are played on."""
