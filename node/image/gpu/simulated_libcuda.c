/* A stand-in for the CUDA driver (libcuda) on machines whose GPUs are SIMULATED: the functions that the node tests call, with
 * the same signatures. GPU memory is main memory, and the kernels of node/agent/node_tests/kernels.py, found by their names,
 * run on the CPU. It is loaded by its path only and never takes libcuda's name: no other program may find a driver here.
 *
 * There is one device for each /dev/nvidiaN. Faults that `headway fault` injects are files in /run/headway/faults:
 * gpuN-bad-memory (bit 10 of a word reads as 1) and gpuN-bad-compute (one multiprocessor computes another result).
 * HEADWAY_SIMULATED_DEVICES and HEADWAY_SIMULATED_FAULTS name other folders, for tests. */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_PTX = 218,
    NOT_FOUND = 500, PEER_ALREADY_ENABLED = 704
};
enum { MOST_DEVICES = 64, MULTIPROCESSORS = 2, LANES = 32, SETS = 8, STUCK_BIT = 10, STUCK_WORD = 4099 };
static const size_t MEMORY = 48 << 20; /* bytes of each simulated GPU: a test of it takes milliseconds */

typedef struct { int minor, peers[MOST_DEVICES]; size_t used; } Device;

typedef struct Block { struct Block *next; uint64_t address; size_t size; Device *device; } Block;

static Device devices[MOST_DEVICES];
static int count;
static _Thread_local Device *current;
static Block *blocks;

static const char *folder(const char *variable, const char *otherwise)
{
    const char *given = getenv(variable);
    return given ? given : otherwise;
}

/* Returns whether the fault was injected into the current GPU. */
static int has_fault(const char *kind)
{
    char path[512];
    snprintf(path, sizeof path, "%s/gpu%d-%s", folder("HEADWAY_SIMULATED_FAULTS", "/run/headway/faults"), current->minor, kind);
    return access(path, F_OK) == 0;
}

int cuInit(unsigned flags)
{
    (void)flags;
    count = 0;
    for (int minor = 0; minor < MOST_DEVICES; minor++) {
        char path[512];
        snprintf(path, sizeof path, "%s/nvidia%d", folder("HEADWAY_SIMULATED_DEVICES", "/dev"), minor);
        if (access(path, F_OK) == 0) {
            memset(&devices[count], 0, sizeof devices[count]);
            devices[count++].minor = minor;
        }
    }
    return count ? SUCCESS : NO_DEVICE;
}

int cuGetErrorName(int code, const char **name)
{
    *name = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : code == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE"
        : code == INVALID_PTX ? "CUDA_ERROR_INVALID_PTX" : code == NOT_FOUND ? "CUDA_ERROR_NOT_FOUND" : "CUDA_ERROR_INVALID_VALUE";
    return SUCCESS;
}

int cuGetErrorString(int code, const char **text)
{
    *text = code == OUT_OF_MEMORY ? "out of memory" : code == NO_DEVICE ? "no GPU is simulated here" : "refused by the simulation";
    return SUCCESS;
}

int cuDeviceGetCount(int *found) { *found = count; return SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal < count ? SUCCESS : INVALID_DEVICE; }

int cuDeviceGetName(char *name, int size, int device)
{
    (void)device;
    snprintf(name, (size_t)size, "SIMULATED GPU");
    return SUCCESS;
}

int cuDeviceGetPCIBusId(char *text, int size, int device)
{
    snprintf(text, (size_t)size, "0000:%02X:00.0", (0x19 + 0x11 * devices[device].minor) & 0xFF);
    return SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 16 ? MULTIPROCESSORS : attribute == 75 ? 9 : 0; /* compute capability 9.0 */
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &devices[device]; return SUCCESS; }
int cuCtxSetCurrent(void *context) { current = context; return SUCCESS; }

int cuDeviceCanAccessPeer(int *can, int device, int peer) { *can = device != peer; return SUCCESS; }

int cuCtxEnablePeerAccess(void *peer, unsigned flags)
{
    int number = (int)((Device *)peer - devices);
    (void)flags;
    if (current->peers[number]) return PEER_ALREADY_ENABLED;
    current->peers[number] = 1;
    return SUCCESS;
}

int cuMemGetInfo_v2(size_t *left, size_t *total) { *left = MEMORY - current->used; *total = MEMORY; return SUCCESS; }

int cuMemAlloc_v2(uint64_t *address, size_t size)
{
    Block *block = malloc(sizeof *block);
    void *memory = current->used + size <= MEMORY ? malloc(size) : NULL;
    if (!block || !memory) { free(block); free(memory); return OUT_OF_MEMORY; }
    *block = (Block){ blocks, *address = (uint64_t)(uintptr_t)memory, size, current };
    blocks = block;
    current->used += size;
    return SUCCESS;
}

