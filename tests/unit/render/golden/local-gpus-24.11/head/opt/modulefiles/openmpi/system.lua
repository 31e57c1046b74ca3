-- Written by Headway from the cluster file; changes made here are lost.
help([[Open MPI of this machine: mpicc, mpicxx, mpifort, mpirun; srun starts its programs too.]])
whatis("Name: openmpi")
whatis("Description: Open MPI of this machine: mpicc, mpicxx, mpifort, mpirun; srun starts its programs too.")
family("mpi")
setenv("MPICC", "mpicc")
setenv("MPICXX", "mpicxx")
setenv("MPIFC", "mpifort")
