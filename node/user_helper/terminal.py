"""Runs a command on a pseudo-terminal as a user: keys and sizes come in frames on standard input, output goes out unchanged.

A frame is a kind (one byte), a length (two bytes, big endian) and that many bytes:
  d  keys, which the command reads
  s  the terminal's new size: rows and columns, two bytes each"""

import fcntl
import os
import select
import signal
import struct
import termios

from user_helper import commands, identity

CHUNK = 64 * 1024
MOST_WAITING = 256 * 1024  # bytes that wait in one direction; while there are more, no further ones are read
GRACE_S = 5  # from SIGHUP to SIGKILL
HEAD = struct.Struct("!cH")
IUTF8 = 0o40000  # the terminal erases whole UTF-8 characters; the module termios has no name for it


def terminal(request):
    """Runs the command until it ends, until standard input ends, or until SIGTERM, and exits with its exit code."""
    identity.mark = "\0refused\0"
    if request["user"] != "root":
        identity.must_be_current(identity.user_entry(request["user"]))
    wake_pipe = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.close(wake_pipe[1]))
    # The child is ended with it, also before the child has given it its usual effect.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    master, slave = os.openpty()
    set_size(master, request["rows"], request["columns"])
    attributes = termios.tcgetattr(slave)
    attributes[0] |= IUTF8
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        if request["user"] != "root":  # so that programs can open the terminal by its name
            os.fchown(slave, identity.user_entry(request["user"]).pw_uid, -1)
        for number in (0, 1, 2):
            os.dup2(slave, number)
        os.closerange(3, 256)
        commands.start_command(request)
    os.close(slave)
    relay(master, os.pidfd_open(child), wake_pipe[0])
    os.close(master)  # processes that read from the terminal learn that it is gone
    end_session(child)
    os._exit(identity.end_of(child))


def relay(master, ended, wake):
    """Copies keys and output until the command has ended and its output is read, until standard input ends, the output is no
    longer read, or `wake` is closed."""
    for number in (0, 1, master):
        os.set_blocking(number, False)
    frames, keys, output = bytearray(), bytearray(), bytearray()
    reads_master = True
    while True:
        poll = select.poll()
        poll.register(wake, 0)
        poll.register(1, select.POLLOUT if output else 0)
        if reads_master:
            room = select.POLLIN if len(output) < MOST_WAITING else 0
            poll.register(master, room | (select.POLLOUT if keys else 0))
            poll.register(ended, select.POLLIN)
            if len(keys) < MOST_WAITING:
                poll.register(0, select.POLLIN)
        elif not output:
            return
        events = dict(poll.poll())
        if wake in events or events.get(1, 0) & (select.POLLERR | select.POLLHUP):
            return
        if 0 in events:
            got = read_some(0)
            if got == b"":
                return
            frames += got or b""
            if not take_frames(frames, keys, master):
                return
        if keys and events.get(master, 0) & select.POLLOUT:
            write_some(master, keys)
        if reads_master and (events.get(master, 0) & ~select.POLLOUT or ended in events):
            got = read_some(master)
            output += got or b""
            # Without a process that has the terminal open, reading fails. One that stays in the background must not keep a
            # terminal open whose command has ended.
            reads_master = not (got == b"" or (got is None and ended in events))
        if output and events.get(1, 0) & select.POLLOUT:
            write_some(1, output)


def take_frames(frames, keys, master):
    """Moves the keys of whole frames to `keys` and applies sizes. Returns False for something that is no frame."""
    while len(frames) >= HEAD.size:
        kind, length = HEAD.unpack_from(frames)
        if kind not in (b"d", b"s") or (kind == b"s" and length != 4):
            return False
        if len(frames) < HEAD.size + length:
            break
        body = bytes(frames[HEAD.size : HEAD.size + length])
        del frames[: HEAD.size + length]
        if kind == b"d":
            keys += body
        else:
            set_size(master, *struct.unpack("!HH", body))
    return True


def set_size(master, rows, columns):
    """Sets the terminal's size; the kernel tells the command with SIGWINCH."""
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def read_some(number):
    """Returns bytes, b"" at the end, or None if there are none at the moment."""
    try:
        return os.read(number, CHUNK)
    except BlockingIOError:
        return None
    except OSError:  # a terminal that no process has open
        return b""


def write_some(number, data):
    """Writes as much as there is room for, and removes it from `data`."""
    try:
        del data[: os.write(number, data[:CHUNK])]
    except BlockingIOError:
        pass
    except OSError:
        data.clear()


def end_session(child):
    """Ends the command and what it started in its session: SIGHUP as when a terminal closes, then SIGKILL."""
    ended = os.pidfd_open(child)
    for last_word in (signal.SIGHUP, signal.SIGKILL):
        try:
            os.killpg(child, last_word)
        except ProcessLookupError:  # it has no session yet
            os.kill(child, last_word)
        if select.select([ended], [], [], GRACE_S)[0]:
            return
