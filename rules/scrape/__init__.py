"""Scrape configurations of exporters, model servers and gateways, from the presets' YAML."""
