"""Saves and loads checkpoints of a training that may be killed at any moment, on any of its nodes."""

from __future__ import annotations

import os
import signal as signals
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headway_train import checkpoint_folder, checkpoint_formats
from headway_train.checkpoint_copies import VARIABLE, CheckpointCopies, own_target
from headway_train.checkpoint_folder import CheckpointError, CheckpointManifest
from headway_train.progress import saved
from headway_train.ranks import Flag, Ranks


class Checkpointer:
    """Saves and loads a training's state in one folder on shared storage.

    All ranks create it after init_process_group, and all call its methods at the same steps. `directory` defaults to
    $HEADWAY_CHECKPOINT_DIR, which a requeued job keeps. The newest `keep` checkpoints are kept. `signal` is the warning
    signal that the job requests (`#SBATCH --signal=USR1@120`); see `warned`. `copy_to`: s3://BUCKET/PREFIX or a folder to
    which each checkpoint is copied while the training goes on, and from which `load` fetches a newer one; it defaults to
    $HEADWAY_CHECKPOINT_COPY. Raises CheckpointError on all ranks in a job that has neither $HEADWAY_CHECKPOINT_DIR nor a
    scratch folder, and if nothing can be copied there."""

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        keep: int = 3,
        signal: str = "USR1",
        copy_to: str | None = None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, not {keep}")
        self._ranks = Ranks()
        # a separate process group, so that background writes do not mix with messages of `_ranks`
        self._beside = Ranks()
        # All ranks use rank 0's path: if the paths differed, for example by a symbolic link, the parts of a checkpoint
        # would be in different folders.
        self.directory, self._resumed_from = self._folder(directory)
        self._keep = keep
        self._copies: CheckpointCopies | None = None  # of rank 0
        self._copied = self._open_copies(copy_to)
        self._swept = False
        self._writing: threading.Thread | None = None
        self._failed: CheckpointError | None = None
        self._warned = Flag(self._ranks)
        _listen(signal, self._warned.raise_)

    def save(self, step: int, training: dict[str, Any], *, background: bool = False) -> None:
        """Writes the state after `step`: models, optimizers, any object with a state_dict, and plain values. An entry
        that is neither model nor optimizer and differs between ranks is saved for each rank.

        Returns when the checkpoint is published. With `background` it returns when the state is copied to main memory
        (one more copy of this rank's part), and the next `save`, `load` or `wait` waits for the write. Raises
        CheckpointError on all ranks if the write fails; with `background` that next call raises it. Earlier checkpoints
        stay unchanged."""
        began = time.monotonic()
        self._save(step, training, background=background)
        saved(time.monotonic() - began)

    def wait(self) -> None:
        """Waits until a background write is published, and the newest checkpoint copied. Raises CheckpointError on all
        ranks if either failed. Call it before the training ends."""
        self._wait_for_write()
        copies = self._copies
        if self._copied:
            self._ranks.together(copies.wait if copies is not None else lambda: None, only=0)

    def _wait_for_write(self) -> None:
        if self._writing is not None:
            self._writing.join()
            self._writing = None
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def latest(self) -> Path | None:
        """Returns the newest undamaged checkpoint, None if no checkpoint is undamaged. Prints a line on standard error for
        each damaged one that it skips."""
        found = self._newest()
        return found[0] if found else None

    def load(self, training: dict[str, Any]) -> int:
        """Reads the newest undamaged checkpoint into `training`, a dict with the entries that were saved. Returns its
        step, 0 if no checkpoint exists. If the number of ranks has changed, all ranks get rank 0's copy of the entries
        that were saved for each rank, and a line on standard error names them. Raises CheckpointError if the checkpoint
        does not fit, for example after a change of the model."""
        self._wait_for_write()
        self._fetch()
        found = self._newest()
        if found is None:
            if self._resumed_from:
                raise CheckpointError(
                    f"this job continues from {self._resumed_from}, but {self.directory} has no undamaged checkpoint"
                )
            return 0
        place, manifest = found
        try:
            self._ranks.together(lambda: checkpoint_formats.read_state(training, place, self._ranks, manifest))
        except CheckpointError as error:
            raise CheckpointError(f"{place} can't be loaded into this training: {error}") from None
        return manifest.step

    def warned(self) -> bool:
        """Returns True once, at the same step on all ranks, after one of them received the warning signal: the job will
        soon be preempted or reach its time limit. Call it at every step; it sends one message and does not wait."""
        return self._warned.seen()

    def _folder(self, given: str | Path | None) -> tuple[Path, str]:
        """Returns the folder, and the checkpoint there from which the job continues."""

        def choose() -> tuple[Path, str]:
            folder = Path(given) if given is not None else checkpoint_folder.default_folder()
            return folder, checkpoint_folder.resumed_from(folder)

        chosen = self._ranks.together(choose, only=0)[0]
        assert chosen is not None
        return chosen

    def _open_copies(self, given: str | None) -> bool:
        """Returns whether checkpoints are copied; rank 0 decides."""

        def choose() -> bool:
            target = given if given is not None else os.environ.get(VARIABLE, "")
            if target:
                target = own_target(target)
                self._copies = CheckpointCopies(target, self._keep)
            return bool(target)

        return bool(self._ranks.together(choose, only=0)[0])

    def _fetch(self) -> None:
        """Gets the newest checkpoint from its copy, where this folder does not have it: the training ran on another
        cluster, or scratch was lost."""

        def fetch() -> None:
            assert self._copies is not None
            place = self._copies.fetch(self.directory)
            if place is not None:
                print(f"checkpoint {place.name} is fetched from {self._copies.target}", file=sys.stderr, flush=True)

        if self._copied:
            self._ranks.together(fetch, only=0)

    # --- parts of `save`

    def _save(self, step: int, training: dict[str, Any], *, background: bool) -> None:
        self._wait_for_write()
        self._agree(step)
        captured = checkpoint_formats.hold_state(training, self._ranks)
        part = self._begin(step)
        if not background:
            self._finish(self._ranks, lambda: checkpoint_formats.write_state(captured, part, self._ranks), step, part)
            return
        finish: list[Callable[[], object]] = []
        self._ranks.together(lambda: finish.append(checkpoint_formats.write_beside(captured, part, self._beside)))
        self._writing = threading.Thread(target=self._in_background, args=(finish[0], step, part), name="checkpoint")
        self._writing.start()

    def _agree(self, step: int) -> None:
        steps = self._ranks.gather(step)
        if len(set(steps)) > 1:
            raise CheckpointError(
                f"the ranks are at different steps ({sorted(set(steps))}); all ranks must save the same step"
            )

    def _begin(self, step: int) -> Path:
        def begin() -> Path:
            # at the first save and not in __init__, so that a reader does not delete a running training's parts
            if not self._swept:
                checkpoint_folder.delete_incomplete(self.directory)
                self._swept = True
            return checkpoint_folder.begin_checkpoint(self.directory, step)

        part = self._ranks.together(begin, only=0)[0]
        assert part is not None
        return part

    def _in_background(self, finish: Callable[[], object], step: int, part: Path) -> None:
        try:
            self._finish(self._beside, finish, step, part)
        except CheckpointError as error:
            self._failed = error
        except Exception as error:  # raised by the next save or wait
            self._failed = CheckpointError(f"{type(error).__name__}: {error}")

    def _finish(self, ranks: Ranks, write: Callable[[], object], step: int, part: Path) -> None:
        """Writes the parts, verifies them on disk, publishes the checkpoint, and deletes the oldest."""

        def describe() -> dict[str, checkpoint_folder.CheckpointFile]:
            return {
                path.name: checkpoint_folder.describe_file(path)
                for path in part.iterdir()
                if _writer(path.name) == ranks.rank
            }

        def publish() -> Path:
            names = {name: entry for entries in described for name, entry in (entries or {}).items()}
            manifest = CheckpointManifest(step, checkpoint_folder.now(), ranks.size, checkpoint_formats.FORMAT, names)
            place = checkpoint_folder.publish_checkpoint(part, manifest)
            checkpoint_folder.prune_checkpoints(self.directory, self._keep, step)
            if self._copies is not None:
                self._copies.add(place)
            return place

        try:
            ranks.together(write)
            described = ranks.together(describe)
            ranks.together(publish, only=0)
        except CheckpointError as error:
            if ranks.rank == 0:
                checkpoint_folder.delete_incomplete(self.directory)
            raise CheckpointError(f"the checkpoint of step {step} could not be written: {error}") from None

    def _newest(self) -> tuple[Path, CheckpointManifest] | None:
        ranks = self._ranks
        for _, place in ranks.chosen(
            checkpoint_folder.published_checkpoints(self.directory) if ranks.rank == 0 else []
        ):
            manifest, wrong = ranks.chosen(_manifest(place) if ranks.rank == 0 else (None, ""))
            if manifest is not None:
                faults_by_rank = ranks.gather(
                    checkpoint_folder.faults(place, manifest, share=ranks.rank, of=ranks.size)
                )
                wrong = "; ".join(words for rank_faults in faults_by_rank for words in rank_faults[:2])
                if not wrong:
                    return place, manifest
            if ranks.rank == 0:
                print(f"checkpoint {place} is damaged, trying the previous one: {wrong}", file=sys.stderr, flush=True)
        return None


def _manifest(place: Path) -> tuple[CheckpointManifest | None, str]:
    try:
        return checkpoint_folder.read_manifest(place), ""
    except ValueError as error:
        return None, str(error)


def _writer(name: str) -> int:
    """Returns the rank that wrote a file: torch names them __RANK_NUMBER.distcp; common files are rank 0's."""
    first = name.removeprefix("__").partition("_")[0]
    return int(first) if name.startswith("__") and first.isdigit() else 0


def _listen(name: str, callback: Callable[..., None]) -> None:
    """Calls `callback` on the signal, and then the previous handler. Does nothing in other threads than the main thread,
    because Python can't set handlers there."""
    if threading.current_thread() is not threading.main_thread():
        return
    number = signals.Signals["SIG" + name.removeprefix("SIG")]
    before = signals.getsignal(number)

    def on_signal(got: int, frame: Any) -> None:
        callback()
        if callable(before):
            before(got, frame)

    signals.signal(number, on_signal)
