"""The pytest side of an agent: its process, its log, the loaded model, and the registry of predictors."""
