// vectors.hpp - CUDA's vector types and dim3, with the alignments that CUDA gives them.
#pragma once

#define KM_EMU_VECTOR(T, N, PAIR, QUAD)                                                   \
  struct N##1 { T x; };                                                                   \
  struct alignas(PAIR) N##2 { T x, y; };                                                  \
  struct N##3 { T x, y, z; };                                                             \
  struct alignas(QUAD) N##4 { T x, y, z, w; };                                            \
  constexpr N##1 make_##N##1(T x) { return N##1{x}; }                                     \
  constexpr N##2 make_##N##2(T x, T y) { return N##2{x, y}; }                             \
  constexpr N##3 make_##N##3(T x, T y, T z) { return N##3{x, y, z}; }                     \
  constexpr N##4 make_##N##4(T x, T y, T z, T w) { return N##4{x, y, z, w}; }
KM_EMU_VECTOR(signed char, char, 2, 4)
KM_EMU_VECTOR(unsigned char, uchar, 2, 4)
KM_EMU_VECTOR(short, short, 4, 8)
KM_EMU_VECTOR(unsigned short, ushort, 4, 8)
KM_EMU_VECTOR(int, int, 8, 16)
KM_EMU_VECTOR(unsigned int, uint, 8, 16)
KM_EMU_VECTOR(long, long, 16, 16)
KM_EMU_VECTOR(unsigned long, ulong, 16, 16)
KM_EMU_VECTOR(long long, longlong, 16, 16)
KM_EMU_VECTOR(unsigned long long, ulonglong, 16, 16)
KM_EMU_VECTOR(float, float, 8, 16)
KM_EMU_VECTOR(double, double, 16, 16)
#undef KM_EMU_VECTOR

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int a = 1, unsigned int b = 1, unsigned int c = 1) : x(a), y(b), z(c) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};
