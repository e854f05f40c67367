"""What an annealer's chip can hold: whether a problem fits, what it costs, how much of it the device resolves."""
