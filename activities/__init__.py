"""Every side effect that a workflow can ask for."""
