"""Tuning: measured costs of a workload's schedules on a machine, and which of them compilation
uses."""
