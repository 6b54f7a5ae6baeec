"""What the server serves: routing, discovery, health, OpenAPI and the API groups."""
