"""`make docs`: write the pages that are made from the code. `--check` only says whether they are up to date."""

import sys
from pathlib import Path

from hopline import errors

HERE = Path(__file__).parent


def errors_page() -> str:
    """The reference of error codes, from `hopline.errors`."""
    tree = (errors.__doc__ or "").split("\n\n")[1]
    rows = [f"| `{code}` | {entry.meaning} | {entry.remedy} |" for code, entry in errors.CODES.items()]
    return "\n".join(
        [
            "# Errors",
            "",
            "Generated from the code by `make docs`.",
            "",
            "Everything raised on purpose is a `HoplineError` with a stable `code`; the command line prints the same codes.",
            "",
            tree,
            "",
            "| code | what happened | what to do |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


PAGES = {HERE / "errors.md": errors_page}


def main() -> int:
    """Write the pages; with --check return 1 if one is not as the code says."""
    stale = [page for page, make in PAGES.items() if not page.exists() or page.read_text() != make()]
    if "--check" in sys.argv[1:]:
        for page in stale:
            print(f"{page.name} is not up to date: make docs")
        return 1 if stale else 0
    for page in stale:
        page.write_text(PAGES[page]())
        print(f"wrote {page.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
