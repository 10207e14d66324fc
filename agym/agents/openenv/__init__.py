"""OpenEnv's protocol, both ways: environments of a server, and a server of environments."""
