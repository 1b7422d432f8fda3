/* The floor of a launch: the driver called in a loop, without Python. Used by cuda_host.py. */
#define _POSIX_C_SOURCE 199309L
#include <time.h>

/* CUlaunchConfig of the driver. */
struct config {
  unsigned grid[3], block[3], shared;
  void* stream;
  void* attributes;
  unsigned count;
};

/* Returns the seconds of `number` launches of a block of 32 threads, or -1 where one fails. */
__attribute__((visibility("default")))
double launch_loop(int (*launch)(const struct config*, void*, void**, void**), void* function,
                   void* stream, void** parameters, long number) {
  struct config config = {{1, 1, 1}, {32, 1, 1}, 0, stream, 0, 0};
  struct timespec start, stop;
  int failed = 0;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (long i = 0; i < number; i++) failed |= launch(&config, function, parameters, 0);
  clock_gettime(CLOCK_MONOTONIC, &stop);
  if (failed) return -1;
  return (stop.tv_sec - start.tv_sec) + 1e-9 * (stop.tv_nsec - start.tv_nsec);
}
