"""The programs and mistakes are only checked and run by test_typing.py: an import would register their functions."""

collect_ignore = ["mistakes.py"]
collect_ignore_glob = ["programs/*"]
