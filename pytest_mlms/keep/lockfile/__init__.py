"""The lock file ``mlms.lock``: what each item ran with and found, for review and comparison."""
