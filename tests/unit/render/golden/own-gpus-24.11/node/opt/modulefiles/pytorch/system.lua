-- Written by Headway from the cluster file; changes made here are lost.
help([[The PyTorch of this machine: python3 and torchrun.]])
whatis("Name: pytorch")
whatis("Description: The PyTorch of this machine: python3 and torchrun.")
family("framework")
setenv("HEADWAY_MODULE_PYTORCH", "system")
