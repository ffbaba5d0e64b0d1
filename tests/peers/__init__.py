"""What depends on other rate limiters; collected where they are installed."""
