"""Sets of the package reasoning-gym: data sets, task and grader, registered by entry points like a user's package."""
