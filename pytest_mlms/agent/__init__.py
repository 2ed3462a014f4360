"""The pytest side of agents: their processes, logs, loaded models, and the registry of predictors."""
