"""The slice of Envoy's API that Tidegate reads and writes often, compiled from the ``.proto`` files beside it."""
