"""What goes wrong with clients; apart, so that naming it loads nothing else."""


class ClientsError(Exception):
    """The process of clients has ended, or could not carry out a command."""
