"""From Hydra's grammar to frozen dataclasses."""
