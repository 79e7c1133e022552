"""Plugins for `cluster.plugin`, each of which is tests.verl.cpu with a fault that happens in a process of verl."""
