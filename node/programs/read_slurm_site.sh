# Prints the configuration of a running Slurm site; headway.sdk.slurm_site.head parses it. Needs a POSIX shell, changes nothing,
# writes no file, and skips what is missing. Files that the user can't read are read with sudo -n. Secrets stay on the machine:
# values of passwords and keys are masked, and of scripts only the number of lines is sent, unless scripts=yes comes before.
# Scripts are *.lua, prolog and epilog, and each file that begins with #!.
# Each command has limit_s seconds, all together have all_s: what they do not say in time is a part that failed.
# Each part is a line "FILE BYTES PATH" with the text below it, or a line "FAIL PATH" with the reason in the next line.
LC_ALL=C
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin:/usr/local/slurm/bin
export LC_ALL PATH
began=$(date +%s)
limit() { # ends with 124 if the command takes too long
    left=$((began + ${all_s:-240} - $(date +%s)))
    [ "$left" -le "${limit_s:-60}" ] || left=${limit_s:-60}
    if [ "$left" -le 0 ]; then return 124; fi
    if command -v timeout >/dev/null 2>&1; then timeout "$left" "$@"; else "$@"; fi
}
reason() { # $1: code of a command, $2: what it said; prints why nothing was read
    if [ "$1" = 124 ]; then echo "no answer in time"; else printf '%s' "${2:-it printed nothing}" | tr '\n' ' ' | head -c 300; fi
}
have() { command -v "$1" >/dev/null 2>&1; }
text_of() { if [ -r "$1" ]; then cat "$1"; else sudo -n cat "$1"; fi; }
part() { # $1: path, text on standard input
    text=$(cat; printf x)
    text=${text%x}
    printf 'FILE %s %s\n' "$(printf '%s' "$text" | wc -c | tr -d ' ')" "$1"
    printf '%s\n' "$text"
}
fail() { printf 'FAIL %s\n%s\n' "$1" "$2"; }
mask() { # of options such as secretfile=, which name a file, the "=" is set aside in between
    aside=$(printf '\001')
    tr -d "$aside" | sed -E -e "s/([Ff][Ii][Ll][Ee]|[Pp][Aa][Tt][Hh])=/\\1$aside/g" \
        -e 's/([A-Za-z0-9_.-]*([Pp][Aa][Ss][Ss]|[Ss][Ee][Cc][Rr][Ee][Tt]|[Tt][Oo][Kk][Ee][Nn]|[Pp]rivate_?[Kk]ey)[A-Za-z0-9_.-]*[[:space:]]*=[[:space:]]*)("[^"]*"|[^[:space:],;]*)/\1(secret)/g' \
        -e 's/([Uu][Ss][Ee][Rr]([Nn][Aa][Mm][Ee])?=[^[:space:],;%]*%)[^[:space:],;]+/\1(secret)/g' \
        -e 's#(//[^[:space:]/:]*:)[^[:space:]/]*@#\1(secret)@#g' -e "s/$aside/=/g"
}
is_script() { # $1: file, $2: its text
    case $1 in *.lua) return 0 ;; esac
    case $2 in '#!'*) return 0 ;; esac
    for hook in $hooks; do
        if [ "$1" = "$hook" ] || [ "$1" -ef "$hook" ]; then return 0; fi
    done
    return 1
}
send() { # $1: file, $2: path to print
    if found=$(text_of "$1" 2>&1 | head -c 16000000) && [ -n "$found" ]; then
        case $found in
        "cat: "* | "sudo: "*) fail "$2" "${found%%
*}" ;;
        *)
            if ! is_script "$1" "$found"; then
                printf '%s\n' "$found" | mask
            elif [ "${scripts:-}" = yes ]; then
                printf '%s\n' "$found"
            else
                printf '%s\n' "$found" | sed -e '1s/.*/#!/' -e '2,$s/..*/x/'
            fi | part "$2"
            ;;
        esac
    fi
}

config=$(limit scontrol show config 2>&1)
controller=$?
conf=$(printf '%s\n' "$config" | sed -n 's/^SLURM_CONF *= *//p' | head -n 1)
for guess in "$conf" "$SLURM_CONF" /etc/slurm/slurm.conf /etc/slurm-llnl/slurm.conf /usr/local/etc/slurm.conf \
    /opt/slurm/etc/slurm.conf /usr/local/slurm/etc/slurm.conf /var/spool/slurmctld/slurm.conf; do
    if [ -n "$guess" ] && { [ -e "$guess" ] || sudo -n test -e "$guess" 2>/dev/null; }; then
        conf=$guess
        break
    fi
done
folder=${conf%/*}
[ -n "$folder" ] || folder=/etc/slurm
list() { find -L "$folder" -maxdepth 4 -type f -size -16000k "$@" 2>/dev/null; }
files=$(list \( -name '*.conf' -o -name '*.conf.*' -o -name '*.inc' -o -name '*.lua' -o -name 'topology.yaml' -o -name 'topology.yml' \) |
    grep -v -i -E 'key|\.pem$|~$|\.bak$|\.orig$|\.old$' | sort | head -n 2000)
[ -n "$files" ] || files=$conf
named() { # $1: pattern of a key; prints the files, and patterns of files, that it names
    for file in $files; do text_of "$file" 2>/dev/null; done |
        sed -n -E "/^[[:space:]]*$1\"?\\//{ s/^[[:space:]]*$1\"?//; s/[\"[:space:]].*//; p; }" | sort -u | head -n 500
}
hooks=$(named '(Task|Srun)?([Pp]rolog|[Ee]pilog)(Slurmctld)?[[:space:]]*=[[:space:]]*')
hooks=$(printf '%s\n' $hooks) # files of patterns
included=$(named '[Ii][Nn][Cc][Ll][Uu][Dd][Ee][[:space:]]+')
for file in $(printf '%s\n' $files $included $hooks | sort -u); do
    case $file in *[*?[]*) continue ;; esac # a pattern that matches nothing
    case $file in "$folder"/*) send "$file" "${file#"$folder"/}" ;; *) send "$file" "${file#/}" ;; esac
done

send /etc/fstab fstab
send /etc/nsswitch.conf nsswitch.conf
for file in /etc/lmod/modulespath /etc/environment-modules/modulespath /usr/share/lmod/lmod/init/.modulespath \
    /usr/share/Modules/init/.modulespath /etc/profile.d/*modul*.sh /etc/profile.d/*lmod*.sh; do
    case $file in
    *modulespath) text_of "$file" 2>/dev/null ;;
    *) text_of "$file" 2>/dev/null | sed -n -E 's/^[^#]*MODULEPATH=["'"'"']?([^"'"'"' ]*).*/\1/p' | tr ':' '\n' ;;
    esac
