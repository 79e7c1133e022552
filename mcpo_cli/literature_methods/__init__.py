"""Methods of papers other than MCPO's, registered by an entry point as the methods of a user's package are."""
