"""The Ray backend: environments in the actors of a cluster."""
