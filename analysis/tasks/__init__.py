"""Tasks that one study alone trains on, found by the entry point of `mcpo.tasks`."""
