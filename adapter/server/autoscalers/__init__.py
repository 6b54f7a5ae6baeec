"""Watch of the autoscalers: whether they get their metrics, proposed replicas, and forecasts."""
