"""The data sets that are published: one file each, with the pinned revision and what its columns mean."""
