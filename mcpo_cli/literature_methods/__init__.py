"""Methods of the literature beyond the paper's, registered by an entry point like those of a user's package."""
