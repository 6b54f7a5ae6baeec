"""Resource kinds and objects of the cluster, from the API server or from manifest files."""
