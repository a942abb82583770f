"""A live cluster under test: what is done to it, and what is observed of it."""
