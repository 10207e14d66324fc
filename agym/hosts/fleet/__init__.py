"""The options of a fleet: a rate limit, and hedged steps."""
