"""The rules, pure: a definition and a log in, what to do next out."""
