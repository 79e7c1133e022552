"""The folders of MCPO_PLUGINS as one package: `NAME.py` in any of them is the module `mcpo_cli.plugin_files.NAME`.

Every process that inherits the environment can import it, so that what a plug-in made can be sent from one to another.
"""

import os
from pathlib import Path

VARIABLE = "MCPO_PLUGINS"


def _absolute(name: str) -> str:
    try:
        return str(Path(name).expanduser().absolute())
    except RuntimeError:
        # There is no such user. It stays as it is: `plugins.folders` says so, an import could not.
        return name


__path__ = [_absolute(name) for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]
if __path__:
    # Processes that this one starts may work in another folder.
    os.environ[VARIABLE] = os.pathsep.join(__path__)
