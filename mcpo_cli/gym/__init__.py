"""Sets of the package reasoning-gym: data sets, task and grader, registered as a user's package is (entry points)."""
