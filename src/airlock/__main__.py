"""`python -m airlock`: the `airlock` command."""

from airlock.cli.main import main

if __name__ == "__main__":
    main(prog_name="airlock")
