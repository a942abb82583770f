"""`python -m neaptide.harness.cli`: the command."""

from neaptide.harness.cli.main import main

if __name__ == "__main__":
    main()
