"""GPU exporter generations: how to recognize them, and which presets read them."""
