"""The live page: watch environments in a browser while they are stepped."""
