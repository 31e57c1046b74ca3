-- Written by Headway from the cluster file; changes made here are lost.
help([[The PyTorch of the node image: python3 and torchrun.]])
whatis("Name: pytorch")
family("framework")
setenv("HEADWAY_MODULE_PYTORCH", "system")
