"""GPU exporters and model servers: how to recognize them, and which presets read them."""
