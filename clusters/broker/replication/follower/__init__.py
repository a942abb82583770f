"""What a broker does for the partitions that it follows: truncate, fetch, append, and recover."""
