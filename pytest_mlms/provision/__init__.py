"""What a case needs before it can run: files, predictors, stacks, devices, and what the machine is like."""
