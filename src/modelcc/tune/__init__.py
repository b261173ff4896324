"""Tuning: what schedules of a workload cost on a machine, and which of them compilation uses."""
