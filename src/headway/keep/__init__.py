"""What must outlive a machine: backups and coming back from them, keys that change, volumes measured."""
