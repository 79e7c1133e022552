"""Methods of the literature beyond the paper's, registered as those of a user's package are: by an entry point."""
