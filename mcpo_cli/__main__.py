"""`python -m mcpo_cli`: the command line, also where another program is called `mcpo`."""

import sys

if not sys.flags.safe_path:
    # `python -m` imports from the current folder first, and a stranger's may have a file typer.py.
    del sys.path[0]

from mcpo_cli.main import main

if __name__ == "__main__":
    main()
