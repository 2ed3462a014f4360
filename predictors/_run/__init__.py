"""What every agent runs, whatever its framework: the channel, the request loop, the scenarios."""
