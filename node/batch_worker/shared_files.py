"""The operations on shared storage that the protocol is made of. Each is atomic for other nodes, also over NFS."""

import contextlib
import os
import shutil
import uuid


class SharedFiles:
    """Operations on files that several nodes see. Times are those of the storage, so clocks of nodes need not agree."""

    def __init__(self, folder):
        """`folder`: a folder on the same storage, where temporary files and this process's clock file are made."""
        os.makedirs(folder, exist_ok=True)
        self._folder = folder
        self._clock = os.path.join(folder, f"clock.{uuid.uuid4().hex}")

    def create(self, path, data):
        """Creates a file with complete content. Returns False if the file exists."""
        temporary = self._write([data])
        try:
            os.link(temporary, path)
            return True
        except FileExistsError:
            # An NFS client that repeats a request after a lost answer reports its own link as an existing file.
            return os.path.samefile(temporary, path)
        finally:
            os.unlink(temporary)

    def replace(self, path, lines):
        """Creates or replaces a file with the complete content of lines."""
        temporary = self._write(lines)
        try:
            os.replace(temporary, path)
        except OSError:
            self.remove(temporary)
            raise

    def temporary(self):
        """Returns a new path for a temporary file or folder."""
        return os.path.join(self._folder, uuid.uuid4().hex)

    def touch(self, path):
        """Sets the time of a file to now. Raises FileNotFoundError."""
        os.utime(path)

    def expire(self, path):
        """Sets the time of a file to the beginning of time, so that its age is above any limit."""
        os.utime(path, (0, 0))

    def age(self, path):
        """Returns the seconds since a file was touched. Raises FileNotFoundError."""
        with open(path, "rb") as file:  # an NFS client asks the server for the times of a file that it opens
            touched = os.fstat(file.fileno()).st_mtime
        return self._now() - touched

    def names(self, folder):
        """Returns the names in a folder."""
        return os.listdir(folder)

    def exists(self, path):
        """Returns whether a file or folder exists."""
        return os.path.exists(path)

    def read(self, path):
        """Returns the content of a file. Raises FileNotFoundError."""
        with open(path, "rb") as file:
            return file.read()

    def remove(self, path):
        """Removes a file, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def rename_folder(self, folder, to):
        """Gives a folder that is not empty its name. Returns False if another folder, not empty, has this name."""
        try:
            os.rename(folder, to)
        except OSError:
            if not os.path.isdir(to):
                raise
            # An NFS client that repeats a request after a lost answer reports that its own folder is missing.
            return not os.path.isdir(folder)
        return True

    def remove_leftovers(self, age_s):
        """Removes temporary files and folders that were not changed within this time: their workers died."""
        now = self._now()
        for name in self.names(self._folder):
            path = os.path.join(self._folder, name)
            with contextlib.suppress(FileNotFoundError):
                if now - os.stat(path).st_mtime > age_s:
                    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)

    def close(self):
        """Removes the clock file."""
        self.remove(self._clock)

    def _now(self):
        with open(self._clock, "ab"):
            os.utime(self._clock)
        return os.stat(self._clock).st_mtime

    def _write(self, lines):
        path = self.temporary()
        try:
            with open(path, "wb") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError:  # a full disk would keep what was written
            self.remove(path)
            raise
        return path
