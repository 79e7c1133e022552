"""mcpo: experiment management and reproducibility suite for MCPO (arXiv 2604.16972)."""

__version__ = "0.1.0"
