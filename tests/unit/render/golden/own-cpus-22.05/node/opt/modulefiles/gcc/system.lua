-- Written by Headway from the cluster file; changes made here are lost.
help([[GCC of this machine: gcc, g++, gfortran.]])
whatis("Name: gcc")
whatis("Description: GCC of this machine: gcc, g++, gfortran.")
family("compiler")
setenv("CC", "gcc")
setenv("CXX", "g++")
setenv("FC", "gfortran")
