"""`python -m headway` is the headway command."""

from headway.cli.main import run

if __name__ == "__main__":
    run()
