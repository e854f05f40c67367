"""The way to a D-Wave annealer: problems as programs of a chip, calls that are planned and paid for, a mock."""
