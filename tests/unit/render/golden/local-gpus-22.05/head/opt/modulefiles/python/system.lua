-- Written by Headway from the cluster file; changes made here are lost.
help([[The Python of this machine, with venv, pip, NumPy and PyTorch.]])
whatis("Name: python")
whatis("Description: The Python of this machine, with venv, pip, NumPy and PyTorch.")
setenv("PYTHON", "/usr/bin/python3")
