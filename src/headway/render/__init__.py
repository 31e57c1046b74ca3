"""Renders the text of every file on every machine, as pure functions of a resolved cluster; one module per kind of
file. `headway.changes` compares the files with those on the machines, and `headway.cluster` writes them.

`files.render_files` returns all files, `system.unit_list.units_by_role` the systemd units that read them, and
`slurm.change_impact` what a changed slurm.conf restarts."""
