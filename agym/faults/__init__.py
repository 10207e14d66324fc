"""Injected faults (chaos), and reruns of recorded faults (capsules)."""
