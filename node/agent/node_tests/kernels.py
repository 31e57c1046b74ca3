"""The GPU programs of the node tests as PTX, which the driver compiles for its GPU. They need no CUDA toolkit.

fill      writes word i of a block: (i * factor) XOR pattern, all in 32 bits. Factor 0 writes the same pattern everywhere;
          an odd factor gives each word its own value, so that a faulty address line shows.
check     compares a block with what `fill` wrote. Adds the number of wrong words to result[0], lowers result[1] to the first
          wrong index, and collects the wrong bits in result[2] (three 64-bit words).
burn_*    each warp does the same arithmetic `rounds` times and writes one 32-bit digest per lane and the number of its
          multiprocessor. All warps of all GPUs of one type must have equal digests, bit for bit.

burn_tensor multiplies bfloat16 matrices in tensor cores: per round and warp eight products of 16x16 with 16x8, 2*16*8*16
floating point operations each (PTX ISA, mma.sync.aligned.m16n8k16). It needs compute capability 8.0. burn_fma, for older
GPUs, does eight fused multiply-adds in float32 per round and lane."""

from __future__ import annotations

from collections.abc import Iterator

TENSOR_CAPABILITY = (8, 0)
TENSOR_FLOP = 8 * 2 * 16 * 8 * 16  # per round and warp
FMA_FLOP = 8 * 2 * 32  # per round and warp
LANES = 32

_HEADER = """.version {version}
.target {target}
.address_size 64
"""

# i = block * threads + thread, stepping by the number of all threads, so that neighbours write neighbouring words
_FOR_EACH_WORD = """
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mul.wide.u32 %rd3, %r1, %r2;
    cvt.u64.u32 %rd4, %r3;
    add.u64 %rd3, %rd3, %rd4;
    mov.u32 %r4, %nctaid.x;
    mul.wide.u32 %rd5, %r4, %r2;
"""

MEMORY = (
    _HEADER.format(version="6.3", target="sm_70")
    + f"""
.visible .entry fill(.param .u64 data, .param .u64 words, .param .u32 pattern, .param .u32 factor)
{{
    .reg .pred %p<2>;
    .reg .b32 %r<10>;
    .reg .b64 %rd<10>;
    ld.param.u64 %rd1, [data];
    cvta.to.global.u64 %rd1, %rd1;
    ld.param.u64 %rd2, [words];
    ld.param.u32 %r8, [pattern];
    ld.param.u32 %r9, [factor];
{_FOR_EACH_WORD}
next:
    setp.ge.u64 %p1, %rd3, %rd2;
    @%p1 bra done;
    cvt.u32.u64 %r5, %rd3;
    mul.lo.u32 %r5, %r5, %r9;
    xor.b32 %r5, %r5, %r8;
    shl.b64 %rd6, %rd3, 2;
    add.u64 %rd6, %rd1, %rd6;
    st.global.u32 [%rd6], %r5;
    add.u64 %rd3, %rd3, %rd5;
    bra next;
done:
    ret;
}}

.visible .entry check(.param .u64 data, .param .u64 words, .param .u32 pattern, .param .u32 factor, .param .u64 result)
{{
    .reg .pred %p<3>;
    .reg .b32 %r<10>;
    .reg .b64 %rd<16>;
    ld.param.u64 %rd1, [data];
    cvta.to.global.u64 %rd1, %rd1;
    ld.param.u64 %rd2, [words];
    ld.param.u32 %r8, [pattern];
    ld.param.u32 %r9, [factor];
    ld.param.u64 %rd10, [result];
    cvta.to.global.u64 %rd10, %rd10;
{_FOR_EACH_WORD}
next:
    setp.ge.u64 %p1, %rd3, %rd2;
    @%p1 bra done;
    cvt.u32.u64 %r5, %rd3;
    mul.lo.u32 %r5, %r5, %r9;
    xor.b32 %r5, %r5, %r8;
    shl.b64 %rd6, %rd3, 2;
    add.u64 %rd6, %rd1, %rd6;
    ld.global.cv.u32 %r6, [%rd6];
    xor.b32 %r7, %r5, %r6;
    setp.eq.u32 %p2, %r7, 0;
    @%p2 bra right;
    atom.global.add.u64 %rd11, [%rd10], 1;
    atom.global.min.u64 %rd12, [%rd10+8], %rd3;
    cvt.u64.u32 %rd13, %r7;
    atom.global.or.b64 %rd14, [%rd10+16], %rd13;
right:
    add.u64 %rd3, %rd3, %rd5;
    bra next;
done:
    ret;
}}
"""
)

# The start of a burn: %r20 = lane, %rd20 = address of this lane's digest, %rd21 = of its warp's multiprocessor number.
_BURN_START = """
    .reg .pred %p<4>;
    .reg .b32 %r<64>;
    .reg .b64 %rd<24>;
    ld.param.u64 %rd1, [digests];
    cvta.to.global.u64 %rd1, %rd1;
    ld.param.u64 %rd2, [multiprocessors];
    cvta.to.global.u64 %rd2, %rd2;
    ld.param.u32 %r1, [rounds];
    ld.param.u32 %r2, [seed];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    and.b32 %r20, %r6, 31;
    mul.wide.u32 %rd3, %r6, 4;
    add.u64 %rd20, %rd1, %rd3;
    shr.u32 %r7, %r6, 5;
    mul.wide.u32 %rd4, %r7, 4;
    add.u64 %rd21, %rd2, %rd4;
    mad.lo.u32 %r21, %r20, 747796405, %r2;
"""

