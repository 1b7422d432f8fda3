// Rare intrinsics against what they are defined by: halves and bytes of words, directions of rounding, special functions.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cmath>
#include <cstdio>

typedef unsigned u32;
__global__ void lanes(const u32* a, const u32* b, u32* out) {
  const int t = threadIdx.x;
  const u32 x = a[t], y = b[t];
  const u32 made[] = {__vadd4(x, y),    __vsub2(x, y),   __vaddss4(x, y),    __vsubus4(x, y),   __vmaxs2(x, y),
                      __vminu4(x, y),   __vavgu4(x, y),  __vabsdiffu4(x, y), __vsadu4(x, y),    __vcmpgts4(x, y),
                      __vsetleu2(x, y), __vabs2(x),      __vnegss4(x),       __vhaddu2(x, y),   (u32)__dp2a_lo((int)x, (int)y, 5),
                      __dp2a_hi(x, y, 7u)};
  for (int i = 0; i < 16; i++) out[16 * t + i] = made[i];
}
template <int Bits, bool Signed> long long lane(u32 x, int i) {
  const u32 v = x >> Bits * i & ((1ull << Bits) - 1);
  return Signed && v >> (Bits - 1) ? (long long)v - (1ll << Bits) : (long long)v;
}
template <int Bits, bool Signed, class F> u32 each(u32 x, u32 y, F f) {
  u32 made = 0;
  for (int i = 0; i < 32 / Bits; i++)
    made |= ((u32)f(lane<Bits, Signed>(x, i), lane<Bits, Signed>(y, i)) & (u32)((1ull << Bits) - 1)) << Bits * i;
  return made;
}
long long held(long long v, long long low, long long high) { return v < low ? low : v > high ? high : v; }

__global__ void rounded(const float* x, float* out, double* wide) {
  const int t = threadIdx.x;
  const float a = x[t], b = x[t + 1];
  out[6 * t] = __fadd_rd(a, b), out[6 * t + 1] = __fadd_ru(a, b), out[6 * t + 2] = __fmul_rz(a, b);
  out[6 * t + 3] = __fdiv_ru(a, b), out[6 * t + 4] = __fsqrt_rd(fabsf(a)), out[6 * t + 5] = __fmaf_ru(a, b, 1.0f);
  wide[t] = __dsub_rd((double)a, 1e-30);
}
__global__ void special(const double* x, double* out) {
  const int t = threadIdx.x;
  const double v = x[t];
  out[6 * t] = erf(erfinv(v)), out[6 * t + 1] = erfc(erfcinv(1 + v)), out[6 * t + 2] = normcdf(normcdfinv(0.5 + v / 2));
  out[6 * t + 3] = erfcx(v) * exp(-v * v), out[6 * t + 4] = cyl_bessel_i0(v), out[6 * t + 5] = norm3d(v, 2.0, 1.0);
}
__global__ void pairs(const half2* x, unsigned* masks, half2* out) {
  const half2 a = x[threadIdx.x], b = __floats2half2_rn(1.0f, -1.0f);
  masks[threadIdx.x] = __hge2_mask(a, b) + __hbeq2(a, a) + (unsigned)__half2int_ru(a.x);
  out[threadIdx.x] = __hcmadd(a, b, __hfma2_relu(a, b, b));
}

