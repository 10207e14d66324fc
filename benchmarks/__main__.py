"""``python -m benchmarks``."""

import sys

from agym.core._system.extras import install_command


def main() -> None:
    """Run the benchmarks, or say how to install the packages that they need."""
    try:
        from benchmarks.app import app
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package not in ("typer", "rich"):
            raise
        sys.exit(f"The benchmarks need {package}: {install_command('bench')}")
    app(prog_name="python -m benchmarks")


if __name__ == "__main__":
    main()
