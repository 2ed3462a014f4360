"""Measurement and judgement of one model on one stack."""
