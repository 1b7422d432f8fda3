// nbody: the acceleration of each of n bodies by all others, softened.  A body is (x, y, z, mass).  A block takes 256 bodies,
// and all bodies in tiles of as many, which its threads fetch together into shared memory.
constexpr int tile = 256;

extern "C" __global__ void __launch_bounds__(tile)
nbody(const float4* __restrict__ bodies, float4* __restrict__ acceleration, int n, float softening) {
  __shared__ float4 near[tile];
  const int i = blockIdx.x * tile + threadIdx.x;
  const float4 own = i < n ? bodies[i] : float4{0, 0, 0, 0};
  float ax = 0, ay = 0, az = 0;
  for (int at = 0; at < n; at += tile) {
    const int other = at + threadIdx.x;
    near[threadIdx.x] = other < n ? bodies[other] : float4{0, 0, 0, 0};  // no mass, no pull
    __syncthreads();
#pragma unroll 8
    for (int j = 0; j < tile; ++j) {
      const float4 b = near[j];
      const float dx = b.x - own.x, dy = b.y - own.y, dz = b.z - own.z;
      const float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + softening);
      const float pull = b.w * inverse * inverse * inverse;
      ax += dx * pull, ay += dy * pull, az += dz * pull;
    }
    __syncthreads();
  }
  if (i < n) acceleration[i] = float4{ax, ay, az, 0};
}
