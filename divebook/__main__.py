"""``python -m divebook``: the same as the command ``divebook``."""

from divebook.cli.main import main

if __name__ == "__main__":
    main()
