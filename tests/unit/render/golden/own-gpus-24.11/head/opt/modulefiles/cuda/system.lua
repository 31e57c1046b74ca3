-- Written by Headway from the cluster file; changes made here are lost.
help([[The CUDA toolkit that this machine has in /usr/local/cuda.]])
whatis("Name: cuda")
whatis("Description: The CUDA toolkit that this machine has in /usr/local/cuda.")
if mode() == "load" and not isDir("/usr/local/cuda") then
    LmodError("this machine has no CUDA toolkit in /usr/local/cuda: use a container image or pip packages that bring CUDA")
end
setenv("CUDA_HOME", "/usr/local/cuda")
prepend_path("PATH", "/usr/local/cuda/bin")
prepend_path("LD_LIBRARY_PATH", "/usr/local/cuda/lib64")
