#!/bin/bash
# GPU-hours of each user since the first of the month (or since the date given), most first, out of Slurm's accounting.
since=${1:-$(date +%Y-%m-01)}
sacct --allusers --allocations --noheader --parsable2 --starttime="$since" --format=User,ElapsedRaw,AllocTRES |
  awk -F '|' '
    { gpus = 0; n = split($3, tres, ","); for (i = 1; i <= n; i++) if (tres[i] ~ /^gres\/gpu=/) gpus = substr(tres[i], 10) }
    $1 != "" && gpus > 0 { hours[$1] += gpus * $2 / 3600 }
    END { for (user in hours) printf "%10.2f  %s\n", hours[user], user }' | sort --reverse --general-numeric-sort
