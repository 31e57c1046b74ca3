"""Runs sbatch as the user, with the script in a temporary file."""

import os
import sys

from user_helper import bundles, idempotency, identity, login_environment


def sbatch(request):
    """Runs sbatch as the user and exits with its exit code. The script keeps its file name, because sbatch names the job
    after it, and lies in a folder that only the user can read. The folder is deleted when sbatch has ended: slurmctld
    then has its own copy."""
    entry = identity.user_entry(request["user"])
    identity.must_be_current(entry)
    text = sys.stdin.buffer.read() if request["has_script"] else b""
    env = login_environment.login_environment(entry)
    words, folder = ["sbatch", *request["args"]], ""
    if request["has_script"]:
        folder = f"/tmp/headway-{os.urandom(8).hex()}"
        os.mkdir(folder, 0o700)
        path = os.path.join(folder, request["script_name"])
        with open(path, "xb") as file:
            file.write(text)
        os.chmod(path, 0o700)
        for name in (path, folder):
            os.chown(name, entry.pw_uid, entry.pw_gid)
        words += [path, *request["script_args"]]

    def work():
        identity.apply_limits(entry)
        identity.become_user(entry)
        if request.get("stage"):
            bundles.stage_bundle(request["stage"])
        identity.enter_folder(entry, request["cwd"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if request.get("tag"):
            os._exit(idempotency.run_once(request["tag"], run))
        run()

    def run():
        given = {**env, **request.get("env", {}), "PWD": os.environ["PWD"]}
        given.pop("SBATCH_WAIT", None)  # it would block the request until the job ends
        os.execvpe(words[0], words, given)

    code = identity.in_child(work)
    if folder:
        remove(entry, folder)  # drops root, so it is the last action of this process
    sys.exit(code)


def remove(entry, folder):
    """Deletes the script's folder. Runs as the user, who may have replaced the folder by a link. Other content than plain
    files remains until /tmp is cleaned."""
    identity.become_user(entry)
    try:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
    except OSError:
        pass
