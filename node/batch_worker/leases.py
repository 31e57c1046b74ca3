"""Leases on shards. A lease keeps other workers from doing the same work; that each row has one result does not depend on it, but
on the commit of the shard (`results`).

    leases/KEY.1    the first attempt: the file names its owner, and its owner touches it while it works
    leases/KEY.2    the second attempt, made by exclusive creation after the first had expired

An attempt is never changed by another worker. A new one is made only after the last one has expired, was given back, or belongs
to an earlier run of the same task, and of several workers one can create it."""

import os


class Leases:
    """Leases that a worker takes. `owner`: the job and task of the worker, the same after a requeue."""

    def __init__(self, files, folder, owner, lease_s):
        self._files, self._folder, self._owner, self._lease_s = files, folder, owner, lease_s
        self._mine = set()  # attempts of this run

    def attempts(self):
        """Returns the number of the last attempt by key."""
        found = {}
        for name in self._files.names(self._folder):
            key, _, number = name.rpartition(".")
            found[key] = max(found.get(key, 0), int(number))
        return found

    def claim(self, key, last):
        """Makes the attempt after `last` (0: none) if that one has ended. Returns its number, or 0 if another worker has the
        lease."""
        if last and not self._ended(key, last):
            return 0
        made = self._files.create(self._path(key, last + 1), self._owner.encode())
        if made:
            self._mine.add((key, last + 1))
        return last + 1 if made else 0

    def renew(self, key, attempt):
        """Renews a lease."""
        self._files.touch(self._path(key, attempt))

    def give_back(self, key, attempt):
        """Ends a lease before its time: the next attempt can begin at once."""
        self._files.expire(self._path(key, attempt))

    def was_given_back(self, key, attempt):
        """Returns whether an attempt ended by `give_back`, and not by the death of its worker."""
        return self._files.age(self._path(key, attempt)) > 1e8  # the file's time is that of `expire`

    def _ended(self, key, attempt):
        path = self._path(key, attempt)
        if self._files.age(path) > self._lease_s:
            return True
        return (key, attempt) not in self._mine and self._files.read(path) == self._owner.encode()

    def _path(self, key, attempt):
        return os.path.join(self._folder, f"{key}.{attempt}")
