"""Resource kinds and objects of the cluster."""
