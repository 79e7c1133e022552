"""The published data sets, one file each, with the pinned revision and the meaning of the columns."""
