"""Plug-ins for `cluster.plugin`: each is tests.verl.cpu with a fault in a process of verl."""
