/* The yardstick for raw dynamics: tapes of 32 cells, eight at a time with AVX2 intrinsics.
 *
 * The algorithm of tapebench.physics: flip one cell, then apply the rule's algebraic normal
 * form, fourteen bit operations and two rotations. A step is done for all tapes before the next
 * begins, as it must be where the next actions depend on what the step led to.
 */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

int has_avx2(void) { return __builtin_cpu_supports("avx2"); }

static inline __m256i load(const uint32_t *from) {
    return _mm256_loadu_si256((const __m256i *)from);
}

/* tape[num] is updated in place by cells[steps][num]; num is a multiple of 8. The masks lie as
 * masks[num / 8][8][8], mask before lane: eight rows apart by a power of two would share the same
 * few cache lines. */
void run(uint32_t *tape, const uint32_t *masks, const uint32_t *cells, size_t num, size_t steps) {
    const __m256i one = _mm256_set1_epi32(1);
    for (size_t step = 0; step < steps; step++, cells += num) {
        for (size_t i = 0; i < num; i += 8) {
            const uint32_t *m = masks + 8 * i;
            __m256i t = _mm256_xor_si256(load(tape + i), _mm256_sllv_epi32(one, load(cells + i)));
            __m256i left = _mm256_or_si256(_mm256_slli_epi32(t, 1), _mm256_srli_epi32(t, 31));
            __m256i right = _mm256_or_si256(_mm256_srli_epi32(t, 1), _mm256_slli_epi32(t, 31));
#define PAIR(k) /* mask k, with mask k + 1 where the right neighbour is one */ \
    _mm256_xor_si256(load(m + 8 * (k)), _mm256_and_si256(load(m + 8 * (k) + 8), right))
            __m256i without_left = _mm256_xor_si256(PAIR(0), _mm256_and_si256(t, PAIR(2)));
            __m256i with_left = _mm256_xor_si256(PAIR(4), _mm256_and_si256(t, PAIR(6)));
            t = _mm256_xor_si256(without_left, _mm256_and_si256(left, with_left));
            _mm256_storeu_si256((__m256i *)(tape + i), t);
        }
    }
}