int cuMemFree_v2(uint64_t address)
{
    for (Block **at = &blocks; *at; at = &(*at)->next)
        if ((*at)->address == address) {
            Block *block = *at;
            *at = block->next;
            block->device->used -= block->size;
            free((void *)(uintptr_t)address);
            free(block);
            return SUCCESS;
        }
    return INVALID_VALUE;
}

int cuMemAllocHost_v2(void **memory, size_t size) { *memory = malloc(size); return *memory ? SUCCESS : OUT_OF_MEMORY; }
int cuMemFreeHost(void *memory) { free(memory); return SUCCESS; }

static int copy(void *target, const void *source, size_t size) { memcpy(target, source, size); return SUCCESS; }
static void *at(uint64_t address) { return (void *)(uintptr_t)address; }

int cuMemcpyHtoD_v2(uint64_t target, const void *source, size_t size) { return copy(at(target), source, size); }
int cuMemcpyDtoH_v2(void *target, uint64_t source, size_t size) { return copy(target, at(source), size); }
int cuMemcpyHtoDAsync_v2(uint64_t target, const void *source, size_t size, void *stream) { (void)stream; return copy(at(target), source, size); }
int cuMemcpyDtoHAsync_v2(void *target, uint64_t source, size_t size, void *stream) { (void)stream; return copy(target, at(source), size); }
int cuMemcpyDtoDAsync_v2(uint64_t target, uint64_t source, size_t size, void *stream) { (void)stream; return copy(at(target), at(source), size); }

int cuMemcpyPeerAsync(uint64_t target, void *to, uint64_t source, void *from, size_t size, void *stream)
{
    (void)to, (void)from, (void)stream;
    return copy(at(target), at(source), size);
}

int cuMemsetD32Async(uint64_t target, unsigned value, size_t words, void *stream)
{
    (void)stream;
    for (size_t i = 0; i < words; i++) ((uint32_t *)at(target))[i] = value;
    return SUCCESS;
}

int cuStreamCreate(void **stream, unsigned flags) { (void)flags; *stream = current; return SUCCESS; }
int cuStreamSynchronize(void *stream) { (void)stream; return SUCCESS; }

int cuEventCreate(void **event, unsigned flags) { (void)flags; *event = calloc(1, sizeof(struct timespec)); return *event ? SUCCESS : OUT_OF_MEMORY; }
int cuEventRecord(void *event, void *stream) { (void)stream; clock_gettime(CLOCK_MONOTONIC, event); return SUCCESS; }
int cuEventSynchronize(void *event) { (void)event; return SUCCESS; }
int cuEventDestroy_v2(void *event) { free(event); return SUCCESS; }

int cuEventElapsedTime(float *ms, void *first, void *last)
{
    struct timespec *a = first, *b = last;
    *ms = (float)((double)(b->tv_sec - a->tv_sec) * 1e3 + (double)(b->tv_nsec - a->tv_nsec) / 1e6);
    return SUCCESS;
}

int cuModuleLoadDataEx(void **module, const char *ptx, unsigned options, int *names, void **values)
{
    if (strncmp(ptx, ".version ", 9) != 0) {
        for (unsigned i = 0; i < options; i++)
            if (names[i] == 5) snprintf(values[i], 64, "the text does not start with .version");
        return INVALID_PTX;
    }
    *module = (void *)ptx;
    return SUCCESS;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    static const char *const known[] = { "fill", "check", "burn_tensor", "burn_fma" };
    (void)module;
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i], name) == 0) {
            *function = (void *)known[i];
            return SUCCESS;
        }
    return NOT_FOUND;
}

/* --- the kernels */

