"""The pytest side of agents: processes, logs, loaded models, and the registry of predictors."""