# The end of a burn: stores the digest %r22; the first lane stores its multiprocessor's number.
_BURN_END = """
    st.global.u32 [%rd20], %r22;
    mov.u32 %r23, %smid;
    setp.ne.u32 %p3, %r20, 0;
    @%p3 bra done;
    st.global.u32 [%rd21], %r23;
done:
    ret;
"""
_BURN_PARAMETERS = ".param .u64 digests, .param .u64 multiprocessors, .param .u32 rounds, .param .u32 seed"
_SETS = range(8)  # independent products, so that the tensor cores never wait for the one before


def _next_bf16(register: str) -> str:
    """Returns lines that put two pseudo-random bfloat16 numbers of magnitude 0.5 to 1 into the register."""
    return f"""
    mad.lo.u32 %r21, %r21, 1664525, 1013904223;
    shr.u32 %r24, %r21, 7;
    xor.b32 %r24, %r24, %r21;
    and.b32 %r24, %r24, 0x807F807F;
    or.b32 {register}, %r24, 0x3F003F00;"""


def _tensor_burn() -> Iterator[str]:
    """Yields the parts of burn_tensor. Its accumulators stay bounded: the signs of one factor change in each round by a
    pseudo-random mask, so that the sums take a random walk."""
    yield _HEADER.format(version="7.0", target="sm_80")
    yield f".visible .entry burn_tensor({_BURN_PARAMETERS})"
    yield "{\n    .reg .f32 %d<32>;\n    .reg .b32 %a<32>;\n    .reg .b32 %b<2>;"
    yield _BURN_START
    for number in range(32):
        yield _next_bf16(f"%a{number}")
        yield f"    mov.f32 %d{number}, 0f00000000;"
    yield _next_bf16("%b0") + _next_bf16("%b1")
    yield "next:\n    setp.eq.u32 %p1, %r1, 0;\n    @%p1 bra digest;"
    for one in _SETS:
        a, d = range(4 * one, 4 * one + 4), ", ".join(f"%d{n}" for n in range(4 * one, 4 * one + 4))
        yield (
            "    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            f"{{{d}}}, {{{', '.join(f'%a{n}' for n in a)}}}, {{%b0, %b1}}, {{{d}}};"
        )
    yield "    mad.lo.u32 %r2, %r2, 1664525, 1013904223;\n    and.b32 %r25, %r2, 0x807F807F;"
    yield "    xor.b32 %b0, %b0, %r25;\n    shf.l.wrap.b32 %r26, %r25, %r25, 16;\n    xor.b32 %b1, %b1, %r26;"
    yield "    sub.u32 %r1, %r1, 1;\n    bra next;\ndigest:\n    mov.u32 %r22, 2166136261;"
    yield from (_fold(f"%d{number}") for number in range(32))
    yield _BURN_END + "}"


def _fold(register: str) -> str:
    """Returns lines that fold a float register's bits into the digest (FNV-1a, a word at a time)."""
    return f"    mov.b32 %r27, {register};\n    xor.b32 %r22, %r22, %r27;\n    mul.lo.u32 %r22, %r22, 16777619;"


def _fma_burn() -> Iterator[str]:
    """Yields the parts of burn_fma: x = x * m + c with 0.5 <= m < 1, which stays bounded."""
    yield _HEADER.format(version="6.3", target="sm_70")
    yield f".visible .entry burn_fma({_BURN_PARAMETERS})\n{{\n    .reg .f32 %f<8>;\n    .reg .f32 %m<2>;"
    yield _BURN_START
    for number in _SETS:
        yield "    mad.lo.u32 %r21, %r21, 1664525, 1013904223;\n    and.b32 %r24, %r21, 0x007FFFFF;"
        yield f"    or.b32 %r24, %r24, 0x3F800000;\n    mov.b32 %f{number}, %r24;"
    yield "    and.b32 %r24, %r2, 0x007FFFFF;\n    or.b32 %r24, %r24, 0x3F000000;\n    mov.b32 %m0, %r24;"
    yield "    mov.f32 %m1, 0f3E99999A;"
    yield "next:\n    setp.eq.u32 %p1, %r1, 0;\n    @%p1 bra digest;"
    yield from (f"    fma.rn.f32 %f{number}, %f{number}, %m0, %m1;" for number in _SETS)
    yield "    sub.u32 %r1, %r1, 1;\n    bra next;\ndigest:\n    mov.u32 %r22, 2166136261;"
    yield from (_fold(f"%f{number}") for number in _SETS)
    yield _BURN_END + "}"


BURN_TENSOR = "\n".join(_tensor_burn()) + "\n"
BURN_FMA = "\n".join(_fma_burn()) + "\n"
