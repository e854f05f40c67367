"""Samplers made of other samplers: any of dimod's, and blocks for problems that are too large for one."""
