"""The benchmark: Oarlock against other libraries and against the machine's limits, side by side in one run."""
