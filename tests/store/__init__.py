"""The store and its promises."""
