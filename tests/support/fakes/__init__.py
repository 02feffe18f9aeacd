"""Devices, drivers, machines and runners that are not there, or that fail on purpose."""
