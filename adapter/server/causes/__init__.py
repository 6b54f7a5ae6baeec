"""Why a metric has no value: collects the evidence, logs and counts the causes."""