done | grep '^/' | sort -u | part modulespath
if have sacctmgr; then
    cluster=$(printf '%s\n' "$config" | sed -n 's/^ClusterName *= *//p' | head -n 1)
    [ -n "$cluster" ] || cluster=$(text_of "$conf" 2>/dev/null | sed -n -E 's/^[[:space:]]*[Cc]luster[Nn]ame[[:space:]]*=[[:space:]]*([^[:space:]]+).*/\1/p' | tail -n 1)
    qos=$(limit sacctmgr -P show qos 2>&1)
    accounting=$?
    [ "$accounting" != 124 ] || qos= # the part of a table may end within a value: it is not sent
    case $qos in
    *'Name|'*) printf '%s\n' "$qos" | sed -n '/^Name|/,$p' | part sacctmgr.qos ;;
    *) fail sacctmgr.qos "sacctmgr show qos: $(reason "$accounting" "$qos")" ;;
    esac
    if [ "$accounting" = 124 ]; then
        fail sacctmgr.dump "slurmdbd gives no answer in time: accounts are not read"
        fail passwd "slurmdbd gives no answer in time: users are not known"
        cluster=
    fi
    if [ -n "$cluster" ]; then
        # Only users that accounting knows may dump it.
        dump=$(limit sacctmgr -i dump "$cluster" File=/dev/stdout 2>/dev/null)
        code=$?
        if [ "$code" != 0 ] && [ "$code" != 124 ]; then
            dump=$(limit sudo -n env "PATH=$PATH" sacctmgr -i dump "$cluster" File=/dev/stdout 2>&1)
            code=$?
            dump=$(printf '%s\n' "$dump" | grep -v "^sacctmgr: .* - '")
        fi
        [ "$code" != 124 ] || dump=
        case $dump in
        *"Cluster - '"*) printf '%s\n' "$dump" | part sacctmgr.dump ;;
        *)
            fail sacctmgr.dump "sacctmgr dump $cluster: $(reason "$code" "$dump")"
            columns=cluster,account,user,partition,parentname,share,grpjobs,grptres,grpsubmit,grptresmins
            columns=$columns,maxjobs,maxtres,maxsubmit,maxwall,qos,defaultqos
            table=$(limit sacctmgr -P show assoc "format=$columns" 2>/dev/null) && printf '%s\n' "$table" | part sacctmgr.assoc
            ;;
        esac
    fi
    if [ "$accounting" != 124 ]; then
        users=$(limit sacctmgr -nP show user format=user 2>/dev/null)
        accounting=$?
        [ "$accounting" != 124 ] || fail passwd "sacctmgr show user: no answer in time"
        users=$(printf '%s\n' "$users" | head -n 20000)
    fi
    if [ "$accounting" != 124 ]; then
        # Names, uids and groups only: neither passwords nor full names
        people=$(printf '%s\n' $users | limit xargs -n 200 getent passwd 2>/dev/null)
        code=$?
        printf '%s\n' "$people" | awk -F: 'NF > 5 { print $1 ":x:" $3 ":" $4 "::" $6 ":" $7 }' | part passwd
        # Groups of these users, without other members
        gids=$(printf '%s\n' $users | limit xargs -n 1 id -G 2>/dev/null)
        [ "$?" != 124 ] || fail id "id gives no answer in time: some groups are not read"
        gids=$(printf '%s\n' $gids | sort -un | head -n 5000)
        printf '%s\n' $gids | limit xargs -n 200 getent group 2>/dev/null | awk -F: 'NF > 2 { print $1 ":x:" $3 ":" }' | part group
        [ "$code" != 124 ] || fail getent "getent passwd gives no answer in time: some uids are not read"
    fi
fi
if have scontrol; then
    limit scontrol --version 2>/dev/null | part slurm-version.txt
    if [ "$controller" = 0 ]; then
        held=$(limit scontrol --oneliner show reservation 2>&1)
        code=$?
        [ "$code" != 124 ] || held=
        case $held in
        *ReservationName=*) printf '%s\n' "$held" | grep '^ReservationName=' | part scontrol-reservations.txt ;;
        *) [ "$code" = 0 ] || fail scontrol-reservations.txt "scontrol show reservation: $(reason "$code" "$held")" ;;
        esac
        nodes=$(limit scontrol show nodes --json 2>/dev/null)
        code=$?
        [ "$code" != 124 ] || nodes=
        case $nodes in
        *'"nodes"'*) printf '%s\n' "$nodes" | part scontrol-nodes.json ;;
        *) [ "$code" != 124 ] || fail scontrol-nodes.json "scontrol show nodes: $(reason "$code" "")" ;; # old ones print no JSON
        esac
    else
        fail scontrol-reservations.txt "scontrol show config: $(reason "$controller" "$config")"
    fi
fi
printf 'END\n'
