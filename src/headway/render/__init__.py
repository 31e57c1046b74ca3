"""The text of every file on every machine, as pure functions of a resolved cluster and its site; a module for each kind of file.

`files.render_files` has all of them, `system.unit_list.units_by_role` the systemd units that belong to them, and
`slurm.change_impact` says what a changed slurm.conf restarts.
"""