int main() {
  int wrong = 0;
  u32 *a, *b, *out;
  cudaMallocManaged(&a, 256), cudaMallocManaged(&b, 256), cudaMallocManaged(&out, 64 * 64);
  u32 seed = 1;
  for (int i = 0; i < 64; i++) a[i] = seed = seed * 1664525 + 1013904223, b[i] = i % 8 ? seed * 22695477 + 1 : 0x80808080u;
  lanes<<<1, 64>>>(a, b, out);
  cudaDeviceSynchronize();
  for (int i = 0; i < 64; i++) {
    const u32 x = a[i], y = b[i], *o = out + 16 * i;
    u32 sad = 0;
    for (int k = 0; k < 4; k++) sad += (u32)std::llabs(lane<8, false>(x, k) - lane<8, false>(y, k));
    wrong += o[0] != each<8, false>(x, y, [](auto p, auto q) { return p + q; });
    wrong += o[1] != each<16, false>(x, y, [](auto p, auto q) { return p - q; });
    wrong += o[2] != each<8, true>(x, y, [](auto p, auto q) { return held(p + q, -128, 127); });
    wrong += o[3] != each<8, false>(x, y, [](auto p, auto q) { return held(p - q, 0, 255); });
    wrong += o[4] != each<16, true>(x, y, [](auto p, auto q) { return p > q ? p : q; });
    wrong += o[5] != each<8, false>(x, y, [](auto p, auto q) { return p < q ? p : q; });
    wrong += o[6] != each<8, false>(x, y, [](auto p, auto q) { return (p + q + 1) / 2; });
    wrong += o[7] != each<8, false>(x, y, [](auto p, auto q) { return p > q ? p - q : q - p; }) || o[8] != sad;
    wrong += o[9] != each<8, true>(x, y, [](auto p, auto q) { return p > q ? -1 : 0; });
    wrong += o[10] != each<16, false>(x, y, [](auto p, auto q) { return p <= q ? 1 : 0; });
    wrong += o[11] != each<16, true>(x, x, [](auto p, auto) { return p < 0 ? -p : p; });
    wrong += o[12] != each<8, true>(x, x, [](auto p, auto) { return held(-p, -128, 127); });
    wrong += o[13] != each<16, false>(x, y, [](auto p, auto q) { return (p + q) / 2; });
    wrong += o[14] != (u32)(5 + lane<16, true>(x, 0) * lane<8, true>(y, 0) + lane<16, true>(x, 1) * lane<8, true>(y, 1));
    wrong += o[15] != (u32)(7 + lane<16, false>(x, 0) * lane<8, false>(y, 2) + lane<16, false>(x, 1) * lane<8, false>(y, 3));
  }
  float *f, *r;
  double *w, *d, *s;
  cudaMallocManaged(&f, 33 * 4), cudaMallocManaged(&r, 32 * 6 * 4), cudaMallocManaged(&w, 32 * 8);
  for (int i = 0; i < 33; i++) f[i] = (i - 16.3f) * 1.37f + 1e-6f * i;
  rounded<<<1, 32>>>(f, r, w);
  cudaDeviceSynchronize();
  for (int i = 0; i < 32; i++) {
    const double p = f[i], q = f[i + 1];
    const float *o = r + 6 * i, inf = INFINITY;
    wrong += !(o[0] <= p + q && std::nextafter(o[0], inf) > p + q) || !(o[1] >= p + q && std::nextafter(o[1], -inf) < p + q);
    wrong += !(std::fabs(o[2]) <= std::fabs(p * q) && std::nextafter(std::fabs(o[2]), inf) > std::fabs(p * q));
    wrong += !(o[3] >= p / q && std::nextafter(o[3], -inf) <= p / q) || !((double)o[4] * o[4] <= std::fabs(p));
    wrong += !(o[5] >= p * q + 1 && std::nextafter(o[5], -inf) <= p * q + 1) || w[i] != std::nextafter(p, -INFINITY);
  }
  cudaMallocManaged(&d, 32 * 8), cudaMallocManaged(&s, 32 * 6 * 8);
  for (int i = 0; i < 32; i++) d[i] = (i - 15.5) / 16.1;
  special<<<1, 32>>>(d, s);
  cudaDeviceSynchronize();
  for (int i = 0; i < 32; i++) {
    const double v = d[i], wanted[] = {v, 1 + v, 0.5 + v / 2, erfc(v), 1 + v * v / 4 + v * v * v * v / 64, sqrt(v * v + 5)};
    for (int k = 0; k < 6; k++) wrong += !(std::fabs(s[6 * i + k] - wanted[k]) < (k == 4 ? 1e-3 : 1e-13));
  }
  half2 *h, *g;
  cudaMallocManaged(&h, 16), cudaMallocManaged(&g, 16);
  for (int i = 0; i < 4; i++) h[i] = __floats2half2_rn(i - 0.5f, i - 2.0f);
  pairs<<<1, 4>>>(h, out, g);
  cudaDeviceSynchronize();
  for (int i = 0; i < 4; i++) {
    const float x = i - 0.5f, y = i - 2.0f, re = std::fmax(x + 1, 0.0f), im = std::fmax(-y - 1, 0.0f);
    wrong += out[i] != (x >= 1 ? 0xffffu : 0) + (y >= -1 ? 0xffff0000u : 0) + 1 + (u32)i;
    wrong += __low2float(g[i]) != re + x + y || __high2float(g[i]) != im - x + y;
  }
  printf("%d wrong, %s\n", wrong, cudaGetErrorString(cudaGetLastError()));
  return wrong;
}