static uint32_t next_random(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

static void fill(uint32_t *data, uint64_t words, uint32_t pattern, uint32_t factor)
{
    for (uint64_t i = 0; i < words; i++) data[i] = ((uint32_t)i * factor) ^ pattern;
    if (words > STUCK_WORD && has_fault("bad-memory")) data[STUCK_WORD] |= 1u << STUCK_BIT;
}

static void check(const uint32_t *data, uint64_t words, uint32_t pattern, uint32_t factor, uint64_t *result)
{
    for (uint64_t i = 0; i < words; i++) {
        uint32_t wrong = data[i] ^ ((uint32_t)i * factor) ^ pattern;
        if (!wrong) continue;
        result[0]++;
        if (i < result[1]) result[1] = i;
        result[2] |= wrong;
    }
}

static float as_float(uint32_t bits) { float value; memcpy(&value, &bits, sizeof value); return value; }

static uint32_t fold(uint32_t digest, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (digest ^ bits) * 16777619u;
}

static uint32_t next_bf16_pair(uint32_t *state)
{
    uint32_t bits = next_random(state);
    return ((bits ^ bits >> 7) & 0x807F807Fu) | 0x3F003F00u;
}

static float half_of(uint32_t pair, int high) { return as_float(high ? pair & 0xFFFF0000u : pair << 16); }

/* D += A * B for one 16x8 tile of 16x16 by 16x8, in the register layout that the PTX ISA gives for mma.m16n8k16. */
static void multiply(float d[LANES][4], uint32_t a[LANES][4], uint32_t b[LANES][2])
{
    float left[16][16], right[16][8];
    for (int lane = 0; lane < LANES; lane++) {
        int group = lane / 4, pair = lane % 4 * 2;
        for (int high = 0; high < 2; high++) {
            for (int part = 0; part < 4; part++)
                left[group + part % 2 * 8][pair + high + part / 2 * 8] = half_of(a[lane][part], high);
            for (int part = 0; part < 2; part++) right[pair + high + part * 8][group] = half_of(b[lane][part], high);
        }
    }
    for (int lane = 0; lane < LANES; lane++)
        for (int part = 0; part < 4; part++) {
            int row = lane / 4 + part / 2 * 8, column = lane % 4 * 2 + part % 2;
            for (int k = 0; k < 16; k++) d[lane][part] = fmaf(left[row][k], right[k][column], d[lane][part]);
        }
}

/* Writes the digests of one warp. */
static void burn_tensor(uint32_t *digests, uint32_t rounds, uint32_t seed)
{
    static _Thread_local float d[SETS][LANES][4];
    static _Thread_local uint32_t a[SETS][LANES][4], b[LANES][2];
    memset(d, 0, sizeof d);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t state = lane * 747796405u + seed;
        for (int number = 0; number < 4 * SETS; number++) a[number / 4][lane][number % 4] = next_bf16_pair(&state);
        for (int number = 0; number < 2; number++) b[lane][number] = next_bf16_pair(&state);
    }
    while (rounds--) {
        for (int set = 0; set < SETS; set++) multiply(d[set], a[set], b);
        uint32_t mask = next_random(&seed) & 0x807F807Fu;
        for (int lane = 0; lane < LANES; lane++) {
            b[lane][0] ^= mask;
            b[lane][1] ^= mask << 16 | mask >> 16;
        }
    }
    for (int lane = 0; lane < LANES; lane++) {
        digests[lane] = 2166136261u;
        for (int number = 0; number < 4 * SETS; number++) digests[lane] = fold(digests[lane], d[number / 4][lane][number % 4]);
    }
}

static void burn_fma(uint32_t *digests, uint32_t rounds, uint32_t seed)
{
    float factor = as_float((seed & 0x007FFFFFu) | 0x3F000000u), term = as_float(0x3E99999Au);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t state = lane * 747796405u + seed;
        float values[SETS];
        for (int set = 0; set < SETS; set++) values[set] = as_float((next_random(&state) & 0x007FFFFFu) | 0x3F800000u);
        for (uint32_t round = 0; round < rounds; round++)
            for (int set = 0; set < SETS; set++) values[set] = fmaf(values[set], factor, term);
        digests[lane] = 2166136261u;
        for (int set = 0; set < SETS; set++) digests[lane] = fold(digests[lane], values[set]);
    }
}

/* One warp is computed; the others of a GPU would compute the same. */
static void burn(void (*warp)(uint32_t *, uint32_t, uint32_t), unsigned warps, uint32_t *digests, uint32_t *places,
                 uint32_t rounds, uint32_t seed)
{
    int bad = has_fault("bad-compute");
    warp(digests, rounds, seed);
    for (unsigned number = 0; number < warps; number++) {
        places[number] = number % MULTIPROCESSORS;
        if (number) memcpy(digests + number * LANES, digests, LANES * sizeof *digests);
    }
    for (unsigned number = 1; bad && number < warps; number += MULTIPROCESSORS * 2) digests[number * LANES] ^= 1;
}

#define ARGUMENT(type, number) (*(type *)arguments[number])

int cuLaunchKernel(const char *name, unsigned grid, unsigned y, unsigned z, unsigned threads, unsigned ty, unsigned tz,
                   unsigned shared, void *stream, void **arguments, void **extra)
{
    (void)y, (void)z, (void)ty, (void)tz, (void)shared, (void)stream, (void)extra;
    uint32_t *data = at(ARGUMENT(uint64_t, 0));
    if (strcmp(name, "fill") == 0)
        fill(data, ARGUMENT(uint64_t, 1), ARGUMENT(uint32_t, 2), ARGUMENT(uint32_t, 3));
    else if (strcmp(name, "check") == 0)
        check(data, ARGUMENT(uint64_t, 1), ARGUMENT(uint32_t, 2), ARGUMENT(uint32_t, 3), at(ARGUMENT(uint64_t, 4)));
    else
        burn(strcmp(name, "burn_fma") == 0 ? burn_fma : burn_tensor, grid * threads / LANES, data, at(ARGUMENT(uint64_t, 1)),
             ARGUMENT(uint32_t, 2), ARGUMENT(uint32_t, 3));
    return SUCCESS;
}
