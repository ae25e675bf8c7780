"""Search with queries: two means, and documents that are near every query."""
