"""The pytest side of an agent.

Its process, its log, the loaded model, and the registry of predictors.
"""
