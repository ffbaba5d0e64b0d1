"""Where the state of keys lives: the only I/O and the only clocks of the package."""
