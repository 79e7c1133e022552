"""The folders of MCPO_PLUGINS as one package: `NAME.py` in any of them is the module `mcpo_cli.plugin_files.NAME`.

Every process that inherits the environment can import it, so that processes can exchange objects of plug-ins.
"""

import os
from pathlib import Path

VARIABLE = "MCPO_PLUGINS"


def _absolute(name: str) -> str:
    try:
        return str(Path(name).expanduser().absolute())
    except RuntimeError:
        # The user does not exist. The path stays as it is: `plugins.folders` reports it, which an import cannot.
        return name


__path__ = [_absolute(name) for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]
if __path__:
    # Child processes may work in another folder.
    os.environ[VARIABLE] = os.pathsep.join(__path__)
