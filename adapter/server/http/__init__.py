"""HTTP below the API: connections, request info, responses and encodings."""
