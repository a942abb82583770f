"""`neaptide`, and `python -m neaptide.harness.cli`: the command.

While the rest of it is imported, Ctrl-C ends the process by itself: nothing has begun yet.
"""

import signal


def main() -> None:
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.SIG_IGN:  # as for what a shell starts in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from neaptide.harness.cli import main as command

    signal.signal(signal.SIGINT, usual)
    command.main()


if __name__ == "__main__":
    main()
