"""``python -m agym`` and the console script: the command ``agym``."""

import sys

from agym.core._system.extras import install_command


def main() -> None:
    """Run the command, or say how to install the packages that it needs."""
    try:
        from agym.cli.app import app
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package not in ("typer", "rich"):
            raise
        sys.exit(f"The command agym needs {package}: {install_command('cli')}")
    app(prog_name="agym")


if __name__ == "__main__":
    main()
