"""Scripts that write the generated parts of the documentation, and hooks that build its site. See `mkdocs.yml`."""
