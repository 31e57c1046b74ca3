"""Rules across fields of a cluster file. Rules of one field are in the models, those of node groups in `groups`."""
