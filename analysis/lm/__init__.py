"""SmolLM2-135M before and after training on sums."""

from . import curves

ARTIFACTS = (curves.ARTIFACT,)
