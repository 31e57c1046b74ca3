# Prints the jobs of the last days from the accounting of a Slurm site; headway.sdk.slurm_site.head parses it. $days is set in
# a line before this program. Needs a POSIX shell, changes nothing.
LC_ALL=C
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin:/usr/local/slurm/bin
SLURM_TIME_FORMAT=%s
export LC_ALL PATH SLURM_TIME_FORMAT
columns=JobID,User,Account,Partition,Submit,Start,ElapsedRaw,TimelimitRaw,NNodes,ReqCPUS,ReqTRES,State
limit() { if command -v timeout >/dev/null 2>&1; then timeout 200 "$@"; else "$@"; fi; }
ask() { limit sacct -a -X -P -S "now-${days}days" -E now -o "$columns" 2>&1; }
# What a user may not see, root may.
if [ "$(id -u)" = 0 ] || ! sudo -n true 2>/dev/null; then
    text=$(ask)
else
    text=$(limit sudo -n env "PATH=$PATH" SLURM_TIME_FORMAT=%s sacct -a -X -P -S "now-${days}days" -E now -o "$columns" 2>&1)
fi
if [ "${text%%|*}" = JobID ]; then
    printf 'FILE %s sacct.txt\n%s\n' "$(printf '%s' "$text" | wc -c | tr -d ' ')" "$text"
else
    printf 'FAIL sacct.txt\n%s\n' "$(printf '%s' "${text:-no answer within 200 s}" | tr '\n' ' ' | head -c 500)"
fi
printf 'END\n'
