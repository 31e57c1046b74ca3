# Written by Headway from the cluster file; changes made here are lost.
# Modules of this cluster; `module avail` lists them.
case ":${MODULEPATH:-}:" in
    *:/environments/.modules:*) ;;
    *) export MODULEPATH="/environments/.modules:/opt/modulefiles${MODULEPATH:+:$MODULEPATH}" ;;
esac
