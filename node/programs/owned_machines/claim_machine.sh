# Claims a machine for a cluster and installs Python for the next steps. $1: the claim, one line of JSON; $2: "python3", or nothing
# for the host of a container, which needs none. Prints the claim that the machine has: this one, or an earlier one of another
# cluster. Needs a shell and, if Python is missing, apt.
LC_ALL=C
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL PATH
set -eu
umask 022
mkdir -p /etc/headway /var/lib/headway
# ln creates the complete file at once and fails if the machine has a claim.
mark=$(mktemp /etc/headway/held-by.XXXXXX)
printf '%s\n' "$1" >"$mark"
chmod 0644 "$mark"
ln "$mark" /etc/headway/held-by 2>/dev/null || true
rm -f "$mark"
cat /etc/headway/held-by
[ -n "${2:-}" ] || exit 0
command -v python3 >/dev/null 2>&1 && exit 0
command -v apt-get >/dev/null 2>&1 || { echo "there is neither python3 nor apt-get" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
{
    # Another program may hold dpkg's lock: an upgrade, or an installation of an apply that was killed.
    tries=0
    until dpkg --configure -a; do
        tries=$((tries + 1))
        [ $tries -lt 60 ] || exit 1
        sleep 5
    done
    apt-get -q -o DPkg::Lock::Timeout=600 update
    apt-get -q -o DPkg::Lock::Timeout=600 install --yes --no-install-recommends python3
} >&2
