"""Locks of open files; a lock always ends with its process."""

from __future__ import annotations

import io
import os
import sys
from typing import IO

if sys.platform == "win32":
    import msvcrt

    _LOCKED_BYTE = 1 << 62  # far behind the end, since on Windows nobody can read a locked byte

    def try_lock(file: IO[bytes] | io.FileIO, *, shared: bool = False) -> bool:
        """Lock an open file unless another process holds the lock; return whether this succeeded."""
        del shared
        os.lseek(file.fileno(), _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def unlock(file: IO[bytes] | io.FileIO) -> None:
        """Release the lock of a file."""
        os.lseek(file.fileno(), _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def try_lock(file: IO[bytes] | io.FileIO, *, shared: bool = False) -> bool:
        """Lock an open file unless another process holds the lock; return whether this succeeded.

        Args:
            file: The file, opened for writing unless the lock is shared.
            shared: Whether several processes may hold a shared lock at the same time.

        Raises:
            OSError: The file system has no locks.
        """
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(file: IO[bytes] | io.FileIO) -> None:
        """Release the lock of a file, even for forked processes that have inherited the file."""
        fcntl.flock(file, fcntl.LOCK_UN)
