"""What a broker does for the partitions that it leads: answers to clients and followers."""
