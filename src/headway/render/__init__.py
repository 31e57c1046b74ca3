"""Renders the text of every file on every machine, as pure functions of a resolved cluster; one module per kind of
file. `files.render_files` returns all files, `system.unit_list.units_by_role` the systemd units that read them, and
`slurm.change_impact` what a changed slurm.conf restarts.

Not here: the comparison with the files of machines (`headway.changes`), their writing (`headway.cluster`)."""
