"""Pure functions that decide: no clock, no store, no framework."""
