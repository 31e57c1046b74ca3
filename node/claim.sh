# Marks a machine as a cluster's, and gives it what the next steps need. $1: the mark, one line of JSON. Prints the mark that is
# there: ours, or that of the first to write it. Needs a shell and, where Python is missing, apt.
LC_ALL=C
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL PATH
set -eu
umask 022
mkdir -p /etc/headway /var/lib/headway
# Whole or not at all, and never over another's.
mark=$(mktemp /etc/headway/held-by.XXXXXX)
printf '%s\n' "$1" >"$mark"
chmod 0644 "$mark"
ln "$mark" /etc/headway/held-by 2>/dev/null || true
rm -f "$mark"
cat /etc/headway/held-by
command -v python3 >/dev/null 2>&1 && exit 0
command -v apt-get >/dev/null 2>&1 || { echo "there is neither python3 nor apt-get" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
{
    # Another program may be installing: an upgrade, or what a killed apply left.
    tries=0
    until dpkg --configure -a; do
        tries=$((tries + 1))
        [ $tries -lt 60 ] || exit 1
        sleep 5
    done
    apt-get -q -o DPkg::Lock::Timeout=600 update
    apt-get -q -o DPkg::Lock::Timeout=600 install --yes --no-install-recommends python3
} >&2
