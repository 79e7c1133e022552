"""Which property of the reweighted advantages changes the speed of learning."""

from . import speed

ARTIFACTS = (speed.ARTIFACT,)
