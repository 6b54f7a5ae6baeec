"""Why a metric is missing, from what a relist has seen."""
