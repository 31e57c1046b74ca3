#!/bin/sh
# Runs on the building host before the lists of packages are removed: mmdebstrap calls it (images/build.py). $1: the root folder of
# the image. Writes which state of Debian the image is made from: a line with codename, SHA-256 and date of each InRelease file.
set -eu
umask 022
mkdir -p "$1/usr/lib/headway"
for file in "$1"/var/lib/apt/lists/*_InRelease "$1"/var/lib/apt/lists/*_Release; do
    [ -f "$file" ] || continue
    name=$(sed -n 's/^Codename: *//p' "$file" | head -n 1)
    made=$(date --utc --date "$(sed -n 's/^Date: *//p' "$file" | head -n 1)" +%Y-%m-%dT%H:%M:%SZ)
    echo "$name $(sha256sum <"$file" | cut -d ' ' -f 1) $made"
done | sort >"$1/usr/lib/headway/debian-releases"
