/* Adds up one number of each rank on all ranks: mpicc -O2 -o allreduce allreduce.c */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int rank, size, length;
    char node[MPI_MAX_PROCESSOR_NAME];
    double mine, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(node, &length);
    mine = rank + 1;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d on %s: sum %.0f\n", rank, size, node, sum);
    MPI_Finalize();
    return sum == size * (size + 1) / 2.0 ? 0 : 1;
}
