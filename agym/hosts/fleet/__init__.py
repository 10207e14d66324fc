"""The options of a fleet: spares, a limit of the rate, and hedged steps."""
