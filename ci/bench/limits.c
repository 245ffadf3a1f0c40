/* What the machine can do: a streaming copy, a read, multiply-adds, and a plain fused RMSNorm; two threads each. */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef void (*work_fn)(const void *argument, int thread);

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

typedef struct {
  work_fn work;
  const void *argument;
  int repeats;
  atomic_int arrived; /* counts up: both threads meet before and after each repetition */
} team;

static void meet(team *t, int *passed) {
  *passed += 2;
  atomic_fetch_add(&t->arrived, 1);
  for (int turns = 0; atomic_load(&t->arrived) < *passed; turns++)
    if (turns > 20000) sched_yield();
}

static void *second(void *pointer) {
  team *t = pointer;
  int passed = 0;
  for (int i = 0; i < t->repeats; i++) {
    meet(t, &passed);
    t->work(t->argument, 1);
    meet(t, &passed);
  }
  return NULL;
}

static int run_team(work_fn work, const void *argument, int repeats, double *ms) {
  team t = {work, argument, repeats, 0};
  pthread_t other;
  int passed = 0;
  if (pthread_create(&other, NULL, second, &t) != 0) return 1;
  for (int i = 0; i < repeats; i++) {
    meet(&t, &passed);
    double start = now_ms();
    work(argument, 0);
    meet(&t, &passed);
    ms[i] = now_ms() - start;
  }
  pthread_join(other, NULL);
  return 0;
}

/* --- memory ---------------------------------------------------------------------------------------------------- */

typedef struct {
  float *out;
  const float *in;
  size_t count; /* a multiple of 128 floats; both arrays aligned to 64 bytes */
} streams;

static void copy_half(const void *argument, int thread) {
  const streams *s = argument;
  size_t half = s->count / 2, from = thread * half;
  const float *in = s->in + from;
  float *out = s->out + from;
#if defined(__AVX512F__)
  for (size_t i = 0; i < half; i += 32) {
    __m512 a = _mm512_load_ps(in + i), b = _mm512_load_ps(in + i + 16);
    _mm512_stream_ps(out + i, a);
    _mm512_stream_ps(out + i + 16, b);
  }
  _mm_sfence();
#elif defined(__AVX__)
  for (size_t i = 0; i < half; i += 16) {
    __m256 a = _mm256_load_ps(in + i), b = _mm256_load_ps(in + i + 8);
    _mm256_stream_ps(out + i, a);
    _mm256_stream_ps(out + i + 8, b);
  }
  _mm_sfence();
#else
  memcpy(out, in, half * sizeof(float));
#endif
}

int limit_copy(float *out, const float *in, size_t count, int repeats, double *ms) {
  streams s = {out, in, count};
  return run_team(copy_half, &s, repeats, ms);
}

#if defined(__AVX512F__)
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif
typedef float lanes __attribute__((vector_size(4 * LANES)));

volatile float sink[2 * 64]; /* a cache line apart; volatile, or loops that nobody reads would vanish */

static void read_half(const void *argument, int thread) {
  const streams *s = argument;
  size_t half = s->count / 2;
  const lanes *in = (const lanes *)(s->in + thread * half);
  lanes a = {0}, b = {0}, c = {0}, d = {0};
  for (size_t i = 0; i < half / LANES; i += 4) {
    a += in[i];
    b += in[i + 1];
    c += in[i + 2];
    d += in[i + 3];
  }
  a += b + c + d;
  sink[thread * 64] = a[0];
}

int limit_read(const float *in, size_t count, int repeats, double *ms) {
  streams s = {NULL, in, count};
  return run_team(read_half, &s, repeats, ms);
}

/* --- arithmetic ------------------------------------------------------------------------------------------------ */

static void multiply_add(const void *argument, int thread) {
  uint64_t turns = *(const uint64_t *)argument;
  lanes x, y, sums[10];
  for (int i = 0; i < LANES; i++) x[i] = 0.999f, y[i] = 1e-3f * (i + 1);
  for (int k = 0; k < 10; k++) sums[k] = y * (float)k;
  for (uint64_t t = 0; t < turns; t++) {
#pragma GCC unroll 10
    for (int k = 0; k < 10; k++) sums[k] = sums[k] * x + y;
  }
  lanes all = {0};
  for (int k = 0; k < 10; k++) all += sums[k];
  sink[thread * 64] = all[0];
}

/* Floating point operations of one repetition; ms for each repetition. */
double limit_multiply_add(uint64_t turns, int repeats, double *ms) {
  if (run_team(multiply_add, &turns, repeats, ms)) return 0;
  return 2.0 * 2 * 10 * LANES * turns;
}

/* --- a plain fused kernel, as one would write it in C ------------------------------------------------------------ */

typedef struct {
  float *out;
  const float *in, *weight;
  size_t rows, columns;
  float epsilon;
} rows;

static void rms_norm_half(const void *argument, int thread) {
  const rows *r = argument;
  size_t half = r->rows / 2;
  for (size_t row = thread * half; row < (thread ? r->rows : half); row++) {
    const float *restrict in = r->in + row * r->columns;
    float *restrict out = r->out + row * r->columns;
    float sum = 0;
    for (size_t i = 0; i < r->columns; i++) sum += in[i] * in[i];
    float scale = 1 / sqrtf(sum / r->columns + r->epsilon);
    for (size_t i = 0; i < r->columns; i++) out[i] = in[i] * scale * r->weight[i];
  }
}

int plain_rms_norm(float *out, const float *in, const float *weight, size_t count, size_t columns, float epsilon,
                   int repeats, double *ms) {
  rows r = {out, in, weight, count, columns, epsilon};
  return run_team(rms_norm_half, &r, repeats, ms);
}
