"""Whether the autoscalers of the cluster get their metrics, told by a gauge and by Events."""
