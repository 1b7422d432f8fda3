/* Bind functions that got a new version in glibc 2.29 to 2.34 to the version they had before.
   A directive without a use of its function has no effect. */
#pragma once
#if defined(__x86_64__)
#define KERNELMILL_BASE "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define KERNELMILL_BASE "GLIBC_2.17"
#endif
#if defined(KERNELMILL_BASE) && !defined(__CUDA_ARCH__)
#define KERNELMILL_PIN(name) __asm__(".symver " #name "," #name "@" KERNELMILL_BASE);
/* libm, 2.29 */
KERNELMILL_PIN(exp) KERNELMILL_PIN(exp2) KERNELMILL_PIN(log) KERNELMILL_PIN(log2) KERNELMILL_PIN(pow)
/* libdl and libpthread, part of libc since 2.34 */
KERNELMILL_PIN(dlopen) KERNELMILL_PIN(dlsym) KERNELMILL_PIN(dlclose) KERNELMILL_PIN(dlerror) KERNELMILL_PIN(dladdr)
KERNELMILL_PIN(pthread_create) KERNELMILL_PIN(pthread_join) KERNELMILL_PIN(pthread_detach)
KERNELMILL_PIN(pthread_once) KERNELMILL_PIN(__pthread_key_create) KERNELMILL_PIN(pthread_key_create)
KERNELMILL_PIN(pthread_getspecific) KERNELMILL_PIN(pthread_setspecific)
KERNELMILL_PIN(pthread_mutex_trylock) KERNELMILL_PIN(pthread_rwlock_rdlock)
KERNELMILL_PIN(pthread_rwlock_wrlock) KERNELMILL_PIN(pthread_rwlock_unlock)
KERNELMILL_PIN(sem_init) KERNELMILL_PIN(sem_wait) KERNELMILL_PIN(sem_post) KERNELMILL_PIN(sem_destroy)
#undef KERNELMILL_PIN
#undef KERNELMILL_BASE
#endif
