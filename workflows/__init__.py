"""Durable, deterministic orchestration, and nothing else."""
