# Prints the state of a running Slurm cluster, to compare two of them; headway.sdk.slurm_site parses it. Needs a POSIX shell,
# changes nothing, and skips what is missing. Values of passwords and keys are masked.
# Each part is a line "FILE BYTES PATH" with the text below it, or a line "FAIL PATH" with the reason in the next line.
LC_ALL=C
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin:/usr/local/slurm/bin
export LC_ALL PATH
limit() { if command -v timeout >/dev/null 2>&1; then timeout 60 "$@"; else "$@"; fi; }
mask() { # of options such as secretfile=, which name a file, the "=" is set aside in between
    aside=$(printf '\001')
    tr -d "$aside" | sed -E -e "s/([Ff][Ii][Ll][Ee]|[Pp][Aa][Tt][Hh])=/\\1$aside/g" \
        -e 's/([A-Za-z0-9_.-]*([Pp][Aa][Ss][Ss]|[Ss][Ee][Cc][Rr][Ee][Tt]|[Tt][Oo][Kk][Ee][Nn]|[Pp]rivate_?[Kk]ey)[A-Za-z0-9_.-]*[[:space:]]*=[[:space:]]*)("[^"]*"|[^[:space:],;]*)/\1(secret)/g' \
        -e 's/([Uu][Ss][Ee][Rr]([Nn][Aa][Mm][Ee])?=[^[:space:],;%]*%)[^[:space:],;]+/\1(secret)/g' \
        -e 's#(//[^[:space:]/:]*:)[^[:space:]/]*@#\1(secret)@#g' -e "s/$aside/=/g"
}
ask() { # $1: path to print, then a command
    path=$1
    shift
    # What a user may not see, root may.
    if text=$(limit "$@" 2>&1) || text=$(limit sudo -n env "PATH=$PATH" "$@" 2>&1); then
        text=$(printf '%s\n' "$text" | mask)
        printf 'FILE %s %s\n%s\n' "$(printf '%s' "$text" | wc -c | tr -d ' ')" "$path" "$text"
    else
        printf 'FAIL %s\n%s\n' "$path" "$(printf '%s' "${text:-no answer within 60 s}" | tr '\n' ' ' | head -c 500)"
    fi
}

config=$(limit scontrol show config 2>/dev/null)
cluster=$(printf '%s\n' "$config" | sed -n 's/^ClusterName *= *//p' | head -n 1)
conf=$(printf '%s\n' "$config" | sed -n 's/^SLURM_CONF *= *//p' | head -n 1)
ask scontrol-config.txt scontrol show config
ask scontrol-partitions.txt scontrol -a -o show partition
ask scontrol-nodes.txt scontrol -a -o show node
ask sacctmgr-assoc.txt sacctmgr -P show assoc "cluster=$cluster" format=cluster,account,user,partition,parentname,share,grpjobs,grptres,grpsubmit,grptresmins,maxjobs,maxsubmit,qos,defaultqos
ask sacctmgr-qos.txt sacctmgr -P show qos
ask sshare.txt sshare -nP -a -o account,user,normshares
# Names and uids only
ask users.txt sh -c 'sacctmgr -nP show user format=user | head -n 20000 | xargs -n 200 getent passwd | cut -d : -f 1,3'
[ -z "$conf" ] || ask slurm.conf cat "$conf"
for name in cgroup.conf mpi.conf; do
    [ ! -e "${conf%/*}/$name" ] || ask "$name" cat "${conf%/*}/$name"
done
printf 'END\n'
