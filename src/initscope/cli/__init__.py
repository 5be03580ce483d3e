"""The command line: one file per command, each parses, calls the public function, renders."""

from initscope.cli.entry import main

__all__ = ["main"]
