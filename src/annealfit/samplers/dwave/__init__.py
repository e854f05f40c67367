"""D-Wave annealers: problems as programs of a chip, a queue of calls with a budget, and a mock device."""
