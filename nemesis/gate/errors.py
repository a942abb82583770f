"""What goes wrong with a gate; apart, so that naming it loads nothing else."""


class GateError(Exception):
    """The gate process has ended, or did not answer."""
