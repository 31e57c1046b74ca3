"""Renders the text of every file on every machine, as pure functions of a resolved cluster and its site; one module per
kind of file.

`files.render_files` returns all of them, `system.unit_list.units_by_role` the systemd units that read them, and
`slurm.change_impact` tells what a changed slurm.conf restarts."""
