"""`python -m mcpo_cli`: the command line, also where another program is called `mcpo`."""

from mcpo_cli.main import main

if __name__ == "__main__":
    main()
