"""How systems are measured: workloads, turns, memory and CPU time."""
