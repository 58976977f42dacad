"""What a leader and a follower of one partition decide. Pure: no I/O, clock, log lines, asyncio."""
