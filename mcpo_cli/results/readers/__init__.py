"""Readers of graded samples, one file per tool. A plug-in of the group `mcpo.readers` declares READER, too."""
