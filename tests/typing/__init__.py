"""Code that is type-checked and never run."""
