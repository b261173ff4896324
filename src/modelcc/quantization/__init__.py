"""Post-training quantisation: from a float model and calibration data to an integer one."""
