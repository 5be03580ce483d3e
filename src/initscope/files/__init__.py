"""Files that are whole or absent, checksums that find damage, and locks that a killed process cannot keep."""

from initscope.files.checksums import checksum, is_whole, sealed
from initscope.files.locks import locked
from initscope.files.writing import PART, check_writable, is_file, is_folder, remove_parts, write_atomically, write_file

__all__ = [
    "PART",
    "check_writable",
    "checksum",
    "is_file",
    "is_folder",
    "is_whole",
    "locked",
    "remove_parts",
    "sealed",
    "write_atomically",
    "write_file",
]
